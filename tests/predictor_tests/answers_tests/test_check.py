"""Whether a training's speed is normal: the answer's interval decides, and its causes are the answer's own times."""

from dataclasses import replace

import pytest
from case_tables import each_row

from predictor.answers.answer import answer
from predictor.answers.check import Speed, check
from predictor.answers.question import Question

T4 = Question("resnet50", "T4", 64, data_set="imagenet")
AMP = Question("resnet50", "H200", 256, precision="amp_bf16", memory_format="channels_last")


def row_of(question):
    [row] = answer(question).rows()
    return row


def checked(question, **speed):
    return check(question, Speed(**speed))


def first(question, **speed):
    return checked(question, **speed).causes[0]


def test_a_speed_inside_the_interval_is_normal_and_accuses_nothing():
    row = row_of(T4)
    for time_ms in (row.low_ms, row.iteration_time_ms, row.high_ms):
        checkup = checked(T4, iteration_time_ms=time_ms)
        assert (checkup.verdict, checkup.causes) == ("normal", ())
    assert checked(T4, iteration_time_ms=1.01 * row.high_ms).verdict == "slow"
    assert checked(T4, iteration_time_ms=0.99 * row.low_ms).verdict == "fast"


def test_images_per_second_and_the_epoch_mean_the_same_as_the_iteration():
    row = row_of(T4)
    speeds = {
        "iteration_time_ms": 2 * row.iteration_time_ms,
        "images_per_s": row.throughput_samples_per_s / 2,
        "epoch_time_s": 2 * row.epoch_time_s,
    }
    factors = [checked(T4, **{name: value}).factor for name, value in speeds.items()]
    assert factors == pytest.approx([2, 2, 2])


@each_row
def test_a_training_that_runs_in_another_way_than_asked_is_found_by_its_time(ran, cause):
    time_ms = row_of(replace(AMP, **ran)).iteration_time_ms
    checkup = checked(AMP, iteration_time_ms=time_ms, waiting_share=0.0)
    assert cause in [candidate.name for candidate in checkup.causes[:2]]
    [named] = [candidate for candidate in checkup.causes if candidate.name == cause]
    assert named.expected_ms == pytest.approx(time_ms)


def test_a_loop_that_waits_for_its_loader_is_explained_by_what_remains():
    row = row_of(AMP)
    waits = first(AMP, iteration_time_ms=2.5 * row.iteration_time_ms, waiting_share=0.6)
    assert waits.name == "loading"
    little = first(AMP, iteration_time_ms=6 * row.iteration_time_ms, waiting_share=0.2)
    assert little.name != "loading"  # without the waits it is still 4.8 times normal


def test_a_clock_that_the_driver_holds_down_is_a_cause_that_was_seen():
    time_ms = 1.6 * row_of(AMP).iteration_time_ms
    cause = first(AMP, iteration_time_ms=time_ms, waiting_share=0.0, slowed_by=("power",))
    assert (cause.name, "power" in cause.what) == ("gpu", True)


def test_what_no_setting_explains_is_said():
    time_ms = 40 * row_of(AMP).iteration_time_ms
    assert first(AMP, iteration_time_ms=time_ms, waiting_share=0.0).name == "none"


def test_causes_of_a_slow_training_are_slower_and_those_of_a_fast_one_faster():
    normal_ms = row_of(AMP).iteration_time_ms
    for factor in (0.3, 3):
        causes = checked(AMP, iteration_time_ms=factor * normal_ms).causes
        slower = {candidate.expected_ms > normal_ms for candidate in causes if candidate.name != "none"}
        assert slower == {factor > 1}
        assert sum(candidate.probability for candidate in causes) == pytest.approx(1)


def test_mending_saves_the_share_of_the_training_that_its_cause_takes():
    slow_s = 3 * row_of(T4).epoch_time_s
    checkup = check(T4, Speed(epoch_time_s=slow_s), epochs=10)
    usd_per_hour = checkup.causes[0].saved_usd / checkup.causes[0].saved_h
    for cause in checkup.causes:
        assert cause.saved_h <= 10 * slow_s / 3600
        assert cause.saved_usd == pytest.approx(cause.saved_h * usd_per_hour)
    assert check(AMP, Speed(images_per_s=100)).causes[0].saved_h is None  # without samples


def test_a_cause_that_lacks_memory_is_none():
    row = row_of(T4)
    full = replace(T4, batch_sizes=row.largest_batch_size)
    for question, is_cause in ((T4, True), (full, False)):
        causes = checked(question, iteration_time_ms=3 * row_of(question).iteration_time_ms).causes
        assert ("batch" in {cause.name for cause in causes}) == is_cause


def test_slower_links_and_the_batch_of_each_gpu_are_causes_of_a_team():
    team = Question("vgg16", "A100-SXM4-80GB", 256, n_gpus=4)
    names = {cause.name for cause in checked(team, images_per_s=200).causes}
    assert {"link", "batch"} <= names


def test_a_wide_interval_is_too_wide_to_tell_and_says_why():
    question = Question("resnet50", "V100-PCIE-32GB", 2, precision="amp_fp16", framework="tensorflow")
    row = row_of(question)
    assert row.high_ms > 3 * row.low_ms
    checkup = checked(question, iteration_time_ms=row.iteration_time_ms)
    assert (checkup.verdict, checkup.causes) == ("unsure", ())
    assert checkup.sentence.startswith("Too wide to tell: ")
    assert row.extrapolates[0].text in checkup.why


def test_a_normal_dataparallel_is_told_how_much_faster_the_other_way_is():
    question = Question("resnet50", "H200", 128, n_gpus=2, precision="tf32", parallel="dp")
    [cause] = checked(question, iteration_time_ms=107).causes
    assert (cause.name, cause.remedy) == ("parallel", "DDP: 3.6 x faster.")
