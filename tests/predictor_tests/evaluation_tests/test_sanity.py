"""Tests of the facts that every model must respect."""

import pytest

from predictor.evaluation.sanity import epoch_time_steps, slower_on_newer_gpu


def _sensible(cnn: str, gpu: str, batch_size: int) -> float:
    return (100.0 + 800.0 / batch_size) / (8.0 if "V100" in gpu else 1.0)


def test_a_faster_newer_gpu_breaks_no_fact():
    assert slower_on_newer_gpu(_sensible, ["resnet50", "vgg16"]) == ()


def test_a_cnn_that_does_not_train_faster_on_the_newer_gpu_is_listed():
    slower = slower_on_newer_gpu(lambda cnn, gpu, b: 1.0 if b == 64 else _sensible(cnn, gpu, b), ["vgg16"])
    assert [(each.cnn, each.batch_size) for each in slower] == [("vgg16", 64)]


def test_a_time_that_is_no_number_is_not_faster():
    assert len(slower_on_newer_gpu(lambda *_: float("nan"), ["vgg16"], batch_sizes=(32,))) == 1


def test_a_falling_epoch_time_is_counted_step_by_step():
    check = epoch_time_steps(_sensible, ["a", "b"], ["Tesla T4"], batch_sizes=(16, 32, 64))
    assert (check.n_steps, check.rising, check.share_flat_or_falling) == (4, (), 1.0)


def test_a_step_that_rises_by_more_than_five_percent_is_listed_with_its_growth():
    check = epoch_time_steps(
        lambda _cnn, _gpu, b: {16: 10.0, 32: 10.4, 64: 12.48}[b], ["a"], ["x"], (16, 32, 64)
    )
    assert [step.batch_size for step in check.rising] == [32]
    assert check.rising[0].growth == pytest.approx(0.2)
    assert check.share_flat_or_falling == 0.5
