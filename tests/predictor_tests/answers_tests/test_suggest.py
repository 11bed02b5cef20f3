"""What to measure first: operators that weigh much in the time and are known least."""

from collections.abc import Sequence

import pytest

from predictor.answers.suggest import Suggestion, suggest
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError

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


def test_an_operator_of_two_cnns_is_suggested_once() -> None:
    found = suggested("Tesla T4", ("resnet18", 224), ("resnet34", 224), modes=(Mode(),))
    keys = [(each.operator, each.batch_size) for each in found]
    assert len(keys) == len(set(keys))
    assert sum(each.share for each in found if each.batch_size == 32) == pytest.approx(1)


def test_a_mode_that_the_gpu_lacks_is_refused_with_those_it_has() -> None:
    with pytest.raises(OutOfRangeError, match=r"Tesla T4 has no tf32\. It has: fp32"):
        suggested("Tesla T4", ("resnet18", 224))
