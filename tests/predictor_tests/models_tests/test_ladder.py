"""The ladder: measured here, carried over from another card or mode, interpolated; the better base is chosen."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from case_tables import each_row

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.measurements.hosts import HostMeasurement, HostTime
from predictor.models.base import Case
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.fit import held_out_error, with_bases, with_volumes
from predictor.models.layer_times.law import SummingLaw, layer_sums
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.served import forecast_by_layers
from predictor.models.layer_times.times import CARRIED, MEASURED, UNKNOWN, DeviceMode, cards_of_the_chip
from predictor.models.ratios import ratios_of
from predictor.models.served import Model
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import device_rates, moved_bytes

H200 = DeviceMode("NVIDIA H200", "pytorch", "tf32")
H100 = H200._replace(gpu="NVIDIA H100 80GB HBM3")
PCIE = H200._replace(gpu="NVIDIA H100 PCIe")
SIZES = (8, 32, 128)
RESNET = tuple(operators_of(zoo_cnn("resnet50")))
BATCH = np.array([128.0])
LARGE_ACTIVATION = next(o for o in RESNET if o.type == "activation" and o.in_channels == 256)
SMALL_ACTIVATION = next(o for o in RESNET if o.type == "activation" and o.in_height == 7)


@pytest.fixture(scope="module")
def h200(made_up_gpu):
    return made_up_gpu.library_of(H200, made_up_gpu.operator_rows(RESNET, SIZES))


def _library(mode, operators, ms_of):
    """A library whose times are `ms_of(operator)` x the batch size."""
    times = np.array([(size, ms_of(o) * size, np.nan) for o in operators for size in SIZES])
    return OperatorLibrary.of_times(mode, [o for o in operators for _ in SIZES], times, {"a desk"})


@pytest.mark.parametrize(
    ("card", "operator", "batch_size", "factor", "ratio"),
    [
        (H100, LARGE_ACTIVATION, 128.0, 1, 4800 / 3350),  # bound by memory: the ratio of bandwidths
        (H100, LARGE_ACTIVATION, 128.0, 100, 1.0),  # by arithmetic, on a card of the same clock
        (PCIE, LARGE_ACTIVATION, 128.0, 100, (132 * 1.98) / (114 * 1.755)),  # and of fewer and slower SMs
        (H100, SMALL_ACTIVATION, 8.0, 1, 1.0),  # its data stay in the cache
    ],
)
def test_a_kernel_takes_the_ratio_of_what_bounds_it(card, operator, batch_size, factor, ratio):
    """`factor`: time over that of moving the bytes at the rate which large kernels reach on an H200."""
    element_bytes = device_rates(H200.gpu, "tf32").element_bytes
    moved = moved_bytes([operator], np.array([batch_size]), element_bytes)[0, 0]
    h200_ms = factor * moved / (0.92 * 4800e6)
    source = _library(H200, [operator], lambda _: h200_ms / batch_size)
    carried = CarriedOver(source, card).times([operator], np.array([batch_size]))
    assert carried.gpu_ms[0, 0] / h200_ms == pytest.approx(ratio, rel=0.02)


def test_what_the_other_card_knows_is_carried_over_and_what_it_does_not_know_stays_unknown(h200):
    sides = {f"{end}_{side}": 8 for end in ("in", "out") for side in ("channels", "height", "width")}
    times = CarriedOver(h200, H100).times([RESNET[0], Operator("roll", **sides)], BATCH)
    assert times.sureness[:, 0].tolist() == [CARRIED, UNKNOWN]


def test_an_operator_measured_here_keeps_its_time_whatever_the_base_says(h200, made_up_gpu):
    own = made_up_gpu.library_of(H100, made_up_gpu.operator_rows(RESNET[:5], SIZES))
    on_base = replace(own, base=CarriedOver(h200, H100)).times(RESNET[:5], np.array(SIZES, dtype=float))
    np.testing.assert_allclose(on_base.gpu_ms, own.times(RESNET[:5], np.array(SIZES, dtype=float)).gpu_ms)
    assert (on_base.sureness == MEASURED).all()


def test_measurements_here_correct_what_is_carried_over(h200):
    """All operators take 1.5 x their time on the other card here; a third of them was measured."""
    slower = {o: 1.5 * CarriedOver(h200, H100).times([o], BATCH).gpu_ms[0, 0] for o in RESNET}
    own = _library(H100, RESNET[::3], lambda o: slower[o] / 128.0)
    operators = [o for o in RESNET if o.type in ("conv2d", "batch_norm", "activation")]
    corrected = replace(own, base=CarriedOver(h200, H100)).times(operators, BATCH).gpu_ms[:, 0]
    np.testing.assert_allclose(corrected, [slower[o] for o in operators], rtol=0.25)
    assert np.median(np.abs(corrected / [slower[o] for o in operators] - 1)) < 0.02


def test_a_like_mode_is_the_base_where_it_predicts_held_out_operators_better(made_up_gpu):
    bf16, fp16 = (H200._replace(precision=name) for name in ("amp_bf16", "amp_fp16"))
    alike = made_up_gpu.library_of(bf16, made_up_gpu.operator_rows(RESNET, SIZES))
    own = made_up_gpu.library_of(fp16, made_up_gpu.operator_rows(RESNET[::2], SIZES))
    rng = np.random.default_rng(0)
    erratic = _library(bf16, RESNET, lambda _: float(np.exp(rng.normal(0.0, 2.0))))
    for base, chosen in ((alike, True), (erratic, False)):
        based = with_bases({fp16: own}, {bf16: base}.get, lambda library: library)[fp16]
        assert (based.base is not None) == chosen
    assert held_out_error(own) < held_out_error(replace(own, base=CarriedOver(erratic, fp16)))


def test_own_measurements_correct_those_that_are_known_of_the_mode(h200, made_up_gpu):
    own = made_up_gpu.library_of(H200, made_up_gpu.operator_rows(RESNET[:20], SIZES))
    based = with_bases({H200: own}, {H200: h200}.get, lambda library: library)[H200]
    assert based.base.source is h200
    with pytest.raises(SchemaError, match="Fit the two tables together"):
        LayerModel(based, SummingLaw()).packed()


def test_a_library_is_no_base_of_a_richer_one(h200, made_up_gpu):
    own = made_up_gpu.library_of(H100, made_up_gpu.operator_rows(RESNET[:20], SIZES))
    assert CarriedOver(h200, H100).n_measured == h200.n_measured == len(RESNET) * len(SIZES)
    based = with_bases({H200: h200, H100: own}, lambda _: None, lambda library: library)
    assert based[H200].base is None
    assert based[H100].base.source.mode == H200


def _volume(channels, **more):
    return Operator(
        "conv3d", None, channels, 448, 56, channels, 448, 56, 9, 3, 1, 1, 1, 1, 1, 1, 27 * channels**2, in_depth=8,
        out_depth=8, kernel_depth=3, stride_depth=1, padding_depth=1, **more,
    )  # fmt: skip


@pytest.fixture
def h200_with_volumes():
    """An H200 that measured a narrow convolution over volumes, and an H100 that measured a wide one, too."""
    narrow, wide = _volume(8), _volume(64)
    mine = _library(H200, [SMALL_ACTIVATION, narrow], lambda _: 0.1)
    more = _library(H100, [LARGE_ACTIVATION, narrow, wide], lambda _: 0.05)
    return with_volumes({H200: mine, H100: more})[H200]


def test_convolutions_over_volumes_that_another_card_measured_are_carried_over(h200_with_volumes):
    narrow, wide = _volume(8), _volume(64)
    assert set(h200_with_volumes.operators) == {SMALL_ACTIVATION, narrow, wide}
    times = h200_with_volumes.times([narrow, wide], BATCH)
    assert times.shape[:, 0].tolist() == [MEASURED, CARRIED]
    own, carried = times.gpu_ms[:, 0]
    assert own == pytest.approx(0.1 * 128)
    assert 0.69 < carried / (0.05 * 128) < 1  # between the ratio of bandwidths and that of arithmetic


def test_an_instance_norm_takes_what_it_did_in_a_unet_whatever_card_measured_it():
    """Forward and backward pass of two cubes of 96 pixels and 32 channels took 1.77 ms on an H100 in TF32."""
    sides = {f"{end}_{side}": n for end in ("in", "out") for side, n in (("height", 96 * 96), ("width", 96))}
    norm = Operator("instance_norm", in_channels=32, out_channels=32, parameters=64, **sides)
    for card, least_ms in ((H100, 1.6), (H200, 1.4)):
        library = Model.load().layers.measured(card).library
        assert least_ms < library.times([norm], np.array([2.0])).gpu_ms[0, 0] < 1.9


def test_an_lstm_takes_what_it_did_on_an_h100_whatever_card_and_layout_is_asked():
    """Two directions of 256 units over 64 positions, 64 texts: 1.99 ms in TF32, before 2.09 by its launches."""
    sides = {
        f"{end}_{side}": n
        for end in ("in", "out")
        for side, n in (("channels", 512), ("height", 64), ("width", 1))
    }
    reads = Operator("lstm", groups=2, parameters=1_576_960, **sides)
    for card, memory_format in product((H100, H200), ("nchw", "channels_last")):
        library = Model.load().layers.measured(card._replace(memory_format=memory_format)).library
        assert 1.7 < library.times([reads], np.array([64.0])).gpu_ms[0, 0] < 2.0


def test_what_is_carried_over_is_not_counted_as_measured_and_read_as_written(h200_with_volumes, tmp_path):
    assert h200_with_volumes.n_measured == 2 * len(SIZES)
    assert h200_with_volumes.origin.startswith("2 operators measured on it")
    content = LayerModel(h200_with_volumes, SummingLaw()).packed()
    again = LayerModel.unpacked(content, tmp_path / "h200.npz", lambda _: None).library
    assert again.carried == {_volume(64)}


def test_cards_of_a_chip_are_those_of_the_catalogue():
    names = {mode.gpu for mode in cards_of_the_chip(H200)}
    assert {"NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"} <= names
    assert all(find_gpu(name).chip == "GH100" for name in names)
    assert "NVIDIA H200" not in names


def test_a_library_on_a_base_is_read_as_it_was_written(h200, made_up_gpu, tmp_path):
    own = made_up_gpu.library_of(H100, made_up_gpu.operator_rows(RESNET[::4], SIZES))
    own = replace(own, base=CarriedOver(h200, H100))
    written = LayerModels().with_more([LayerModel(h200, SummingLaw()), LayerModel(own, SummingLaw())])
    digests = written.save(tmp_path / "model.json")
    loaded = LayerModels.beside(tmp_path / "model.json", digests).measured(H100).library
    np.testing.assert_allclose(loaded.times(RESNET, BATCH).gpu_ms, own.times(RESNET, BATCH).gpu_ms, rtol=3e-4)


def test_a_card_whose_chip_was_measured_is_answered_from_its_operators(h200):
    law = SummingLaw(1.2, spread=0.04)
    model = replace(Model.load(), layers=LayerModels().with_more([LayerModel(h200, law)]))
    mode = Mode(precision="tf32", float32_matmul_precision="high")
    cards = [find_gpu(name) for name in ("H200", "H100 SXM", "H100 PCIe", "A100-SXM4-40GB")]
    answers = model.forecasts(zoo_cnn("resnet50"), [(card, mode) for card in cards], [32])
    assert [answer.method for answer in answers] == [*["layer-times"] * 3, "roofline"]
    assert [set(answer.rung_ms) for answer in answers[:2]] == [{"measured"}, {"carried over"}]
    reasons = [[why.text for why in answer.extrapolates[0] if why.kind == "gpu"] for answer in answers[:3]]
    assert reasons[0] == []
    assert reasons[1] == ["operators carried over from NVIDIA H200, a card of the same chip"]
    assert reasons[2][0].endswith("with other multiprocessors or clocks")
    widths = [float(np.log(answer.gpu_high_ms / answer.gpu_low_ms)[0]) for answer in answers[:3]]
    assert widths == sorted(widths)


def test_the_classes_of_all_rungs_add_up_to_the_class(h200, made_up_gpu):
    own = made_up_gpu.library_of(H100, made_up_gpu.operator_rows(RESNET[::3], SIZES))
    own = replace(own, base=CarriedOver(h200, H100))
    law, sums = SummingLaw(1.3), layer_sums(own, zoo_cnn("resnet50"), BATCH)
    by_rung, by_class = law.rung_ms(sums), law.class_ms(sums)
    assert set(by_rung) == {"measured", "carried over"}
    for name, ms in by_class.items():
        assert sum(of_class.get(name, 0.0) for of_class in by_rung.values()) == pytest.approx(ms)


def test_autotuned_convolutions_are_corrected_and_everything_else_is_as_without(h200, made_up_gpu):
    convolutions = [o for o in RESNET if o.type == "conv2d"][::2]
    rows = made_up_gpu.operator_rows(convolutions, SIZES)
    tuned = made_up_gpu.library_of(H200._replace(autotune=True), rows)
    tuned = replace(tuned, log_ms=tuned.log_ms + np.log(0.8))
    chosen = with_bases({tuned.mode: tuned}, {H200: h200}.get, lambda library: library)[tuned.mode]
    plain, corrected = (library.times(RESNET, BATCH).gpu_ms[:, 0] for library in (h200, chosen))
    ratio = {o: b / a for o, a, b in zip(RESNET, plain, corrected, strict=True) if a > 0}
    assert np.median([r for o, r in ratio.items() if o.type == "conv2d"]) == pytest.approx(0.8, abs=0.02)
    assert ratio[LARGE_ACTIVATION] == pytest.approx(1.0, abs=1e-9)


def test_autotuning_leaves_the_host_time_as_it_is():
    """Measured on an H200 at 64, by the host of its first tables: 84.0 ms, 79.9 autotuned, hosts 78.8 and 74.5."""
    question = zoo_cnn("densenet201"), find_gpu("H200")
    modes = [Mode(precision="tf32", autotune=tune) for tune in (False, True)]
    plain, tuned = (Model.load().forecast(*question, mode, [64]) for mode in modes)
    assert tuned.host_time_ms == pytest.approx(plain.host_time_ms)
    assert (tuned.host, tuned.method) == (plain.host, "layer-times")
    assert tuned.gpu_time_ms[0] < plain.gpu_time_ms[0]
    own = Model.load().layers.measured(H200._replace(autotune=True))
    case = Case("densenet201", 224, *question, modes[1], np.array([64.0]))
    by_own_host = forecast_by_layers(own, case, own.sums, own.sums(case))
    assert by_own_host.iteration_time_ms[0] == pytest.approx(79.9, rel=0.1)


@each_row
def test_autotuned_convolutions_that_nobody_measured_take_a_twentieth_less(gpu, mode, method):
    devices = [(find_gpu(gpu), Mode(**mode, autotune=tune)) for tune in (False, True)]
    plain, tuned = Model.load().forecasts(zoo_cnn("resnet50"), devices, [32], method=method)
    of_pools = 0.015 if "capture" in mode else 0.01  # compiled ones take what their bytes take, tuned or not
    assert tuned.gpu_time_ms == pytest.approx(0.95 * plain.gpu_time_ms, rel=of_pools)
    assert tuned.host_time_ms == pytest.approx(plain.host_time_ms)
    kinds, plain_kinds = ([why.kind for why in answer.extrapolates[0]] for answer in (tuned, plain))
    assert kinds == [*plain_kinds, "autotune"]
    assert tuned.low_ms < plain.low_ms
    assert tuned.high_ms == pytest.approx(plain.high_ms, rel=0.01)  # what is timed first is not slower


@pytest.mark.parametrize("gpu", ["H200", "A100-SXM4-40GB"], ids=["by layers", "by specifications"])
def test_a_measured_host_scales_the_host_time_and_leaves_the_gpu_time(gpu):
    question = (zoo_cnn("resnet50"), find_gpu(gpu), Mode(precision="tf32"), [8])
    times = [HostTime("pytorch", "gpu", "tf32", "nchw", "resnet18", 32, time_ms) for time_ms in (6.0, 12.0)]
    hosts = [HostMeasurement("a slow desk", (time,)) for time in times]
    fast, slower = (Model.load().forecast(*question, host=host) for host in hosts)
    assert slower.host_time_ms / fast.host_time_ms == pytest.approx(2.0 ** ratios_of("host")["file_trust"])
    assert slower.gpu_time_ms == pytest.approx(fast.gpu_time_ms)
    assert slower.host == "a slow desk"
