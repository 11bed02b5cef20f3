"""The terms of the law: under which conditions a coefficient applies, and how strongly it is held."""

from itertools import pairwise

import pytest
from case_tables import each_row

from predictor.catalogue.devices import all_gpus, find_gpu, generations
from predictor.models.roofline.features import FAMILIES, FAMILY_OF, FEATURES_OF_FAMILY
from predictor.models.roofline.terms import (
    BY_GPU,
    GAIN,
    GAIN_BY_GPU,
    LAW,
    KernelContext,
    conditions_of,
    expected_of,
    ridge_of,
    terms_under,
)
from predictor.operators.kernels import KERNEL_CLASSES

T4, K80, A100 = find_gpu("T4"), find_gpu("K80"), find_gpu("A100-SXM4-40GB")
GTX = find_gpu("GTX 1080 Ti")


@each_row
def test_a_context_meets_the_conditions_of_what_it_is_and_none_of_what_it_is_not(
    gpu, mode, conditions, kinds
):
    met = conditions_of(KernelContext(find_gpu(gpu), *mode))
    assert set(map(tuple, conditions)) <= set(met)
    assert set(kinds).isdisjoint(dict(met))


def test_a_generation_meets_every_step_that_an_older_one_meets():
    conditions = {gpu.generation: conditions_of(KernelContext(gpu, "fp32", "")) for gpu in all_gpus()}
    steps = {name: {label for kind, label in conditions[name] if kind == "since"} for name in conditions}
    in_order = [steps[name] for name in generations()]
    assert all(older <= newer for older, newer in pairwise(in_order))
    assert "blackwell" in steps["blackwell"]


@each_row
def test_a_chip_is_one_whatever_memory_is_beside_it_and_another_of_other_clocks(gpu, twin, is_one_chip):
    first, second = (conditions_of(KernelContext(find_gpu(name), "fp32", "pytorch")) for name in (gpu, twin))
    assert (first == second) == (dict(first)["gpu"] == dict(second)["gpu"]) == is_one_chip


def test_every_term_names_kernels_and_features_that_exist_and_no_family_is_named_as_a_class():
    assert not set(FAMILIES) & set(KERNEL_CLASSES)
    wrong = [
        (kind, kernels, feature)
        for table in (LAW, GAIN, BY_GPU, GAIN_BY_GPU)
        for kind, by_kernels in table.items()
        for kernels, features in by_kernels.items()
        for feature in features
        if kernels not in (*KERNEL_CLASSES, *FAMILIES)
        or feature not in FEATURES_OF_FAMILY[FAMILY_OF.get(kernels, kernels)]
    ]
    assert wrong == []


@pytest.mark.parametrize("name", KERNEL_CLASSES)
def test_every_class_has_a_level_of_its_own_and_every_feature_once(name):
    terms = [*terms_under(LAW, name, "")]
    assert (name, "one") in terms
    features = set(FEATURES_OF_FAMILY[FAMILY_OF[name]]) - {"tensor_gain"}
    assert sorted(feature for _, feature in terms) == sorted(features)


def test_only_the_law_of_depthwise_convolutions_is_expected_before_anything_is_measured():
    terms = [(kernels, feature, "") for kernels, features in LAW[""].items() for feature in features]
    assert [term for term in terms if expected_of(term)] == [("depthwise", "issue_bound", "")]
    assert expected_of(("depthwise", "issue_bound", "")) == 0.5


def test_levels_of_classes_and_of_far_generations_are_held_least():
    assert ridge_of(("matmul", "one", "")) == ridge_of(("conv", "one", "generation:kepler")) < 0.1
    assert ridge_of(("conv", "is_3x3", "")) == ridge_of(("conv", "one", "since:volta")) > 0.1


def test_only_gpus_whose_lanes_need_every_issue_slot_have_a_level_for_it():
    names = ("GTX 1080 Ti", "V100 SXM2 16GB", "T4", "A100 SXM4 40GB", "RTX 3090", "L4", "H100 SXM")
    conditions = {name: conditions_of(KernelContext(find_gpu(name), "fp32", "pytorch")) for name in names}
    with_level = [name for name in names if ("lanes", "as issued") in conditions[name]]
    assert with_level == ["RTX 3090", "L4", "H100 SXM"]
