import json

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.catalogue.devices import device_of, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.models.base import Case
from predictor.models.founding import ProxyTimes


def _on(features, *gpus):
    return features[features["gpu"].isin(gpus)]


def _proxies(features):
    return features[features["kind"] == "proxy"]


def _cnns(features):
    return features[features["kind"] == "target"]


def _fit(rows, factor=1.0):
    return ProxyTimes().fit(rows, factor * rows["iteration_time_ms"])


def _case(cnn, sizes, gpu="NVIDIA H200", table=None):
    return Case(cnn, 224, zoo_cnn(table or cnn), find_gpu(gpu), Mode(), np.array(sizes))


@pytest.fixture(scope="module")
def first_gpu(features_with_proxies):
    """The CNNs of the first GPU, and the proxies of two."""
    proxies = _proxies(_on(features_with_proxies, "Tesla K80", "NVIDIA H200"))
    return pd.concat([proxies, _cnns(_on(features_with_proxies, "Tesla K80"))])


def test_gpu_2_twice_as_slow_on_its_proxies_is_twice_as_slow(first_gpu):
    proxies, cnns = _proxies(first_gpu), _cnns(first_gpu)
    slow = _on(proxies, "Tesla K80").assign(gpu="Tesla M60")
    rows = pd.concat([_on(proxies, "Tesla K80"), slow, cnns])
    times = rows["iteration_time_ms"] * np.where(rows["gpu"] == "Tesla M60", 2.0, 1.0)
    fitted = ProxyTimes().fit(rows, times)
    for cnn in (
        "resnet50",
        "deep",
    ):  # without and with coefficients of its own, but for the batch size's term
        on_fast, on_slow = (_case(cnn, [64.0], gpu, "resnet50") for gpu in ("Tesla K80", "Tesla M60"))
        assert fitted.parts(on_slow)["proxies"] == pytest.approx(2 * fitted.parts(on_fast)["proxies"])


def test_each_cnn_has_coefficients_of_its_own(first_gpu):
    factor = first_gpu["cnn"].map({"wide": 2.0}).fillna(1.0)
    cnns = _cnns(first_gpu)
    predicted = _fit(first_gpu, factor).predict(cnns) / cnns["iteration_time_ms"]
    by_cnn = predicted.groupby(cnns["cnn"]).mean()
    assert by_cnn["wide"] == pytest.approx(2.0, rel=0.1)
    assert by_cnn["narrow"] == pytest.approx(1.0, rel=0.1)


def test_a_cnn_that_was_not_in_the_training_rows_is_answered_with_a_reason(first_gpu):
    fitted = _fit(first_gpu)
    case = _case("resnet50", [64.0, 100.0])
    times = np.sum(list(fitted.parts(case).values()), axis=0)
    assert 0 < times[0] < times[1]
    assert [reason.kind for reason in fitted.scope(case)[0]] == ["cnn", "gpu", "shape"]


def test_beyond_the_largest_proxy_times_are_proportional_to_the_work(first_gpu):
    case = _case("vgg16", [512.0, 1024.0])
    half, full = _fit(first_gpu).parts(case)["proxies"]
    assert full / half == pytest.approx(2.0, rel=0.01)


def test_what_users_measure_is_added_and_the_rest_stays(first_gpu, features_with_proxies):
    fitted = _fit(first_gpu)
    more = fitted.with_measurements(_on(features_with_proxies, "Tesla T4"))
    case = _case("resnet50", [64.0], "Tesla T4")
    assert more.parts(case)["proxies"] > 0
    assert more.general_ == fitted.general_
    with pytest.raises(OutOfRangeError):
        fitted.parts(case)


def test_gpu_and_host_times_of_proxies_are_told_apart_where_they_were_measured(first_gpu):
    proxy = first_gpu["kind"] == "proxy"
    times = {"gpu_time_ms": first_gpu["iteration_time_ms"].where(proxy)}
    split = first_gpu.assign(**times, host_time_ms=np.where(proxy, 3.0, np.nan))
    case = _case("resnet50", [1.0])
    terms = _fit(split).terms(case)
    assert (terms["iteration"][0], terms["layers"][0]) == (3.0, 3.0 * 54)  # 53 convolutions, a linear layer
    assert _fit(first_gpu).terms(case)["layers"][0] == 0


def _calibrated(rows):
    times = rows["iteration_time_ms"].to_numpy()
    return ProxyTimes().fit(rows, times).calibrate(rows, times)


def test_one_chip_has_the_width_that_published_chips_show(first_gpu):
    cards = [first_gpu.assign(gpu=gpu) for gpu in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")]
    assert _calibrated(cards[0]).half_widths_ == {"unseen": 0.73}  # nine interior batch sizes tell no width
    assert set(_calibrated(pd.concat(cards)).half_widths_) == {"measured", "unseen"}


def test_widths_are_of_the_chip_on_which_the_cnn_was_measured(features_with_proxies):
    others = _proxies(_on(features_with_proxies, "NVIDIA H200"))
    fitted = _calibrated(pd.concat([_on(features_with_proxies, "Tesla K80", "Tesla T4"), others]))
    cases = {
        gpu: Case("deep", 32, zoo_cnn("vgg16"), find_gpu(gpu), Mode(precision="fp32"), np.array([64.0]))
        for gpu in ("Tesla K80", "NVIDIA H200")
    }
    assert fitted.half_width(cases["Tesla K80"]) == fitted.half_widths_["measured"]
    assert fitted.half_width(cases["NVIDIA H200"]) == fitted.half_widths_["unseen"] >= 0.73


def test_a_cnn_unlike_all_others_does_not_bend_the_law_of_the_others(first_gpu):
    sane, bent = (_fit(first_gpu, first_gpu["cnn"].map({"wide": f}).fillna(1.0)) for f in (1.0, 5.0))
    case = Case(
        "other", 32, zoo_cnn("vgg16"), find_gpu("Tesla K80"), Mode(precision="fp32"), np.array([64.0])
    )
    times = [sum(fitted.parts(case).values())[0] for fitted in (sane, bent)]
    assert times[1] == pytest.approx(times[0], rel=0.2)


@pytest.mark.parametrize(("framework", "power"), [("tensorflow", 1), ("pytorch", 2), ("chainer", 2)])
def test_tensorflow_adds_terms_and_frameworks_that_enqueue_ahead_hide_the_shorter(
    first_gpu, framework, power
):
    rows = first_gpu.assign(framework=framework)
    mode = Mode(framework, precision="fp32")
    case = Case("resnet50", 224, zoo_cnn("resnet50"), find_gpu("Tesla K80"), mode, np.array([64.0]))
    fitted = _fit(rows)
    coefficients, terms = fitted.coefficients_of(case), fitted.terms(case)
    summed = sum((coefficients[name] * terms[name]) ** power for name in terms)
    assert sum(fitted.parts(case).values()) == pytest.approx(summed ** (1 / power))


def test_another_chip_takes_half_of_what_a_cnn_differs_from_all(first_gpu):
    factor = first_gpu["cnn"].map({"wide": 2.0}).fillna(1.0)
    fitted = _fit(first_gpu, factor)
    [law] = [law for key, law in fitted.laws_.items() if key[0] == "wide"]
    mode = Mode(precision="fp32")
    case = Case("wide", 32, zoo_cnn("vgg16"), find_gpu("NVIDIA H200"), mode, np.array([64.0]))
    general = fitted.general_["pytorch on GPUs"]
    assert fitted.coefficients_of(case) == {name: law.factor * c for name, c in general.items()}
    assert 1.0 < law.factor < 2.0  # half of the ln of what it differs by


def test_elementwise_work_follows_the_proxy_that_streams(first_gpu):
    streams = (first_gpu["cnn"] == "32_3_64").to_numpy()
    twice = _fit(first_gpu, np.where(streams, 2.0, 1.0))
    case = _case("resnet50", [64.0], "Tesla K80")
    once = _fit(first_gpu).terms(case)["elementwise"]
    assert twice.terms(case)["elementwise"] == pytest.approx(2 * once)


@each_row
def test_a_law_is_carried_neither_to_processors_nor_to_other_frameworks(first_gpu, changed, words):
    more = _proxies(_on(first_gpu, "Tesla K80")).assign(**changed)
    fitted = _fit(pd.concat([first_gpu, more], ignore_index=True))
    mode = Mode(framework=changed.get("framework", "pytorch"), precision="fp32")
    device = device_of(changed.get("gpu", "Tesla K80"))
    case = Case("resnet50", 224, zoo_cnn("resnet50"), device, mode, np.array([64.0]))
    with pytest.raises(OutOfRangeError, match=f"fitted on CNNs of pytorch on GPUs.*{words}.*Measure a CNN"):
        fitted.scope(case)


def test_a_measured_proxy_is_answered_by_its_own_times(first_gpu):
    table = proxy_table("32_64_64")
    case = Case("32_64_64", 32, table, find_gpu("Tesla K80"), Mode(precision="fp32"), np.array([64.0]))
    [measured] = first_gpu.query("cnn == '32_64_64' and gpu == 'Tesla K80' and batch_size == 64")[
        "iteration_time_ms"
    ]
    assert np.sum(list(_fit(first_gpu).parts(case).values())) == pytest.approx(
        measured, rel=0.2
    )  # the linear layer counts, too


def test_json_holds_the_proxies_and_every_law(first_gpu):
    fitted = _fit(first_gpu)
    read = ProxyTimes.from_json(json.loads(json.dumps(fitted.to_json())))
    assert (read.general_, read.laws_) == (fitted.general_, fitted.laws_)
