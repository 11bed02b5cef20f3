import numpy as np

from predictor.models.baselines import Line


def test_a_line_is_recovered_at_a_batch_size_left_out(features):
    times = 3 + 0.25 * features["batch_size"]
    is_kept = features["batch_size"] != 32
    predicted = Line().fit(features[is_kept], times[is_kept]).predict(features[~is_kept])
    np.testing.assert_allclose(predicted, times[~is_kept])


def test_series_of_different_modes_have_lines_of_their_own(features):
    doubled = features.assign(precision="tf32")
    times = np.concatenate([features["iteration_time_ms"], 2 * features["iteration_time_ms"]])
    import pandas as pd

    fitted = Line().fit(pd.concat([features, doubled]), times)
    np.testing.assert_allclose(fitted.predict(doubled), 2 * fitted.predict(features))


def test_relative_errors_are_balanced_over_batch_sizes(features):
    series = features[(features["gpu"] == "Tesla K80") & (features["cnn"] == "deep")]
    times = series["iteration_time_ms"].to_numpy()
    residuals = Line().fit(series, times).predict(series) / times - 1
    np.testing.assert_allclose(
        [np.sum(residuals / times), np.sum(residuals * series["batch_size"] / times)], 0, atol=1e-9
    )
