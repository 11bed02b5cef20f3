"""The library: measured times come back, near ones are interpolated, nothing is free."""

from dataclasses import replace

import numpy as np
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.models.layer_times.times import BEYOND, FARAWAY, MEASURED, NEAR, UNKNOWN, DeviceMode
from predictor.models.served import Model
from predictor.operators.operators import Operator, operators_of

SIZES = (8, 32, 128)
MODE = DeviceMode("NVIDIA H200", "pytorch", "tf32")
RESNET = tuple(operators_of(zoo_cnn("resnet50")))


@pytest.fixture(scope="module")
def library(made_up_gpu):
    return made_up_gpu.library_of(MODE, made_up_gpu.operator_rows(RESNET, SIZES))


def _times(library, operator, *sizes):
    times = library.times([operator], np.array(sizes, dtype=float))
    return times.gpu_ms[0], times.sureness[0]


def test_a_measured_time_comes_back_and_that_of_the_host(library, made_up_gpu):
    host_ms = library.times(list(RESNET), np.array([32.0])).host_ms
    np.testing.assert_allclose(host_ms, made_up_gpu.host_ms_of_operator)
    for operator in RESNET:
        ms, sure = _times(library, operator, *SIZES)
        np.testing.assert_allclose(ms, made_up_gpu.operator_ms(operator, SIZES), rtol=1e-12)
        assert (sure == MEASURED).all()


WINDOW = next(o for o in RESNET if o.in_channels == 256 and o.kernel_height == 3)
NEAR_SHAPE = replace(WINDOW, out_channels=320)
FAR_SHAPE = replace(RESNET[0], in_channels=4, out_channels=4096, kernel_height=11, kernel_width=11)


@pytest.mark.parametrize(
    ("operator", "sizes", "error", "support"),
    [
        (RESNET[0], (64,), 0.03, MEASURED),
        (RESNET[1], (2, 1024), 0.05, BEYOND),
        (NEAR_SHAPE, SIZES, 0.1, NEAR),
        (FAR_SHAPE, (32,), 10.0, FARAWAY),
    ],
    ids=["between batch sizes", "beyond them", "near shape", "far shape"],
)
def test_what_was_not_measured_is_interpolated(library, made_up_gpu, operator, sizes, error, support):
    ms, sure = _times(library, operator, *sizes)
    np.testing.assert_allclose(ms, made_up_gpu.operator_ms(operator, sizes), rtol=error)
    assert (sure == support).all()


def test_a_bias_that_was_not_measured_adds_its_own_time(library):
    biased = replace(WINDOW, parameters=WINDOW.parameters + WINDOW.out_channels)
    (bare_ms, _), (ms, sure) = _times(library, WINDOW, 32), _times(library, biased, 32)
    numbers = 32 * WINDOW.out_channels * WINDOW.out_height * WINDOW.out_width
    assert ms - bare_ms == pytest.approx(0.012 + 5.2e-9 * numbers)
    assert sure == NEAR


def test_a_dense_layer_of_few_channels_takes_no_longer_than_one_of_many():
    """Adapters of rank 8 on maps of a ConvNeXt took three times as long as layers of 96 channels."""
    sides = {f"{end}_{axis}": 56 for end in ("in", "out") for axis in ("height", "width")}
    rank_8, wide = (
        Operator("linear", in_channels=n, out_channels=384, parameters=384 * n, **sides) for n in (8, 96)
    )
    for gpu in ("NVIDIA H100 80GB HBM3", "NVIDIA H200"):
        library = Model.load().layers.measured(DeviceMode(gpu, "pytorch", "amp_bf16")).library
        narrow_ms, wide_ms = library.times([rank_8, wide], np.array([64.0])).gpu_ms[:, 0]
        assert narrow_ms <= wide_ms * (1 + 1e-9)


def depthwise(channels, side, window):
    lengths = {"in": side, "out": side, "padding": window // 2, "stride": 1, "kernel": window}
    sizes = {f"{end}_{axis}": n for end, n in lengths.items() for axis in ("height", "width")}
    parameters = channels * window**2
    return Operator("conv2d", in_channels=channels, out_channels=channels, dilation=1, groups=channels,
                    parameters=parameters, **sizes)  # fmt: skip


@pytest.mark.parametrize("gpu", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_wide_windows_take_as_long_as_their_operations(gpu):
    """PyTorch computes them at 2 TFLOP/s; trees that knew windows up to 11 answered a tenth of 31 x 31."""
    library = Model.load().layers.measured(DeviceMode(gpu, "pytorch", "tf32")).library
    shapes = np.array([(160, 40, 15), (128, 56, 21), (256, 32, 27)])
    ms = library.times([depthwise(*shape) for shape in shapes.tolist()], np.array([32.0])).gpu_ms[:, 0]
    tflop_per_s = 6 * 32 * shapes[:, 0] * (shapes[:, 1] * shapes[:, 2]) ** 2 / ms / 1e9
    assert ((tflop_per_s > 1.4) & (tflop_per_s < 3.2)).all()


@pytest.mark.parametrize(("precision", "least_ms"), [("tf32", 0.25), ("amp_bf16", 0.3)])
def test_a_softmax_over_the_classes_of_each_pixel_reads_them_all(precision, least_ms):
    """That of four maps of 520 pixels and 21 classes took an H100 0.42 ms in TF32, and was answered 0.18."""
    library = Model.load().layers.measured(DeviceMode("NVIDIA H100 80GB HBM3", "pytorch", precision)).library
    sizes = {f"{end}_{axis}": 384 for end in ("in", "out") for axis in ("height", "width")}
    softmax = Operator("activation", "softmax", in_channels=32, out_channels=32, **sizes)
    assert library.times([softmax], np.array([4.0])).gpu_ms[0, 0] > least_ms


def test_a_type_that_was_never_measured_is_marked_and_never_free(library):
    unknown = Operator("layer_norm", None, 96, 56, 56, 96, 56, 56, parameters=192)
    ms, sure = _times(library, unknown, *SIZES)
    assert (sure == UNKNOWN).all()
    assert (ms > 0.01).all()


def test_the_optimizer_holds_for_every_batch_size(made_up_gpu):
    step = Operator("optimizer", parameters=10**6, n_tensors=20)
    rows = made_up_gpu.operator_rows([step, RESNET[0]], [1])
    assert (_times(made_up_gpu.library_of(MODE, rows), step, 1, 512)[1] == MEASURED).all()


def test_what_is_left_out_is_interpolated(library):
    usual = next(o for o in RESNET if o.type == "conv2d" and o.in_channels == 128)
    lesser = library.without([usual])
    assert len(lesser) == len(library) - 1
    assert _times(lesser, usual, 32)[1][0] in (NEAR, FARAWAY)


def test_operators_measured_at_different_batch_sizes_live_together(made_up_gpu):
    rows = made_up_gpu.operator_rows([RESNET[1]], [8, 64]) + made_up_gpu.operator_rows([RESNET[2]], [16])
    library = made_up_gpu.library_of(MODE, rows)
    assert list(library.batch_sizes) == [8, 16, 64]
    assert (_times(library, RESNET[1], 16)[1] == MEASURED).all()
    assert (_times(library, RESNET[2], 8)[1] == BEYOND).all()


def test_repeated_measurements_of_an_operator_are_averaged(made_up_gpu):
    rows = made_up_gpu.operator_rows([RESNET[1]], [8])
    twice = [*rows, {**rows[0], "gpu_time_ms": 4 * rows[0]["gpu_time_ms"]}]
    ms, _ = _times(made_up_gpu.library_of(MODE, twice), RESNET[1], 8)
    assert ms[0] == pytest.approx(2 * rows[0]["gpu_time_ms"])


def test_a_view_takes_no_time_and_does_not_blur_its_neighbours(made_up_gpu):
    view = Operator("permute", None, 96, 56, 56, 96, 56, 56)
    shuffle = replace(view, groups=2)
    rows = made_up_gpu.operator_rows([view, shuffle], SIZES)
    rows = [row | {"gpu_time_ms": 1e-4} if row["cnn"] == view.name else row for row in rows]  # an empty graph
    library = made_up_gpu.library_of(MODE, rows)
    assert library.operators == (shuffle,)
    assert (_times(library, view, 16)[0] == 0.0).all()
    assert (_times(library, replace(shuffle, in_height=55), 16)[0] > 1e-3).all()


def test_a_library_asked_before_answers_as_one_asked_for_the_first_time(made_up_gpu):
    rows = made_up_gpu.operator_rows(RESNET, SIZES)
    operators, batches = tuple(operators_of(zoo_cnn("resnet18", 200))), np.array([8.0, 20.0, 500.0])
    used, fresh = (made_up_gpu.library_of(MODE, rows) for _ in range(2))
    used.times(RESNET[::2], batches[:1])
    used.times(operators[::3], batches[1:])
    for name in ("gpu_ms", "host_ms", "sureness"):
        ours, theirs = (getattr(library.times(operators, batches), name) for library in (used, fresh))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
