"""What to measure first: operators that weigh much in the time and are known least."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictor.answers.suggest import Suggestion, suggest
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.models.layer_times.law import layer_sums
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import DeviceMode
from predictor.models.served import Model

TF32 = (Mode(precision="tf32"),)


def suggested(gpu: str, *cnns: tuple[str, int], modes: Sequence[Mode] = TF32) -> list[Suggestion]:
    return suggest([zoo_cnn(*cnn) for cnn in cnns], find_gpu(gpu), modes, (32, 128))


def test_what_was_measured_already_is_not_suggested() -> None:
    assert suggested("NVIDIA H200", ("resnet50", 224)) == []


def test_on_a_gpu_that_nobody_measured_everything_rests_on_specifications() -> None:
    found = suggested("Tesla T4", ("resnet18", 224), modes=(Mode(),))
    assert {each.rests_on for each in found} == {"specifications"}


def test_the_most_telling_come_first_and_their_shares_add_up_to_one() -> None:
    found = suggested("NVIDIA H200", ("resnext101_32x8d", 128), ("convnext_tiny", 64))
    narrows = [each.narrows for each in found]
    assert narrows == sorted(narrows, reverse=True)
    assert sum(narrows) == pytest.approx(1)
    assert found[0].operator.type == "conv2d"


@pytest.mark.parametrize(
    "cnn", [("resnext101_32x8d", 128), ("convnext_tiny", 64), ("efficientnet_v2_s", 224)]
)
def test_measuring_the_first_narrows_the_interval_most(cnn: tuple[str, int]) -> None:
    """As if they had been measured to take what is predicted."""
    table, mode = zoo_cnn(*cnn), DeviceMode("NVIDIA H200", precision="tf32")
    found = suggest([table], find_gpu(mode.gpu), TF32, (64,))
    model = Model.load().layers.measured(mode)
    assert model is not None

    def half_width(some: Sequence[Suggestion]) -> float:
        sums = layer_sums(_with(model.library, some), table, np.array([64.0]), TF32[0].fp32_products)
        return float(model.law.half_widths(sums)[1][0])

    place = len(found) // 2
    first, middle, last = (half_width(found[i : i + 5]) for i in (0, place, len(found) - 5))
    assert first < middle <= last <= half_width([])
    assert half_width(found) == pytest.approx(model.law.spread)


def test_matrix_products_are_suggested_as_an_answer_counts_them() -> None:
    """In fp32 by default, in TF32 where `float32_matmul_precision` is high: the other was measured or not."""
    for mode in (*TF32, replace(TF32[0], float32_matmul_precision="high")):
        found = suggested("NVIDIA H200", ("convnext_tiny", 64), modes=(mode,))
        products = [each.operator for each in found if each.operator.type == "linear"]
        assert products
        assert {each.fp32_product for each in products} == {mode.fp32_products}


def _with(library: Any, some: Sequence[Suggestion]) -> OperatorLibrary:
    """The library with these operators at all of its batch sizes."""
    new = [each.operator for each in some if each.operator not in library.operators]
    log_ms = np.log(library.times(new, library.batch_sizes).gpu_ms)
    known = library.log_ms.copy()
    for operator in {each.operator for each in some}.intersection(library.operators):
        # measured, but at too few batch sizes
        again = np.log(library.times([operator], library.batch_sizes).gpu_ms[0])
        row = library.operators.index(operator)
        known[row] = np.where(np.isnan(known[row]), again, known[row])
    return replace(
        library,
        operators=(*library.operators, *new),
        log_ms=np.vstack([known, log_ms]),
        host_ms=np.append(library.host_ms, np.full(len(new), np.nan)),
        expected=np.vstack([library.expected, np.full(log_ms.shape, np.nan)]),
    )


def test_an_operator_of_two_cnns_is_suggested_once() -> None:
    found = suggested("Tesla T4", ("resnet18", 224), ("resnet34", 224), modes=(Mode(),))
    keys = [(each.operator, each.batch_size) for each in found]
    assert len(keys) == len(set(keys))
    assert sum(each.share for each in found if each.batch_size == 32) == pytest.approx(1)


def test_a_mode_that_the_gpu_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(OutOfRangeError, match=r"Tesla T4 has no tf32\. It has: fp32"):
        suggested("Tesla T4", ("resnet18", 224))
