import numpy as np

from predictor.catalogue.devices import find_gpu, peak_tflop_per_s
from predictor.models.baselines import FlopsRatio
from predictor.operators.work import cnn_flops


def _peaks(features):
    """Peak rate of each row's GPU at its precision, in TFLOP/s."""
    return features["gpu"].map(lambda gpu: peak_tflop_per_s(find_gpu(gpu), "fp32"))


def _napkin(features, efficiency=0.4):
    """Milliseconds at a share of the peak that is the same everywhere."""
    flops = features["layer_table"].map(lambda table: cnn_flops(table, 1)) * features["batch_size"]
    return flops / (efficiency * _peaks(features) * 1e12) * 1e3


def test_a_cnn_timed_on_other_gpus_scales_with_the_ratio_of_peaks(features):
    train, unseen = features[features["gpu"] == "Tesla K80"], features[features["gpu"] == "Tesla T4"]
    predicted = FlopsRatio().fit(train, train["iteration_time_ms"]).predict(unseen)
    peaks = _peaks(train).iloc[0] / _peaks(unseen).iloc[0]
    np.testing.assert_allclose(predicted, train["iteration_time_ms"].to_numpy() * peaks)


def test_several_gpus_give_their_median(features):
    train = features[features["gpu"] != "Tesla T4"]
    unseen = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 8)]
    predicted = FlopsRatio().fit(train, train["iteration_time_ms"]).predict(unseen)
    rows = train[train["batch_size"] == 8]
    reached = (rows["iteration_time_ms"] * _peaks(rows)).groupby(rows["cnn"]).median()
    np.testing.assert_allclose(predicted, reached[unseen["cnn"]] / _peaks(unseen).to_numpy())


def test_the_gpu_itself_at_another_batch_size_counts_before_other_gpus(features):
    train = features[(features["gpu"] != "Tesla T4") | (features["batch_size"] == 16)]
    unseen = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 64)]
    own = features[(features["gpu"] == "Tesla T4") & (features["batch_size"] == 16)]
    predicted = FlopsRatio().fit(train, train["iteration_time_ms"]).predict(unseen)
    np.testing.assert_allclose(predicted, 4 * own["iteration_time_ms"].to_numpy())


def test_anchors_of_a_cnn_out_of_the_fit_scale_with_the_ratio_of_peaks(features):
    train = features[features["cnn"] != "deep"]
    deep = features[features["cnn"] == "deep"]
    anchors, unseen = deep[deep["gpu"] == "Tesla K80"], deep[deep["gpu"] == "Tesla T4"]
    fitted = FlopsRatio().fit(train, train["iteration_time_ms"])
    predicted = fitted.predict(unseen, anchors=(anchors, anchors["iteration_time_ms"]))
    peaks = _peaks(anchors).iloc[0] / _peaks(unseen).iloc[0]
    np.testing.assert_allclose(predicted, anchors["iteration_time_ms"].to_numpy() * peaks)


def test_no_anchors_at_all_change_nothing(features):
    fitted = FlopsRatio().fit(features, features["iteration_time_ms"])
    none = (features.head(0), [])
    np.testing.assert_array_equal(fitted.predict(features, anchors=none), fitted.predict(features))


def test_a_batch_size_never_timed_scales_with_the_batch(features):
    train = features[features["batch_size"] == 16]
    unseen = features[features["batch_size"] == 64]
    predicted = FlopsRatio().fit(train, _napkin(train)).predict(unseen)
    np.testing.assert_allclose(predicted, _napkin(unseen))


def test_a_cnn_never_timed_takes_the_median_share_of_the_peak(features):
    train, unseen = features[features["cnn"] != "deep"], features[features["cnn"] == "deep"]
    predicted = FlopsRatio().fit(train, _napkin(train)).predict(unseen)
    np.testing.assert_allclose(predicted, _napkin(unseen))
