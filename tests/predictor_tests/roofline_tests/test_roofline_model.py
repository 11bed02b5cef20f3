"""The roofline model: features, fit and serving agree, and the fit finds what is there."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import check_grad

from predictor.gpus import find_gpu
from predictor.kernels import KERNEL_CLASSES, kernels_of
from predictor.roofline.coefficients import iteration_parts
from predictor.roofline.design import Design
from predictor.roofline.features import FAMILY_OF, FEATURES_OF_FAMILY, kernel_features
from predictor.roofline.fitting import Fitted, HostLayout, KernelTimes, Problem
from predictor.roofline.rates import rates_of
from predictor.roofline.situations import Situation, tags_of, terms_of
from predictor.zoo import zoo_cnn, zoo_names

CNNS = ("lenet5", "resnet18_cifar", "squeezenet1_1", "mobilenet_v2")
GPUS = ("Tesla K80", "Tesla T4", "Tesla V100-SXM2-16GB")
BATCHES = (16, 64, 256)


def rows() -> tuple[list, list[Situation], list[int]]:
    grid = list(product(CNNS, GPUS, BATCHES))
    kernels = {name: kernels_of(zoo_cnn(name)) for name in CNNS}
    return (
        [kernels[cnn] for cnn, _, _ in grid],
        [Situation(find_gpu(gpu), "fp32", "pytorch") for _, gpu, _ in grid],
        [batch for _, _, batch in grid],
    )


def problem_of(times: np.ndarray, design: Design, kernel_times=()) -> Problem:
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
    return Problem.of(design, layout, times, np.ones(n), kernel_times)


@pytest.fixture(scope="module")
def design() -> Design:
    return Design.of(*rows())


@pytest.fixture(scope="module")
def true_times(design) -> np.ndarray:
    """Every kernel twice as slow as its roofline, depthwise ones eight times, on a host of 0.01 ms per kernel."""
    slow = np.where([KERNEL_CLASSES[c].startswith("depthwise") for c in design.class_of], 8.0, 2.0)
    device = design.sums() @ (slow * np.exp(design.log_base))
    host = 0.01 * np.array([k.count.sum() for k in rows()[0]])
    return np.cbrt(device**3 + host**3)


@pytest.mark.parametrize("name", KERNEL_CLASSES)
def test_every_class_has_the_features_that_its_family_names(name):
    kernels = kernels_of(zoo_cnn("mobilenet_v2"))
    columns = {key: values[:, None] for key, values in kernels.columns.items()}
    found = kernel_features(name, columns, np.array([[8.0]]), rates_of(find_gpu("T4"), "fp32"))
    assert tuple(found) == FEATURES_OF_FAMILY[FAMILY_OF[name]]


@pytest.mark.parametrize("cnn", zoo_names())
def test_times_are_finite_and_grow_with_the_batch_for_the_whole_zoo(cnn):
    situation = Situation(find_gpu("H200"), "amp_bf16", "pytorch")
    device = iteration_parts(
        {}, kernels_of(zoo_cnn(cnn)), situation, np.array([1, 8, 64, 512, 4096])
    ).device_ms
    assert np.isfinite(device).all()
    assert (np.diff(device) > 0).all()


def test_serving_and_fitting_give_the_same_times_for_the_same_coefficients(design):
    rng = np.random.default_rng(0)
    terms = {term: 0.2 * rng.standard_normal() for term in design.entries}
    exponent = design.matrix(list(terms)) @ np.array(list(terms.values()))
    fitted = design.sums() @ np.exp(exponent + design.log_base)
    kernels, situations, batches = rows()
    served = [
        iteration_parts(terms, k, s, np.array([b])).device_ms[0]
        for k, s, b in zip(kernels, situations, batches, strict=True)
    ]
    assert np.allclose(fitted, served, rtol=1e-12)


def test_kernel_classes_add_up_to_the_device_time():
    parts = iteration_parts({}, kernels_of(zoo_cnn("resnet50")), rows()[1][0], np.array([8, 16]))
    assert np.allclose(sum(parts.class_ms.values()), parts.device_ms)


def test_only_kepler_has_the_kepler_tag():
    assert "kepler:yes" in tags_of(Situation(find_gpu("Tesla K80"), "fp32", "pytorch"))
    assert "kepler:yes" not in tags_of(Situation(find_gpu("T4"), "fp32", "pytorch"))


def test_a_level_that_a_family_shares_is_one_term_for_all_its_classes():
    shared = {terms_of(name, "one", ["xla:yes"])[-1] for name in ("conv_forward", "conv_backward_weight")}
    assert shared == {("family:conv", "one", "xla:yes")}


def test_the_gradient_is_that_of_the_loss(design, true_times):
    groups = KernelTimes(design, design.sums()[:5], np.log(true_times[:5]), np.full(5, 0.3), np.arange(5))
    problem = problem_of(true_times, design, [groups])
    rng = np.random.default_rng(1)
    x = 0.1 * rng.standard_normal(len(problem.terms) + 2 + len(GPUS) + 2)
    error = check_grad(lambda v: problem.loss(v)[0], lambda v: problem.loss(v)[1], x)
    assert error < 1e-3 * np.linalg.norm(problem.loss(x)[1])


def test_a_fit_finds_the_law_that_made_the_times(design, true_times):
    problem = problem_of(true_times, design)
    error = np.abs(problem.times(problem.solve()) / true_times - 1)
    assert error.mean() < 0.03


def test_rows_without_weight_are_forgotten(design, true_times):
    on_k80 = np.array([s.gpu.name == "Tesla K80" for s in rows()[1]])
    spoiled = problem_of(np.where(on_k80, 30.0, 1.0) * true_times, design)
    clean = problem_of(true_times, design)
    forgot = spoiled.without(on_k80, [])
    refit = forgot.times(forgot.solve(spoiled.solve(), 300))[~on_k80]
    never_saw = clean.without(on_k80, [])
    assert np.allclose(refit, never_saw.times(never_saw.solve())[~on_k80], rtol=0.05)


def test_a_fitted_model_knows_every_term_it_was_laid_out_with(design, true_times):
    fitted = problem_of(true_times, design).solve(max_iterations=3)
    assert isinstance(fitted, Fitted)
    assert set(fitted.terms) == set(design.entries)
