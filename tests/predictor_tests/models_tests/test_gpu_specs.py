import numpy as np
import pandas as pd
import pytest
from grid_rows import grid_rows
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import FOUNDING_PROXIES
from predictor.cnns.zoo import zoo_cnn
from predictor.models.base import Case
from predictor.models.founding import GpuSpecs
from predictor.operators.nearest_proxy import proxy_work
from predictor.operators.work import cnn_flops


@pytest.fixture(scope="module")
def fitted(features_with_proxies) -> GpuSpecs:
    return GpuSpecs().fit(features_with_proxies, features_with_proxies["iteration_time_ms"])


def _case(cnn="resnet50", gpu="Tesla T4", sizes=(8, 64)):
    return Case(cnn, 224, zoo_cnn(cnn), find_gpu(gpu), Mode(), np.array(sizes, dtype=float))


def test_times_are_above_zero_and_rise_with_the_batch_size_whatever_is_asked(fitted):
    tables = [zoo_cnn("lenet5"), zoo_cnn("vgg16"), zoo_cnn("mobilenet_v2")]
    devices = [(find_gpu(name), Mode()) for name in ("Tesla K80", "Tesla T4", "L4", "NVIDIA B200")]
    times = fitted.predict(grid_rows(tables, devices, [1, 8, 64, 4096]))
    assert (times > 0).all()
    assert (np.diff(times.reshape(-1, 4)) > 0).all()


def test_coefficients_of_a_sum_are_recovered(features):
    """Time = 1 ms + 0.1 ms a layer + twice the operations' time at the peak."""
    flops = [cnn_flops(table, 1) for table in features["layer_table"]]
    peaks = features["gpu"].map(lambda gpu: find_gpu(gpu).peak_fp32_tflop_per_s)
    work = [proxy_work(table, ("32_64_64",)).values() for table in features["layer_table"]]
    convolutions = [sum(proxy.flops for proxy in proxies) for proxies in work]
    assert np.array(convolutions) == pytest.approx(np.array(flops) / 1e9, rel=0.1)
    busy = 2 * features["batch_size"] * np.array(convolutions) / peaks
    times = 1 + 0.1 * features["layer_table"].map(len) + busy
    fitted = GpuSpecs(("32_64_64",)).fit(features, times).coefficients_
    recovered = [fitted[name] for name in ("iteration|pytorch", "layers|pytorch", "flops")]
    np.testing.assert_allclose(recovered, [1.0, 0.1, 2.0], rtol=0.02)


def test_every_term_is_its_coefficient_times_its_feature_and_together_they_are_the_time(fitted):
    case = _case()
    coefficients, terms, parts = fitted.coefficients_of(case), fitted.terms(case), fitted.parts(case)
    assert all((parts[name] == coefficients[name] * terms[name]).all() for name in terms)
    (answer,) = fitted._times([case])
    assert answer == pytest.approx(sum(parts.values()))


def test_no_coefficient_is_below_zero(fitted):
    assert min(fitted.coefficients_.values()) >= 0


def test_scikit_learn_leaves_gpus_out(features_with_proxies):
    rows = features_with_proxies
    scoring = {"cv": LeaveOneGroupOut(), "scoring": "neg_mean_absolute_percentage_error"}
    errors = cross_val_score(GpuSpecs(), rows, rows["iteration_time_ms"], groups=rows["gpu"], **scoring)
    assert len(errors) == rows["gpu"].nunique()
    assert (errors < 0).all()


def test_layers_of_a_kind_that_no_training_cnn_had_count_as_the_nearest_that_one_had(features):
    of_one_cnn = features[features["cnn"] == features["cnn"].iloc[0]]
    fitted = GpuSpecs().fit(of_one_cnn, of_one_cnn["iteration_time_ms"])
    terms = fitted.terms(_case("vgg16", of_one_cnn["gpu"].iloc[0]))
    counted = {name.removeprefix("issue|") for name in terms if "issue" in name}
    assert counted <= set(fitted.proxies_) < set(FOUNDING_PROXIES)


def test_every_layer_counts_as_one_proxy_that_of_its_kernel_before_that_of_its_size():
    """A layer of a proxy's shape does a pass more, since the proxy reads the image."""
    products = [layer for layer in zoo_cnn("mobilenet_v2") if layer.type in ("conv2d", "linear")]
    counted = proxy_work(zoo_cnn("mobilenet_v2"), FOUNDING_PROXIES)
    assert sum(proxy.n_layers for proxy in counted.values()) == len(products)
    counted = proxy_work(zoo_cnn("vgg_cifar"), FOUNDING_PROXIES)
    assert counted["32_3_64"].ratios.tolist() == [1.0]
    assert counted["32_64_64"].ratios.tolist() == [pytest.approx(1.5)]
    counted = proxy_work(zoo_cnn("resnet50"), ("56_64_64", "7_512_2048_k1_s1_g1"))
    pointwise = [layer for layer in zoo_cnn("resnet50") if layer.type == "linear" or layer.kernel_height == 1]
    assert counted["7_512_2048_k1_s1_g1"].n_layers == len(pointwise)


def test_the_reasons_name_the_nearest_proxies_and_a_gpu_that_was_not_fitted(fitted):
    reasons = {reason.kind: reason.text for reason in fitted.scope(_case(gpu="L4"))[0]}
    assert reasons.keys() == {"gpu", "shape"}
    assert "14_256_1024_k1_s1_g1 as 16_128_128" in reasons["shape"]

    below, beyond = fitted.scope(_case(sizes=(64, 4096)))
    assert [reason.kind for reason in beyond if reason not in below] == ["batch"]


def test_several_modes_are_fitted_at_once(features):
    strict = features[features["gpu"].map(lambda gpu: find_gpu(gpu).compute_capability) >= 8]
    rows = pd.concat([strict, strict.assign(precision="tf32")])
    times = rows["iteration_time_ms"] * np.where(rows["precision"] == "tf32", 0.5, 1.0)
    fitted = GpuSpecs().fit(rows, times)
    device, table = find_gpu("GeForce RTX 3090"), zoo_cnn("vgg_cifar")
    devices = [(device, Mode(precision=precision)) for precision in ("fp32", "tf32")]
    slow, fast = fitted.predict(grid_rows([table], devices, [64]))
    assert fast < slow
