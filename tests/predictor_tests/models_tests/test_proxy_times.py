from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.features import feature_table
from predictor.models.founding import ProxyTimes

SLIDES = Path(__file__).parent / "tables" / "slides_approach_2.csv"


@pytest.fixture
def slides() -> pd.DataFrame:
    """Feature table of the founding slides' target, its eight proxies' epoch times beside it."""
    rows = pd.read_csv(SLIDES).assign(gpu="Tesla K80", image_size=32, samples_per_epoch=50_000)
    rows["kind"] = np.where(rows["cnn"] == "target", "target", "proxy")
    table = feature_table(rows, lambda *_: None)
    return table[table["kind"] == "target"]


def _on(features: pd.DataFrame, gpu: str) -> pd.DataFrame:
    return features[features["gpu"] == gpu]


def _law(features: pd.DataFrame) -> pd.Series:
    proxies = features["proxy_epoch_time_s_32_3_64"], features["proxy_epoch_time_s_32_64_64"]
    return 5 + 0.1 * features["batch_size"] + 2 * proxies[0] + 3 * proxies[1]


def test_a_law_learned_on_gpu_1_holds_on_gpu_2_where_only_proxies_were_measured(features):
    gpu_1, gpu_2 = _on(features, "Tesla K80"), _on(features, "NVIDIA H200").drop(columns="epoch_time_s")
    fitted = ProxyTimes().fit(gpu_1, _law(gpu_1))
    np.testing.assert_allclose(fitted.predict(gpu_2), _law(gpu_2), rtol=1e-6)


def test_each_cnn_has_a_law_of_its_own(features):
    gpu_1 = _on(features, "Tesla K80")
    factor = gpu_1["cnn"].map({"narrow": 1.0, "wide": 2.0, "deep": 5.0})
    coefficients = ProxyTimes().fit(gpu_1, factor * _law(gpu_1)).coefficients()
    assert coefficients["wide@32:batch_size"] == pytest.approx(0.2)
    assert coefficients["deep@32:batch_size"] == pytest.approx(0.5)


def test_the_relative_variant_has_the_smallest_squared_relative_error(features):
    times = features["epoch_time_s"].to_numpy()
    predictors = (ProxyTimes(("32_3_64",)), ProxyTimes(("32_3_64",), relative=True))
    plain, relative = (each.fit(features, times).predict(features) for each in predictors)
    assert np.sum((relative / times - 1) ** 2) < np.sum((plain / times - 1) ** 2)
    assert np.sum((plain - times) ** 2) < np.sum((relative - times) ** 2)


def test_a_cnn_that_was_not_in_the_training_rows_is_refused(features, stranger):
    fitted = ProxyTimes().fit(features, features["epoch_time_s"])
    with pytest.raises(OutOfRangeError, match="no law for stranger at image size 32; it has deep at 32"):
        fitted.predict(stranger)


def test_a_proxy_not_measured_on_the_gpu_at_that_batch_size_is_named(features):
    fitted = ProxyTimes().fit(features, features["epoch_time_s"])
    asked = _on(features, "Tesla T4").assign(proxy_epoch_time_s_32_3_64=np.nan).head(1)
    with pytest.raises(
        OutOfRangeError, match="'proxy_epoch_time_s_32_3_64' has no value for Tesla T4 at batch"
    ):
        fitted.predict(asked)


def test_fewer_rows_than_coefficients_are_refused(features):
    few = _on(features, "Tesla K80").query("batch_size < 64")
    with pytest.raises(
        SchemaError, match=r"has 3 rows, its law 4 coefficients \(intercept, batch size, 2 proxies"
    ):
        ProxyTimes().fit(few, few["epoch_time_s"])


def test_a_table_without_proxies_is_refused(features):
    bare = features.drop(columns=[c for c in features if c.startswith("proxy_epoch_time_s_")])
    with pytest.raises(SchemaError, match="found no proxy's epoch times"):
        ProxyTimes().fit(bare, bare["epoch_time_s"])


def test_the_slides_figures_are_in_the_fixture():
    known = pd.read_csv(SLIDES).query("origin == 'slides'").set_index(["cnn", "batch_size"])["epoch_time_s"]
    assert known.to_dict() == {
        ("target", 14): 372.0,
        ("target", 16): 375.0,
        ("2_256_256", 14): 6.30,
        ("2_256_256", 16): 11.95,
    }


def test_the_fixture_has_the_slides_eight_proxies(slides):
    assert sorted(c for c in slides if c.startswith("proxy_epoch_time_s_")) == [
        f"proxy_epoch_time_s_{h}_{c_in}_{c_out}"
        for h in (2, 4)
        for c_in in (256, 512)
        for c_out in (256, 512)
    ]


def test_a_proxy_that_jumps_alone_hardly_moves_the_target(slides):
    fitted = ProxyTimes().fit(slides, slides["epoch_time_s"])
    at_14, at_16 = fitted.predict(slides[slides["batch_size"].isin([14, 16])])
    assert at_16 / at_14 == pytest.approx(375 / 372, abs=0.02)
