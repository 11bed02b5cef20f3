"""Baselines: FLOPs over the peak rate, and lines over batch sizes."""

import numpy as np
import pandas as pd

from predictor.catalogue.devices import find_gpu, peak_tflop_per_s
from predictor.models.baselines import FlopsRatio, Line
from predictor.operators.work import cnn_flops


def _peaks(features):
    """Peak rate of each row's GPU at its precision, in TFLOP/s."""
    return features["gpu"].map(lambda gpu: peak_tflop_per_s(find_gpu(gpu), "fp32"))


def _napkin(features, efficiency=0.4):
    """Milliseconds at a share of the peak that is the same everywhere."""
    flops = features["layer_table"].map(lambda table: cnn_flops(table, 1)) * features["batch_size"]
    return flops / (efficiency * _peaks(features) * 1e12) * 1e3


def _fitted(rows):
    return FlopsRatio().fit(rows, rows["iteration_time_ms"])


def test_a_cnn_timed_on_other_gpus_scales_with_the_ratio_of_peaks_as_by_anchors_out_of_the_fit(features):
    train, unseen = features[features["gpu"] == "Tesla K80"], features[features["gpu"] == "Tesla T4"]
    peaks = _peaks(train).iloc[0] / _peaks(unseen).iloc[0]
    expected = train["iteration_time_ms"].to_numpy() * peaks
    np.testing.assert_allclose(_fitted(train).predict(unseen), expected)
    fitted, is_deep = _fitted(features[features["cnn"] != "deep"]), (train["cnn"] == "deep").to_numpy()
    anchors = train[is_deep], train[is_deep]["iteration_time_ms"]
    np.testing.assert_allclose(fitted.predict(unseen[is_deep], anchors=anchors), expected[is_deep])


def test_several_gpus_give_their_median(features):
    train = features[features["gpu"] != "Tesla T4"]
    unseen = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 8)]
    predicted = _fitted(train).predict(unseen)
    rows = train[train["batch_size"] == 8]
    reached = (rows["iteration_time_ms"] * _peaks(rows)).groupby(rows["cnn"]).median()
    np.testing.assert_allclose(predicted, reached[unseen["cnn"]] / _peaks(unseen).to_numpy())


def test_the_gpu_itself_at_another_batch_size_counts_before_other_gpus(features):
    train = features[(features["gpu"] != "Tesla T4") | (features["batch_size"] == 16)]
    unseen = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 64)]
    own = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 16)]
    np.testing.assert_allclose(_fitted(train).predict(unseen), 4 * own["iteration_time_ms"].to_numpy())


def test_no_anchors_at_all_change_nothing(features):
    fitted = _fitted(features)
    none = (features.head(0), [])
    np.testing.assert_array_equal(fitted.predict(features, anchors=none), fitted.predict(features))


def test_a_batch_size_never_timed_scales_and_a_cnn_never_timed_takes_the_median_share_of_the_peak(features):
    for column, left_out in (("batch_size", 64), ("cnn", "deep")):
        is_unseen = features[column] == left_out
        train, unseen = features[~is_unseen], features[is_unseen]
        predicted = FlopsRatio().fit(train, _napkin(train)).predict(unseen)
        np.testing.assert_allclose(predicted, _napkin(unseen))


def test_a_line_is_recovered_at_a_batch_size_left_out(features):
    times = 3 + 0.25 * features["batch_size"]
    is_kept = features["batch_size"] != 32
    predicted = Line().fit(features[is_kept], times[is_kept]).predict(features[~is_kept])
    np.testing.assert_allclose(predicted, times[~is_kept])


def test_series_of_different_modes_have_lines_of_their_own(features):
    doubled = features.assign(precision="tf32")
    times = np.concatenate([features["iteration_time_ms"], 2 * features["iteration_time_ms"]])
    fitted = Line().fit(pd.concat([features, doubled]), times)
    np.testing.assert_allclose(fitted.predict(doubled), 2 * fitted.predict(features))


def test_relative_errors_are_balanced_over_batch_sizes(features):
    series = features[(features["gpu"] == "Tesla K80") & (features["cnn"] == "deep")]
    times = series["iteration_time_ms"].to_numpy()
    residuals = Line().fit(series, times).predict(series) / times - 1
    sums = [np.sum(residuals / times), np.sum(residuals * series["batch_size"] / times)]
    np.testing.assert_allclose(sums, 0, atol=1e-9)
