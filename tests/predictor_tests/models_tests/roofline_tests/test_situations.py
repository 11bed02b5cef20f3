"""The terms by which coefficients differ between situations."""

import pytest

from predictor.catalogue.devices import find_gpu
from predictor.models.roofline.features import FAMILY_OF, FEATURES_OF_FAMILY
from predictor.models.roofline.fit import Ridge
from predictor.models.roofline.terms import KernelContext, expected_of, tags_of, terms_of, terms_under_tag
from predictor.operators.kernels import KERNEL_CLASSES

T4, K80, A100 = find_gpu("T4"), find_gpu("K80"), find_gpu("A100-SXM4-40GB")
EVERYTHING = KernelContext(K80, "fp32", "pytorch", "channels_last", xla=True, origin="justus")


@pytest.mark.parametrize(
    ("situation", "tag"),
    [
        (KernelContext(T4, "fp32", "pytorch"), "gpu:TU104, 40 SMs, 1.59 GHz"),
        (KernelContext(T4, "fp32", "pytorch"), "generation:turing"),
        (KernelContext(T4, "fp32", "pytorch"), "framework:pytorch"),
        (KernelContext(K80, "fp32", "pytorch"), "kepler:yes"),
        (KernelContext(T4, "amp_fp16", "pytorch"), "tensor:yes"),
        (KernelContext(A100, "tf32", "pytorch"), "tensor:yes"),
        (KernelContext(T4, "amp_fp16", "pytorch", "channels_last"), "channels_last:yes"),
        (KernelContext(T4, "fp32", "tensorflow", xla=True), "xla:yes"),
        (KernelContext(T4, "fp32", "", origin="justus"), "origin:justus"),
    ],
)
def test_a_situation_has_the_tag_of_what_it_is(situation, tag):
    assert tag in tags_of(situation)


def test_a_plain_situation_has_no_tag_but_gpu_generation_and_framework():
    assert tags_of(KernelContext(T4, "fp32", "pytorch")) == [
        "gpu:TU104, 40 SMs, 1.59 GHz",
        "generation:turing",
        "framework:pytorch",
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("V100-SXM2-16GB", "V100-SXM2-32GB"),
        ("V100-PCIE-16GB", "V100-PCIE-32GB"),
        ("A100-SXM4-40GB", "A100-SXM4-80GB"),
        ("A100-PCIE-40GB", "A100 80GB PCIe"),
        ("H100 80GB HBM3", "H200"),
        ("Quadro RTX 6000", "Quadro RTX 8000"),
    ],
)
def test_a_chip_has_one_tag_whatever_memory_is_beside_it(one, other):
    first, second = (tags_of(KernelContext(find_gpu(name), "fp32", "pytorch")) for name in (one, other))
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [("V100-SXM2-16GB", "V100-PCIE-16GB"), ("T4", "RTX 2080 Max-Q"), ("H100 80GB HBM3", "H100 PCIe")],
)
def test_chips_of_other_clocks_or_sms_have_tags_of_their_own(one, other):
    first, second = (tags_of(KernelContext(find_gpu(name), "fp32", "pytorch")) for name in (one, other))
    assert first[0] != second[0]


def test_half_precision_without_tensor_cores_is_no_tensor_situation():
    assert "tensor:yes" not in tags_of(KernelContext(find_gpu("GTX 1080 Ti"), "amp_fp16", "pytorch"))


def test_single_layers_have_no_framework():
    assert not [tag for tag in tags_of(KernelContext(T4, "fp32", "", origin="justus")) if "framework" in tag]


@pytest.mark.parametrize("name", KERNEL_CLASSES)
def test_every_feature_has_its_general_law_first_and_no_term_twice(name):
    for feature in FEATURES_OF_FAMILY[FAMILY_OF[name]]:
        terms = terms_of(name, feature, tags_of(EVERYTHING))
        assert terms[0] == (name, feature, "")
        assert len(set(terms)) == len(terms)


@pytest.mark.parametrize("name", KERNEL_CLASSES)
def test_the_level_may_differ_under_every_tag_that_its_family_knows(name):
    found = {tag for tag in tags_of(EVERYTHING) if [*terms_under_tag(name, "one", tag)]}
    assert found == set(tags_of(EVERYTHING))


def test_a_law_that_no_tag_may_change_has_one_term():
    assert terms_of("depthwise_forward", "side", tags_of(EVERYTHING)) == [("depthwise_forward", "side", "")]


def test_levels_and_laws_are_pulled_to_zero_by_strengths_of_their_own():
    ridge = Ridge(level=1.0, law=2.0, gpu=3.0)
    terms = (
        ("matmul", "one", ""),
        ("matmul", "narrow", ""),
        ("matmul", "one", "gpu:TU104, 40 SMs, 1.59 GHz"),
    )
    assert [ridge.of(term) for term in terms] == [1.0, 2.0, 3.0]


def test_every_tag_has_a_strength():
    assert all(Ridge().of(("matmul", "one", tag)) > 0 for tag in [*tags_of(EVERYTHING), "tensor:yes"])


def test_only_the_law_of_depthwise_convolutions_is_expected_before_anything_is_measured():
    terms = {(name, each, "") for name in KERNEL_CLASSES for each in FEATURES_OF_FAMILY[FAMILY_OF[name]]}
    expected = {term[:2]: expected_of(term) for term in terms if expected_of(term)}
    depthwise = [name for name in KERNEL_CLASSES if name.startswith("depthwise")]
    assert expected == {(name, "issue_bound"): 0.5 for name in depthwise}


def test_what_differs_by_tag_is_expected_to_differ_by_nothing():
    assert expected_of(("depthwise_forward", "issue_bound", "gpu:any")) == 0.0
