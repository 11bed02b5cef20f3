"""The law: fitting and serving share one arithmetic, and the fit finds what is there."""

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime

from predictor.catalogue.devices import all_gpus, find_gpu, precisions_of
from predictor.cnns.layer_table import DEPTH_COLUMNS
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.measurements.features import feature_table
from predictor.models.join import join_host
from predictor.models.roofline.features import FAMILY_OF
from predictor.models.roofline.fit import Measured, Objective, _loss
from predictor.models.roofline.law import RooflineLaw
from predictor.models.roofline.rows import pass_rows_of, rows_of
from predictor.models.roofline.terms import GAIN, LAW, Contexts, KernelContext
from predictor.operators.kernels import KERNEL_CLASSES, kernels_of

CNNS = ("lenet5", "resnet18_cifar", "squeezenet1_1", "mobilenet_v2")
GPUS = ("Tesla K80", "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB")
BATCHES = (16, 64, 256)
HOST_MS = (1.0, 0.01)
# Every kernel twice as slow as its roofline, depthwise ones eight times and by the law that is expected of them.
TRUTH = {
    **{(name, "one", ""): np.log(8 if FAMILY_OF[name] == "depthwise" else 2) for name in KERNEL_CLASSES},
    ("depthwise", "issue_bound", ""): 0.5,
}
EVERY_KIND = (
    KernelContext(find_gpu("Tesla K80"), "fp32", "pytorch"),
    KernelContext(find_gpu("Tesla T4"), "amp_fp16", "pytorch", "channels_last"),
    KernelContext(find_gpu("A100-SXM4-40GB"), "tf32", "tensorflow", xla=True),
    KernelContext(find_gpu("H200"), "amp_bf16", "pytorch"),
    KernelContext(find_gpu("GTX 1080 Ti"), "fp16", "tensorflow"),
)


def law_of(terms) -> RooflineLaw:
    host = {"pytorch": tuple(np.log(HOST_MS)), "tensorflow": tuple(np.log(HOST_MS))}
    return RooflineLaw(terms, host, {": slow": np.log(2.0)}, tuple(np.log([0.1, 0.2, 3.0, 0.5])))


def true_ms(cnn: str, gpu: str, batch: int) -> float:
    context = KernelContext(find_gpu(gpu), "fp32", "pytorch")
    return float(law_of(TRUTH).times(kernels_of(zoo_cnn(cnn)), [context], [batch]).iteration_ms[0, 0])


def measured_of(frame: pd.DataFrame, times=None) -> Measured:
    n = len(frame)
    times = frame["iteration_time_ms"].to_numpy(float) if times is None else times
    return Measured(rows_of(frame), times, np.full(n, np.nan), np.ones(n), frame["cnn"].tolist())


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rows = [
        {"gpu": gpu, "cnn": cnn, "image_size": zoo_cnn(cnn).image_size, "batch_size": batch}
        | {"precision": "fp32", "framework": "pytorch", "iteration_time_ms": true_ms(cnn, gpu, batch)}
        for cnn, gpu, batch in product(CNNS, GPUS, BATCHES)
    ]
    return feature_table(pd.DataFrame(rows))


def test_times_are_finite_and_grow_with_the_batch_for_the_whole_zoo():
    question = [KernelContext(find_gpu("H200"), "amp_bf16", "pytorch")], [1, 8, 64, 512, 4096]
    times = {cnn: law_of({}).times(kernels_of(zoo_cnn(cnn)), *question).device_ms[0] for cnn in zoo_names()}
    wrong = [cnn for cnn, ms in times.items() if not (np.isfinite(ms).all() and (np.diff(ms) > 0).all())]
    assert wrong == []


def test_many_gpus_and_modes_at_once_are_each_as_alone():
    kernels, batches = kernels_of(zoo_cnn("mobilenet_v2")), [1, 7, 64]
    law = law_of({**TRUTH, ("conv", "one", "since:volta"): 0.3, ("element", "one", "amp:yes"): -0.2})
    together = law.times(kernels, EVERY_KIND, batches).iteration_ms
    alone = [law.times(kernels, [context], batches).iteration_ms[0] for context in EVERY_KIND]
    assert np.allclose(together, alone, rtol=1e-13)


@pytest.mark.parametrize("cnn", [*CNNS, "convnext_tiny", "densenet121", "dcgan_generator"])
def test_serving_and_fitting_give_the_same_times_for_the_same_coefficients(cnn):
    table, sizes = zoo_cnn(cnn), (1, 7, 64, 4096)
    names = ("precision", "framework", "memory_format", "xla")
    rows = [
        {"gpu": context.gpu.name, "cnn": cnn, "image_size": table.image_size, "batch_size": size}
        | {name: getattr(context, name) for name in names}
        | {"source": "made up", "optimizer": "sgd" if context.framework == "tensorflow" else "momentum"}
        for context, size in product(EVERY_KIND, sizes)
    ]
    frame = feature_table(pd.DataFrame(rows))
    objective = Objective(measured_of(frame, np.ones(len(frame))))
    expected = objective.blocks.expected
    x = expected + 0.2 * np.random.default_rng(0).standard_normal(expected.size)
    x[objective.blocks["machine"]] = 0.0
    times = objective.fitted_law(x)
    law = RooflineLaw(times.terms, times.host, times.host_offset, times.feed)
    served = law.times(kernels_of(table), EVERY_KIND, sizes)
    assert np.allclose(objective.predicted(x).times, served.iteration_ms.ravel(), rtol=1e-12)


def test_a_known_slow_host_takes_its_time_and_a_captured_graph_none():
    kernels, context = kernels_of(zoo_cnn("resnet18")), EVERY_KIND[:1]
    law = law_of(TRUTH)
    usual, slow = (law.times(kernels, context, [1], machine).host_ms[0, 0] for machine in (None, ": slow"))
    assert slow == pytest.approx(2 * usual)
    captured = law.times(kernels, context, [1], captured=True)
    assert captured.host_ms[0, 0] == 0.0
    assert captured.iteration_ms[0, 0] == pytest.approx(captured.device_ms[0, 0], rel=1e-12)


def test_a_copy_of_the_images_adds_to_the_iteration_by_its_megabytes():
    kernels, law = kernels_of(zoo_cnn("resnet18")), law_of(TRUTH)
    without, copied, waited = (
        law.times(kernels, EVERY_KIND[:1], [64], **fed).iteration_ms[0, 0]
        for fed in ({}, {"copies": True}, {"waits": True})
    )
    megabytes = 64 * 3 * 224 * 224 * 4e-6
    assert copied - without == pytest.approx(0.1 + 0.2 * megabytes)
    assert waited - without == pytest.approx(3.0 + 0.5 * megabytes)


def test_a_law_read_from_its_json_is_the_same(frame):
    objective = Objective(measured_of(frame))
    fitted = objective.fitted_law(objective.solve())
    law = RooflineLaw(fitted.terms, fitted.host, fitted.host_offset, fitted.feed, ("tensorflow",))
    again = RooflineLaw.from_json(law.to_json())
    question = kernels_of(zoo_cnn("resnet18")), EVERY_KIND, [3, 50]
    assert (law.times(*question).iteration_ms == again.times(*question).iteration_ms).all()
    assert (again.fed_frameworks, again.hosts()) == (law.fed_frameworks, law.hosts())


def test_the_fit_finds_the_truth_again(frame):
    objective = Objective(measured_of(frame))
    predicted = objective.times(objective.solve())
    error = np.abs(predicted / frame["iteration_time_ms"].to_numpy() - 1.0)
    assert error.mean() < 0.02


def with_every_kind_of_row(frame: pd.DataFrame) -> Objective:
    """Rows that copy, wait and have GPU times, and single layers."""
    n = len(frame)
    table = frame.assign(copies_input=np.arange(n) % 3 == 0, waits_for_loader=np.arange(n) % 5 == 0)
    times = frame["iteration_time_ms"].to_numpy(float) * np.random.default_rng(0).uniform(0.7, 1.4, n)
    gpu_times = np.where(np.arange(n) % 2, 0.8 * times, np.nan)
    iterations = Measured(rows_of(table), times, gpu_times, np.ones(n), table["cnn"].tolist())
    layer = {"kind": "operator", "type": "conv2d", "cnn": "c", "image_size": 8, "batch_size": 8, "gpu": "T4"}
    sides = ("channels", "height", "width")
    layer |= dict.fromkeys((f"{end}_{side}" for end in ("in", "out") for side in sides), 8)
    layer |= dict.fromkeys(("kernel_height", "kernel_width", "stride_height", "stride_width"), 1)
    layer |= {"padding_height": 0, "padding_width": 0, "dilation": 1, "groups": 1, "parameters": 64}
    layer |= dict.fromkeys(DEPTH_COLUMNS, np.nan)
    layers = pd.DataFrame([layer | {"pass": "forward", "precision": "fp32", "source": "justus"}] * 2)
    single = Measured(pass_rows_of(layers), np.array([0.03, 0.05]), np.full(2, np.nan), np.ones(2), [])
    return Objective(iterations, single)


def test_the_gradient_is_the_slope_of_the_loss(frame):
    fifth = frame.iloc[::5].reset_index(drop=True)
    amp = fifth.assign(gpu="Tesla T4", precision="amp_fp16")
    objective = with_every_kind_of_row(pd.concat([fifth, amp], ignore_index=True))
    blocks = objective.blocks  # at x no residual is at a bend
    x = blocks.expected + 0.1 * np.random.default_rng(1).standard_normal(blocks.expected.size)

    def loss(y):
        return _loss(objective._of_law(y, objective.iterations.weight, objective.passes.weight), y, blocks)

    assert np.allclose(loss(x)[1], approx_fprime(x, lambda y: loss(y)[0], 1e-6), rtol=1e-3, atol=1e-4)


def test_no_faster_precision_takes_longer_whatever_the_coefficients():
    rng, slower = np.random.default_rng(0), []
    terms = {
        (kernels, feature, f"{kind}:{label}" if kind else ""): rng.normal(0, 1)
        for table in (LAW, GAIN)
        for kind, label in (("", ""), ("tensor", "yes"), ("amp", "yes"), ("amp_framework", "pytorch"))
        for kernels, features in table.get(kind, {}).items()
        for feature in features
    }
    law, kernels = law_of(terms), kernels_of(zoo_cnn("mobilenet_v2"))
    for gpu in map(find_gpu, ("GTX 1080 Ti", "T4", "RTX 3060", "A100-SXM4-40GB", "L4")):
        contexts = {name: KernelContext(gpu, name, "pytorch") for name in precisions_of(gpu)}
        ms = dict(zip(contexts, law.times(kernels, [*contexts.values()], [1, 64]).device_ms, strict=True))
        pairs = ("tf32", "fp32"), ("amp_fp16", "fp32"), ("amp_bf16", "fp32"), ("fp16", "amp_fp16")
        slower += [
            (gpu.name, fast)
            for fast, slow in pairs
            if fast in ms and (ms[fast] > ms[slow] * (1 + 1e-12)).any()
        ]
    assert slower == []


def test_group_norms_and_what_reads_their_maps_run_in_float32_under_autocast():
    table = zoo_cnn("resnet18")
    norms = (replace(row, type="group_norm") if row.type == "batch_norm" else row for row in table)
    kernels = kernels_of(replace(table, layers=tuple(norms)))
    contexts = [KernelContext(find_gpu("T4"), mode, "pytorch") for mode in ("fp32", "amp_fp16", "fp16")]
    class_ms = law_of(TRUTH).times(kernels, contexts, [256]).class_ms
    for name, in_amp in (("layer_norm", 1.24), ("activation", 1.0)):
        fp32, amp, half = class_ms[name][:, 0]
        assert (amp / fp32, half / fp32) == pytest.approx((in_amp, 0.5), rel=0.02)


def test_no_unmeasured_gpu_multiplies_matrices_faster_than_its_peak(model):
    law, kernels, batch = model.roofline.law_, kernels_of(zoo_cnn("convnext_tiny")), 256
    is_product = kernels.kernel_class == KERNEL_CLASSES.index("matmul")
    flops = batch * float((kernels.count * kernels["flops"])[is_product].sum())
    contexts = [
        KernelContext(gpu, precision, framework)
        for gpu in all_gpus()
        for precision, framework in product(precisions_of(gpu), ("pytorch", "tensorflow"))
    ]
    unmeasured = [context for context in contexts if not law.knows(Contexts([context]))]
    products_ms = law.times(kernels, unmeasured, [batch]).class_ms["matmul"][:, 0]
    peaks = Contexts(unmeasured).rates.product_flop_per_ms
    assert (products_ms * peaks >= flops * (1 - 1e-9)).all()
    by_gpu = {
        of.gpu.name: ms for of, ms in zip(unmeasured, products_ms, strict=True) if of.precision == "fp32"
    }
    assert by_gpu["GeForce GTX 1080"] > by_gpu["NVIDIA TITAN Xp"]


def test_rows_that_are_gone_are_as_good_as_absent(frame):
    on_k80 = (frame["gpu"] == "Tesla K80").to_numpy()
    spoiled = measured_of(frame, np.where(on_k80, 30.0, 1.0) * frame["iteration_time_ms"].to_numpy(float))
    heavy = Objective(spoiled)
    absent = Objective(measured_of(frame[~on_k80].reset_index(drop=True)))
    x = heavy.solve(on_k80)
    assert np.allclose(heavy.times(x)[~on_k80], absent.times(absent.solve()), rtol=0.01)
    heavy.solve()
    assert heavy.solve(on_k80).tolist() == x.tolist()  # a refit does not know an earlier one


def test_a_host_that_is_twice_as_slow_is_found(frame):
    counts = np.array([k.count.sum() for k in rows_of(frame).kernels])
    device = np.array(list(map(true_ms, frame["cnn"], frame["gpu"], frame["batch_size"])))
    host = 0.3 * counts * np.where(frame["gpu"] == "Tesla T4", 2.0, 1.0)
    objective = Objective(measured_of(frame, join_host(device, host)))
    offset = objective.fitted_law(objective.solve()).host_offset
    assert offset[": Tesla T4"] - offset[": Tesla K80"] == pytest.approx(np.log(2.0), abs=0.15)
