import numpy as np
import pandas as pd
import pytest

from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.founding import GpuSpecs

pytestmark = pytest.mark.filterwarnings("ignore:.*times are not above zero:RuntimeWarning")


def _founding_law(features: pd.DataFrame) -> np.ndarray:
    """Seconds that are linear in what the founding slides' approach 1 looks at."""
    counts = features["layer_table"].map(lambda table: sum(layer.in_channels == 64 for layer in table))
    return (
        900.0
        - 20 * features["gpu_compute_capability"]
        - 50 * features["gpu_boost_clock_ghz"]
        - 0.01 * features["gpu_cuda_cores"]
        - 3 * features["gpu_peak_fp32_tflop_per_s"]
        + 2 * features["gpu_l2_mib"]
        + 30 * counts
        - 0.5 * features["batch_size"]
    ).to_numpy(dtype=float)


def _without(features: pd.DataFrame, gpu: str) -> pd.DataFrame:
    return features[features["gpu"] != gpu]


def test_a_linear_law_is_recovered_exactly_on_a_gpu_left_out(features):
    train, asked = _without(features, "Tesla T4"), features[features["gpu"] == "Tesla T4"]
    predicted = GpuSpecs().fit(train, _founding_law(train)).predict(asked)
    np.testing.assert_allclose(predicted, _founding_law(asked), rtol=1e-7)


def test_coefficients_are_named_after_their_columns(features):
    fitted = GpuSpecs().fit(features, _founding_law(features))
    assert fitted.coefficients()["gpu_boost_clock_ghz"] == pytest.approx(-50)
    assert fitted.coefficients()["batch_size"] == pytest.approx(-0.5)
    assert {"intercept", "proxy_32_64_64", "proxy_32_128_128_k1_s1_g1"} <= set(fitted.coefficients())


def _both(features, times):
    """What the plain and the relative variant answer."""
    return [GpuSpecs(relative).fit(features, times).predict(features) for relative in (False, True)]


def test_the_plain_variant_has_the_smallest_squared_error_in_seconds(features):
    times = features["epoch_time_s"].to_numpy()
    plain, relative = _both(features, times)
    assert np.sum((plain - times) ** 2) < np.sum((relative - times) ** 2)


def test_the_relative_variant_has_the_smallest_squared_relative_error(features):
    times = features["epoch_time_s"].to_numpy()
    plain, relative = _both(features, times)
    assert np.sum((relative / times - 1) ** 2) < np.sum((plain / times - 1) ** 2)


def test_shapes_without_a_column_are_refused_and_all_listed(features, stranger):
    fitted = GpuSpecs().fit(features, features["epoch_time_s"])
    with pytest.raises(OutOfRangeError, match=r"stranger: .* 32_64_96, 32_96_96"):
        fitted.predict(stranger)


def test_a_missing_specification_is_refused_with_gpu_and_column(features):
    fitted = GpuSpecs().fit(features, features["epoch_time_s"])
    asked = features.copy()
    asked.loc[asked["gpu"] == "Tesla M60", "gpu_l2_mib"] = np.nan
    with pytest.raises(OutOfRangeError, match="'gpu_l2_mib' has no value for Tesla M60"):
        fitted.predict(asked)


def test_another_number_of_samples_is_refused(features):
    fitted = GpuSpecs().fit(features, features["epoch_time_s"])
    with pytest.raises(OutOfRangeError, match="samples_per_epoch 50000, asked for 5000"):
        fitted.predict(features.assign(samples_per_epoch=5000))


def test_training_rows_of_two_precisions_are_refused(features):
    mixed = features.assign(precision=["fp32", "amp_bf16"] * (len(features) // 2))
    with pytest.raises(SchemaError, match="one precision, got amp_bf16, fp32"):
        GpuSpecs().fit(mixed, mixed["epoch_time_s"])


def test_a_cnn_without_layer_table_is_refused_by_name(features):
    unknown = features.assign(layer_table=None)
    with pytest.raises(SchemaError, match="'layer_table' has no value for deep, narrow, wide"):
        GpuSpecs().fit(unknown, unknown["epoch_time_s"])


def test_a_negative_prediction_warns(features):
    slow = features[features["gpu"].isin(["Tesla K80", "Tesla M60"])]
    fitted = GpuSpecs().fit(slow, 100 - 0.5 * slow["batch_size"])
    with pytest.warns(RuntimeWarning, match="1 of 1 predicted times are not above zero"):
        fitted.predict(slow.head(1).assign(batch_size=300))
