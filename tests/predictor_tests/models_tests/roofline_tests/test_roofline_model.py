"""The roofline model: features, fit and serving agree, and the fit finds what is there."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.optimize import check_grad

from predictor.catalogue.devices import design_of, find_gpu
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.models.roofline.features import FAMILY_OF
from predictor.models.roofline.fit import Design, Fitted, HostLayout, KernelTimes, RooflineObjective
from predictor.models.roofline.terms import (
    Coefficients,
    KernelContext,
    iteration_parts,
    join_host,
    tags_of,
    terms_of,
)
from predictor.operators.kernels import KERNEL_CLASSES, kernels_of, kernels_of_operator

CNNS = ("lenet5", "resnet18_cifar", "squeezenet1_1", "mobilenet_v2")
GPUS = ("Tesla K80", "Tesla T4", "Tesla V100-SXM2-16GB")
BATCHES = (16, 64, 256)
# Every kernel twice as slow as its roofline, depthwise ones eight times and by the law that is expected of them.
LAW = {
    **{(name, "one", ""): np.log(8 if FAMILY_OF[name] == "depthwise" else 2) for name in KERNEL_CLASSES},
    **{(name, "issue_bound", ""): 0.5 for name in KERNEL_CLASSES if FAMILY_OF[name] == "depthwise"},
}


def rows() -> tuple[list, list[KernelContext], list[int]]:
    grid = list(product(CNNS, GPUS, BATCHES))
    kernels = {name: kernels_of(zoo_cnn(name)) for name in CNNS}
    return (
        [kernels[cnn] for cnn, _, _ in grid],
        [KernelContext(find_gpu(gpu), "fp32", "pytorch") for _, gpu, _ in grid],
        [batch for _, _, batch in grid],
    )


def problem_of(times: np.ndarray, design: Design, kernel_times=()) -> RooflineObjective:
    kernels, situations, batches = rows()
    n = len(kernels)
    hosts, host = np.unique([s.gpu.name for s in situations], return_inverse=True)
    layout = HostLayout(
        ["pytorch"],
        list(hosts),
        np.zeros(n, dtype=int),
        host,
        np.array([k.count.sum() for k in kernels]),
        np.array(batches) * 0.1,
        np.zeros(n),
    )
    return RooflineObjective.of(design, layout, times, np.ones(n), kernel_times)


def slowness(design: Design) -> np.ndarray:
    """Time of every kernel over its roofline time, by `LAW`."""
    return np.exp(design.matrix(list(LAW)) @ np.array(list(LAW.values())))


@pytest.fixture(scope="module")
def design() -> Design:
    return Design.of(*rows())


@pytest.fixture(scope="module")
def true_times(design) -> np.ndarray:
    """Kernels as slow as `LAW` says, on a host of 0.01 ms per kernel."""
    device = design.sums() @ (slowness(design) * np.exp(design.log_base))
    host = 0.01 * np.array([k.count.sum() for k in rows()[0]])
    return np.cbrt(device**3 + host**3)


def parts_of(terms, kernels, situation, batches):
    """Times of one CNN in one situation."""
    return iteration_parts(Coefficients(terms), kernels, [situation], batches)


def test_times_are_finite_and_grow_with_the_batch_for_the_whole_zoo():
    situation, batches = (
        KernelContext(find_gpu("H200"), "amp_bf16", "pytorch"),
        np.array([1, 8, 64, 512, 4096]),
    )
    times = {
        cnn: parts_of({}, kernels_of(zoo_cnn(cnn)), situation, batches).device_ms[0] for cnn in zoo_names()
    }
    wrong = [cnn for cnn, ms in times.items() if not (np.isfinite(ms).all() and (np.diff(ms) > 0).all())]
    assert wrong == []


def test_many_situations_at_once_are_each_as_alone():
    kernels, batches = kernels_of(zoo_cnn("mobilenet_v2")), np.array([1, 7, 64])
    terms = {term: 0.1 for each in EVERY_KIND for term in terms_of("conv_forward", "one", tags_of(each))}
    together = iteration_parts(Coefficients(terms), kernels, EVERY_KIND, batches).device_ms
    alone = [parts_of(terms, kernels, each, batches).device_ms[0] for each in EVERY_KIND]
    assert np.allclose(together, alone, rtol=1e-13)


EVERY_KIND = (
    KernelContext(find_gpu("Tesla K80"), "fp32", "pytorch"),
    KernelContext(find_gpu("Tesla T4"), "amp_fp16", "pytorch", "channels_last"),
    KernelContext(find_gpu("A100-SXM4-40GB"), "tf32", "tensorflow", xla=True),
    KernelContext(find_gpu("H200"), "amp_bf16", "pytorch"),
    KernelContext(find_gpu("GTX 1080 Ti"), "amp_fp16", "tensorflow"),
)


@pytest.mark.parametrize("cnn", [*CNNS, "convnext_tiny", "densenet121", "dcgan_generator"])
def test_serving_and_fitting_give_the_same_times_for_the_same_coefficients(cnn):
    kernels, batches = kernels_of(zoo_cnn(cnn)), np.array([1, 7, 64, 4096])
    design = Design.of(
        [kernels] * 20, [each for each in EVERY_KIND for _ in batches], [*map(int, batches)] * 5
    )
    rng = np.random.default_rng(0)
    terms = {term: 0.2 * rng.standard_normal() for term in design.entries}
    exponent = design.matrix(list(terms)) @ np.array(list(terms.values()))
    fitted = design.sums() @ np.exp(exponent + design.log_base)
    served = [parts_of(terms, kernels, each, batches).device_ms[0] for each in EVERY_KIND]
    assert np.allclose(fitted, np.concatenate(served), rtol=1e-12)


def test_whole_iterations_are_served_as_the_problem_computes_them(design, true_times):
    problem = problem_of(true_times, design)
    fitted = problem.solve(max_iterations=30)
    served = []
    for kernels, situation, batch in zip(*rows(), strict=True):
        device = parts_of(fitted.terms, kernels, situation, np.array([batch])).device_ms[0]
        fixed, per_kernel = np.exp(fitted.host["pytorch"])
        host = (fixed + per_kernel * kernels.count.sum()) * np.exp(fitted.host_offset[situation.gpu.name])
        served.append(join_host(device, np.array([host]))[0])
    assert np.allclose(problem.times(fitted), served, rtol=1e-12)


@pytest.mark.parametrize(("device", "host"), [(100.0, 1.0), (1.0, 100.0)])
def test_an_iteration_takes_as_long_as_the_slower_of_gpu_and_host(device, host):
    assert join_host(np.array([device]), np.array([host]))[0] == pytest.approx(100.0, rel=1e-5)


def test_a_term_that_the_fit_never_saw_counts_nothing():
    kernels, situation = kernels_of(zoo_cnn("lenet5")), EVERY_KIND[0]
    without = parts_of({}, kernels, situation, np.array([8])).device_ms[0]
    elsewhere = {("conv_forward", "one", "gpu:TU104, 40 SMs, 1.59 GHz"): 1.0}
    assert parts_of(elsewhere, kernels, situation, np.array([8])).device_ms[0] == without


def test_kernel_classes_add_up_to_the_device_time():
    parts = parts_of({}, kernels_of(zoo_cnn("resnet50")), rows()[1][0], np.array([8, 16]))
    assert np.allclose(sum(parts.class_ms.values()), parts.device_ms)


def test_only_kepler_has_the_kepler_tag():
    assert "kepler:yes" in tags_of(KernelContext(find_gpu("Tesla K80"), "fp32", "pytorch"))
    assert "kepler:yes" not in tags_of(KernelContext(find_gpu("T4"), "fp32", "pytorch"))


def test_a_level_that_a_family_shares_is_one_term_for_all_its_classes():
    shared = {terms_of(name, "one", ["xla:yes"])[-1] for name in ("conv_forward", "conv_backward_weight")}
    assert shared == {("family:conv", "one", "xla:yes")}


def two_frameworks_of_which_one_is_fed(design: Design, times: np.ndarray, kernel_times) -> RooflineObjective:
    layout = problem_of(times, design).layout
    second = np.arange(len(times)) % 2
    layout = replace(layout, frameworks=["pytorch", "tensorflow"], framework=second, is_fed=second * 1.0)
    return RooflineObjective.of(design, layout, times, 1.0 + second, kernel_times)


def labels_of_every_kind(design: Design, times: np.ndarray) -> dict[str, KernelTimes]:
    """Parts of iterations (of their own rows) and single layers (of a design of their own), off by some factor."""
    n, conv = 5, kernels_of_operator(zoo_cnn("squeezenet1_1").layers[3], "forward")
    alone = KernelContext(find_gpu("Tesla T4"), "fp32", "", origin="justus")
    layers = Design.of([conv] * n, [alone] * n, [1, 2, 4, 8, 16])
    weight, row = np.full(n, 0.3), np.arange(n)
    return {
        "profile": KernelTimes(design, design.sums()[:n], np.log(0.5 * times[:n]), weight, row),
        "operator": KernelTimes(layers, layers.sums(), np.linspace(-4, 3, n), weight, row),
    }


@pytest.mark.parametrize("labels", [(), ("profile",), ("operator",), ("profile", "operator")])
def test_the_gradient_is_that_of_the_loss(design, true_times, labels):
    known = labels_of_every_kind(design, true_times)
    problem = two_frameworks_of_which_one_is_fed(design, true_times, [known[each] for each in labels])
    size = problem.unpack(np.zeros(1000))[3].size  # what is left of 1000 numbers is the feed
    x = 0.1 * np.random.default_rng(1).standard_normal(1000 - size + 2)
    error = check_grad(lambda v: problem.loss(v)[0], lambda v: problem.loss(v)[1], x)
    assert error < 1e-5 * np.linalg.norm(problem.loss(x)[1])


def test_single_layers_tell_about_their_own_instrument(design, true_times):
    layers = labels_of_every_kind(design, true_times)["operator"]
    five_times = np.log(5.0 * (layers.groups @ np.exp(layers.design.log_base)))
    slow = replace(layers, log_ms=five_times, weight=np.full(5, 10.0))
    fitted = problem_of(true_times, design, [slow]).solve()
    exponent = slow.design.matrix(list(fitted.terms)) @ np.array(list(fitted.terms.values()))
    found = np.log(slow.groups @ np.exp(exponent + slow.design.log_base))
    assert np.allclose(found, five_times, atol=0.05)


def test_a_fit_finds_the_law_that_made_the_times(design, true_times):
    problem = problem_of(true_times, design)
    error = np.abs(problem.times(problem.solve()) / true_times - 1)
    assert error.mean() < 0.03


def profile_of(design: Design, prefix: str) -> KernelTimes:
    """A profiler's times of the kernels whose class begins so, slow by the law of `true_times`."""
    of_class = np.array([KERNEL_CLASSES[c].startswith(prefix) for c in design.class_of])
    groups = design.sums().multiply(of_class[None, :]).tocsr()
    ms = groups @ (slowness(design) * np.exp(design.log_base))
    has = np.flatnonzero(ms > 0)
    return KernelTimes(design, groups[has], np.log(ms[has]), np.full(has.size, 0.3), has)


def test_with_a_profile_the_fit_tells_slow_kernels_from_others(design, true_times):
    profiles = [profile_of(design, "depthwise"), profile_of(design, "conv")]
    fitted = problem_of(true_times, design, profiles).solve()
    kernels, t4 = kernels_of(zoo_cnn("mobilenet_v2")), rows()[1][4]
    found, true = (parts_of(terms, kernels, t4, np.array([64])).class_ms for terms in (fitted.terms, LAW))
    off = {name: found[name][0] / true[name][0] for name in ("depthwise_forward", "conv_forward")}
    assert off == pytest.approx({"depthwise_forward": 1.0, "conv_forward": 1.0}, rel=0.15)


def test_a_host_that_is_twice_as_slow_is_found(design, true_times):
    del true_times
    device = design.sums() @ np.exp(design.log_base)
    gpus = [situation.gpu.name for situation in rows()[1]]
    kernels = np.array([k.count.sum() for k in rows()[0]])
    host = 0.1 * kernels * np.where(np.array(gpus) == "Tesla T4", 2.0, 1.0)
    fitted = problem_of(np.cbrt(device**3 + host**3), design).solve()
    offsets = fitted.host_offset
    assert offsets["Tesla T4"] - offsets["Tesla K80"] == pytest.approx(np.log(2.0), abs=0.1)


def on_k80() -> np.ndarray:
    return np.array([situation.gpu.name == "Tesla K80" for situation in rows()[1]])


def test_rows_without_weight_are_forgotten(design, true_times):
    spoiled = problem_of(np.where(on_k80(), 30.0, 1.0) * true_times, design)
    clean = problem_of(true_times, design)
    forgot = spoiled.without(on_k80(), [])
    refit = forgot.times(forgot.solve(spoiled.solve(), 300))
    never_saw = clean.without(on_k80(), [])
    assert np.allclose(refit, never_saw.times(never_saw.solve()), rtol=0.05)


def test_rows_without_weight_are_as_good_as_absent(design, true_times):
    heavy = problem_of(true_times, design).without(on_k80(), [])
    kept = np.flatnonzero(~on_k80())
    kernels, situations, batches = ([column[i] for i in kept] for column in rows())
    full = heavy.layout
    layout = replace(
        full,
        hosts=full.hosts,
        framework=full.framework[kept],
        host=full.host[kept],
        kernels=full.kernels[kept],
        feed_megabytes=full.feed_megabytes[kept],
        is_fed=full.is_fed[kept],
    )
    absent = RooflineObjective.of(
        Design.of(kernels, situations, batches), layout, true_times[kept], np.ones(len(kept))
    )
    assert np.allclose(absent.times(absent.solve()), heavy.times(heavy.solve())[kept], rtol=0.02)


def test_kernel_times_without_weight_are_forgotten(design, true_times):
    wild = labels_of_every_kind(design, 1e4 * true_times)["profile"]
    heavy = problem_of(true_times, design, [wild])
    forgot = heavy.without(np.zeros(len(true_times), dtype=bool), [np.ones(5, dtype=bool)])
    never_saw = problem_of(true_times, design)
    assert np.allclose(forgot.times(forgot.solve()), never_saw.times(never_saw.solve()), rtol=1e-3)


def test_what_only_forgotten_rows_told_starts_from_zero(design, true_times):
    problem = problem_of(true_times, design)
    forgot = problem.without(on_k80(), []).solve(problem.solve(), max_iterations=300)
    assert not any(
        value
        for (_, _, tag), value in forgot.terms.items()
        if tag in (f"gpu:{design_of(find_gpu('K80'))}", "kepler:yes")
    )
    assert forgot.host_offset["Tesla K80"] == 0.0


def test_a_fitted_model_knows_every_term_it_was_laid_out_with(design, true_times):
    fitted = problem_of(true_times, design).solve(max_iterations=3)
    assert isinstance(fitted, Fitted)
    assert set(fitted.terms) == set(design.entries)


def test_a_law_that_no_row_of_weight_tells_is_the_expected_one(design, true_times):
    problem = problem_of(true_times, design)
    nothing = problem.without(np.ones(len(true_times), dtype=bool), [])
    fitted = nothing.solve(problem.solve())
    assert fitted.terms["depthwise_forward", "issue_bound", ""] == pytest.approx(0.5)
    assert fitted.terms["conv_forward", "is_3x3", ""] == pytest.approx(0.0, abs=1e-6)
