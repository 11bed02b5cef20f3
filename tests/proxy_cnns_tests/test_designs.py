"""The designed libraries: fixed, of no CNN's own shapes but the named ones', and near to every CNN's layers."""

from collections import defaultdict
from dataclasses import replace
from math import dist, isinf, log2
from statistics import quantiles

import pytest

from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator, alone, operators_of
from proxy_cnns.designs import common_operators, designed_operators
from proxy_cnns.presets import PRESETS

COMMON_CNNS, LIBRARY_CNNS = (PRESETS[name]["cnns"] for name in ("quick", "library"))
_WITHOUT_TIME = {"flatten", "pad", "other"}
_RESIZED = {"upsample_nearest", "upsample_bicubic", "upsample_antialias"}
_MEASURED_APART = {"instance_norm", "lstm", "gru", "rnn", *_RESIZED}  # in tables of their own
_BY_TRAFFIC = {"prelu", "upsample_trilinear"}  # in none yet


@pytest.fixture(scope="module")
def zoo_operators() -> set[Operator]:
    return {operator for name in zoo_names() for operator in operators_of(zoo_cnn(name))}


def _kind(operator: Operator) -> tuple[object, ...]:
    """What must be equal for a neighbour: cuDNN and PyTorch run another kernel where it differs."""
    window = (operator.kernel_height, operator.kernel_width, operator.stride_height)
    if operator.type == "conv2d":
        return (operator.type, *window, _grouping(operator), operator.in_height == 1)
    if operator.type in ("max_pool", "avg_pool"):
        is_global = operator.kernel_height == operator.in_height and (operator.in_height or 0) > 2
        return (operator.type, "global") if is_global else (operator.type, *window)
    return operator.type, operator.kind, operator.passes


def _grouping(operator: Operator) -> str:
    if (operator.groups or 1) == 1:
        return "dense"
    return "depthwise" if operator.groups == operator.in_channels else "grouped"


def _place(operator: Operator) -> tuple[float, ...]:
    """Shape as a point in logs to base 2; other than convolutions by their numbers and, half as much, channels."""
    channels, side = operator.in_channels or 1, operator.in_height or 1
    width = channels // (operator.groups or 1) if _grouping(operator) == "grouped" else 1
    if operator.type in ("conv2d", "conv_transpose2d", "linear"):
        return log2(channels), log2(side), log2(operator.out_channels or 1), log2(width)
    numbers = max(channels * side * side, 4096)  # below, only the launch counts
    return (
        log2(numbers),
        log2(channels) / 2,
        log2(operator.n_tensors),
        log2(max(operator.parameters, 10**6)) / 2,
    )


def _distances(library: tuple[Operator, ...], wanted: set[Operator]) -> list[tuple[float, str, str]]:
    """Distance of each wanted operator to its nearest neighbour in the library, with both names."""
    of_kind = defaultdict(list)
    for operator in library:
        of_kind[_kind(operator)].append((_place(operator), operator.name))
    distances = []
    for operator in wanted:
        neighbours = of_kind[_kind(operator)] or [((float("inf"),) * 4, "none")]
        point = _place(operator)
        distance, name = min((dist(point, at), name) for at, name in neighbours)
        distances.append((distance, operator.name, name))
    return sorted(distances)


NO_NEIGHBOUR = {
    "conv2d_3x32x32_24x31x31_k2x2_s1x1_p0x0",
    "max_pool_256x3x3_256x1x1_k3x3_s3x3_p0x0",
    "max_pool_512x4x4_512x1x1_k4x4_s4x4_p0x0",
}
"""Of Airbench94 and ResNet-9: windows that no other CNN of the zoo has."""


@pytest.mark.parametrize(
    ("part", "cnns", "median", "most", "worst"),
    [("quick", COMMON_CNNS, 0.6, 1.35, 3.8), ("library", LIBRARY_CNNS, 0.4, 0.9, 2.2)],
)
def test_every_operator_of_the_zoo_has_a_near_neighbour(part, cnns, median, most, worst, zoo_operators):
    distances = _distances(designed_operators(quick=part == "quick") + common_operators(cnns), zoo_operators)
    for distance, operator, neighbour in distances[-5:]:
        print(f"{distance:.2f} octaves: {operator} -> {neighbour}")
    assert {name.split("_d1")[0] for distance, name, _ in distances if isinf(distance)} == NO_NEIGHBOUR
    alone = [distance for distance, _, _ in distances if not isinf(distance)]
    assert quantiles(alone, n=20)[9] < median
    assert quantiles(alone, n=20)[18] < most
    assert alone[-1] < worst


def test_no_designed_shape_is_a_real_cnns(zoo_operators):
    def shapes(operators):
        """What changes a time: an optimizer and a loss whole, of others no weights and flags."""
        for operator in operators:
            bare = {"parameters": 0, "input_gradient": True, "in_place": False, "wide_input": False}
            yield replace(alone(operator), **bare) if operator.type not in ("optimizer", "loss") else operator

    assert not {*shapes(zoo_operators)} & {*shapes(designed_operators(quick=False))}


def test_real_shapes_in_the_libraries_are_those_of_the_named_cnns():
    named = {operator for name in LIBRARY_CNNS for operator in operators_of(zoo_cnn(name))}
    assert set(common_operators(LIBRARY_CNNS)) <= named
    assert set(COMMON_CNNS) < set(LIBRARY_CNNS)


def test_every_type_that_costs_time_is_there():
    types = {operator.type for operator in designed_operators(quick=True)}
    assert types == set(OPERATOR_TYPES) - _WITHOUT_TIME - _MEASURED_APART - _BY_TRAFFIC


def test_groups_divide_channels_and_pools_that_widen_have_the_window_of_an_adaptive_pool():
    widening = 0
    for operator in designed_operators(quick=False):
        if operator.type == "conv2d":
            assert operator.in_channels % operator.groups == operator.out_channels % operator.groups == 0
        if operator.type == "avg_pool" and operator.out_height > operator.in_height:
            widening += 1
            assert operator.kernel_height == -(-operator.in_height // operator.out_height) == 1
            assert operator.stride_height == operator.in_height // operator.out_height == 0
    assert widening >= 4
