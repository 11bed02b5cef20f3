"""Features of kernels: the same names for fitting and serving, and finite wherever a question may lead."""

from itertools import product

import numpy as np
import pytest

from predictor.catalogue.devices import LAUNCH_MS, Rates, find_gpu, precisions_of, rates_of
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.models.roofline.features import FAMILIES, FAMILY_OF, FEATURES_OF_FAMILY, FamilyKernels
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of

BATCH_SIZES = np.array([[1.0, 2.0, 32.0, 500.0, 4096.0]])
RATES = [
    rates_of(find_gpu(name), precision)
    for name in ("Tesla K80", "Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H200")
    for precision in precisions_of(find_gpu(name))
]
CNNS_WITH_EVERY_CLASS = ("mobilenet_v2", "convnext_tiny", "densenet121", "vgg11", "inception_v3")


def kernels_on(
    kernels: Kernels, name: str, rates: Rates, batch_sizes: np.ndarray = BATCH_SIZES
) -> FamilyKernels:
    chosen = kernels.kernel_class == KERNEL_CLASSES.index(name)
    columns = {key: values[chosen][:, None] for key, values in kernels.columns.items()}
    return FamilyKernels(FAMILY_OF[name], columns, batch_sizes, rates)


def classes_in(kernels: Kernels) -> list[str]:
    return [KERNEL_CLASSES[number] for number in np.unique(kernels.kernel_class)]


def test_every_class_has_the_features_that_its_family_names_in_their_order():
    assert set(FAMILY_OF) == set(KERNEL_CLASSES)
    assert set(FAMILY_OF.values()) == set(FAMILIES) == set(FEATURES_OF_FAMILY)
    classes = set()
    for cnn in CNNS_WITH_EVERY_CLASS:
        kernels = kernels_of(zoo_cnn(cnn))
        for name in classes_in(kernels):
            features = kernels_on(kernels, name, RATES[0]).features()
            assert tuple(features) == FEATURES_OF_FAMILY[FAMILY_OF[name]], name
            classes.add(name)
    assert classes >= set(KERNEL_CLASSES) - {"pad", "other"}


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_features_and_rooflines_are_finite_for_the_whole_zoo_in_every_precision():
    infinite = set()
    for cnn in zoo_names():
        kernels = kernels_of(zoo_cnn(cnn))
        for name, rates in product(classes_in(kernels), RATES):
            of_class = kernels_on(kernels, name, rates)
            values = of_class.features() | {"base": of_class.base_ms}
            infinite |= {(cnn, name, key) for key in values if not np.isfinite(values[key]).all()}
    assert infinite == set()


@pytest.mark.parametrize("cnn", ["resnet50", "mobilenet_v2", "convnext_tiny"])
def test_no_kernel_is_faster_than_its_launch_its_arithmetic_or_its_traffic_nor_at_a_larger_batch(cnn):
    kernels = kernels_of(zoo_cnn(cnn))
    for name in classes_in(kernels):
        of_class, rates = kernels_on(kernels, name, RATES[0]), RATES[0]
        columns, base = of_class.columns, of_class.base_ms
        traffic = columns["elements"] * BATCH_SIZES + columns["elements_fixed"]
        memory = 4 * traffic / rates.bytes_per_ms
        compute = columns["flops"] * BATCH_SIZES / rates.flop_per_ms
        if FAMILY_OF[name] in ("conv", "product"):
            assert (base >= compute + LAUNCH_MS * 0.999).all(), name
        assert (base >= memory + LAUNCH_MS * 0.999).all(), name
        assert (np.diff(base, axis=1) >= 0).all(), name


def test_the_tensor_gain_is_zero_where_no_tensor_core_runs():
    kernels = kernels_of(zoo_cnn("resnet18"))
    for name in ("conv_forward", "matmul"):
        rates = [rates_of(find_gpu("T4"), precision) for precision in ("fp32", "amp_fp16")]
        without, gain = (kernels_on(kernels, name, rate).features()["tensor_gain"] for rate in rates)
        assert not without.any()
        assert 0 < gain.min() < 1 < gain.max()
    # Tensor cores of the fp32 peak gain over it in TF32.
    rates = [rates_of(find_gpu("RTX 3090"), precision) for precision in ("tf32", "fp32")]
    assert [kernels_on(kernels, "conv_forward", rate).is_gaining() for rate in rates] == [True, False]


def test_half_the_bytes_gain_a_factor_of_two_where_memory_is_what_limits():
    rates = [rates_of(find_gpu("T4"), precision) for precision in ("amp_fp16", "fp32")]
    norms = [
        kernels_on(kernels_of(zoo_cnn("resnet50")), "batch_norm", rate, np.array([[4096.0]]))
        for rate in rates
    ]
    assert np.allclose(norms[0].gain(), np.log(2), rtol=0.01)
    assert not norms[1].gain().any()
