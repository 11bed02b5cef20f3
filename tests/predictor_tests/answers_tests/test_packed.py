"""Several trainings on one GPU: their times, their memory, which number a comparison takes, and who is to blame."""

from dataclasses import replace

import numpy as np
import pytest
from case_tables import each_row

from benchmarks.packed import left_out, shipped_ratios
from predictor.answers.answer import predict
from predictor.answers.check import Speed, check
from predictor.answers.compare import compare
from predictor.answers.diff import diff
from predictor.answers.fit_memory import fit_memory
from predictor.answers.question import Plan, Question
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.forecast import TIMES
from predictor.models.packed import packed_times
from predictor.models.ratios import ratios_of

H100, A100 = "NVIDIA H100 80GB HBM3", "A100-SXM4-80GB"
SMALL = {"cnn": "resnet18", "gpus": H100, "batch_sizes": 128, "image_size": 32}


@each_row
def test_trainings_use_what_others_leave_idle_until_the_gpu_is_full(
    alone_ms, gpu_ms, host_ms, per_gpu, together_ms
):
    times = dict(zip(TIMES, map(np.array, [alone_ms] * 3 + [gpu_ms] * 3 + [host_ms]), strict=True))
    together = packed_times(times, np.array([per_gpu]))["iteration_time_ms"]
    assert together == pytest.approx([together_ms], rel=1e-3)


def test_unlike_trainings_get_equal_shares_and_what_others_leave():
    rows = predict(**SMALL, beside="resnet50@224:64,lenet5:8")
    small, large, tiny = rows
    assert [(row.image_size, row.batch_size, row.per_gpu) for row in rows] == [
        (32, 128, 3),
        (224, 64, 3),
        (32, 8, 3),
    ]
    assert len({round(row.peak_memory_gib, 6) for row in rows}) == 1
    law = ratios_of("packed")
    need = sum(law["switches"] * row.gpu_time_ms / row.iteration_time_ms for row in rows)
    assert need == pytest.approx(1)  # the large one takes what the others leave
    for row in (small, tiny):
        assert row.iteration_time_ms == pytest.approx(row.host_time_ms, rel=0.05)
    assert all(row.low_ms < row.iteration_time_ms < row.high_ms for row in rows)
    [equal], [alike, _] = predict(**SMALL, per_gpu=2), predict(**SMALL, beside="resnet18@32:128")
    assert (alike.high_ms, alike.peak_memory_gib) == (equal.high_ms, equal.peak_memory_gib)
    assert (large.power_w, large.energy_basis.kind) == (None, "unknown")
    assert large.largest_batch_size < predict("resnet50", H100, 64)[0].largest_batch_size


def test_the_law_holds_for_held_back_cnns():
    judged = left_out()
    for runs, mean, middle, outside in (((1, 2), 5, 1, 1), ((3,), 7, 3, 2), ((4,), 7, 5, 0), ((5,), 9, 6, 1)):
        rows = [row for row in judged if row[0].run in runs]
        errors = [abs(error) for _, error, _ in rows]
        assert (np.mean(errors) < mean, np.median(errors) < middle) == (True, True)
        assert sum(not is_inside for *_, is_inside in rows) == outside
    assert shipped_ratios() == ratios_of("packed")


def test_memory_is_of_all_and_times_are_of_one():
    [alone], *packed = (predict(**SMALL, per_gpu=n) for n in (1, 2, 4, 8))
    for n, [row] in zip((2, 4, 8), packed, strict=True):
        assert (row.per_gpu, row.gpu_time_ms) == (n, alone.gpu_time_ms)
        assert row.peak_memory_gib == pytest.approx(n * (alone.peak_memory_gib + 0.25))
        assert row.low_ms < row.iteration_time_ms < row.high_ms < 2.5 * row.iteration_time_ms
        assert alone.iteration_time_ms <= row.iteration_time_ms < n * alone.iteration_time_ms
        assert alone.power_w < row.power_w
    [elsewhere] = predict(**SMALL | {"gpus": A100}, per_gpu=2)  # no contexts were measured there
    assert elsewhere.peak_memory_gib == pytest.approx(2 * alone.peak_memory_gib)
    assert "per_gpu" in {reason.kind for reason in elsewhere.extrapolates}


def test_trainings_that_load_by_themselves_leave_the_gpu_to_others_meanwhile():
    for per_gpu in (2, 8):
        options = SMALL | {"per_gpu": per_gpu}
        [plain], [packed] = predict(**options), predict(**options, workers=0, loader="4000/worker")
        own_ms = plain.host_time_ms + 128 / 4
        assert packed.iteration_time_ms == pytest.approx(max(own_ms, plain.iteration_time_ms), rel=0.05)
        assert packed.low_ms < packed.iteration_time_ms < packed.high_ms


def test_hosts_and_loaders_take_turns_where_an_offer_has_few_vcpus(tmp_path):
    prices = {vcpus: tmp_path / f"{vcpus}.csv" for vcpus in (4, 8, 64)}
    for vcpus, path in prices.items():
        path.write_text(f"provider,instance,gpu,gpu_count,vcpus,usd_per_hour\nown,own,{H100},1,{vcpus},1\n")
    options = SMALL | {"batch_sizes": 4, "samples": 50_000, "per_gpu": 8}
    few, enough = (predict(**options, offers=str(prices[vcpus]))[0] for vcpus in (4, 8))
    ranked, roomy = (
        compare(Question(**options, offers=str(prices[vcpus])), Plan(trials=8)).rows[0] for vcpus in (4, 8)
    )
    assert few.iteration_time_ms == pytest.approx(2.4 * few.host_time_ms, rel=0.05)
    slower = few.iteration_time_ms / enough.iteration_time_ms
    assert slower == pytest.approx(ranked.total_time_h / roomy.total_time_h, rel=0.05)
    assert "need 2.38 times as many" in str(few.extrapolates[-1]) not in map(str, enough.extrapolates)
    loaded = SMALL | {"workers": 4, "loader": "4000/worker", "per_gpu": 4, "batch_sizes": 64}
    few, enough = (predict(**loaded, offers=str(prices[vcpus]))[0] for vcpus in (4, 64))
    assert enough.iteration_time_ms == pytest.approx(1.2 * enough.host_time_ms, rel=0.05)
    assert few.iteration_time_ms > 1.2 * (few.host_time_ms + 64 / 4)


def test_a_speed_a_change_and_a_plan_are_those_of_a_training_beside_others():
    beside = Question(**SMALL, beside="resnet50@224:64")
    row = predict(**SMALL, beside="resnet50@224:64")[0]
    speed = Speed(iteration_time_ms=20.0)
    checkup, equal = check(beside, speed), check(Question(**SMALL, per_gpu=4), speed)
    assert f"on {H100}, beside resnet50@224:64, normal is" in checkup.sentence
    assert f"on {H100}, one of 4 trainings on the GPU, normal is" in equal.sentence
    [change] = diff(beside, replace(beside, cnn="resnet34"))
    assert (checkup.normal_ms, change.before) == (row.iteration_time_ms, row)
    sum_ms = sum(layer.after_ms for layer in (*change.layers, change.rest))
    assert sum_ms == pytest.approx(change.after.iteration_time_ms)
    assert "batch 128, beside resnet50@224:64: " in change.sentence.replace("\n", " ")
    assert change.sentence.endswith("GiB for all 2.")
    equal = Question(**SMALL, per_gpu=4)
    [change] = diff(equal, replace(equal, cnn="resnet34"))
    assert "one of 4 trainings on the GPU: " in change.sentence
    assert change.lines()[0].startswith("waiting for the other trainings or the host: ")
    assert "of them" not in change.lines()[0]
    plan = fit_memory(Question(**SMALL, per_gpu=4))
    peak_gib = plan.best.row.peak_memory_gib
    assert f"{peak_gib:.1f} of 79.65 GiB for the 4 trainings on each GPU" in plan.sentence
    search = Question(**SMALL, data_set="cifar100", per_gpu=4)
    assert " for all 20 trainings of 2 epochs on " in fit_memory(search, Plan(epochs=2, trials=20)).sentence
    with pytest.raises(SchemaError, match="Pass 1 to 8"):
        fit_memory(replace(search, per_gpu="auto"), Plan(trials=20))


@each_row
def test_what_cannot_share_a_gpu_is_refused_with_what_can(options, error, words):
    with pytest.raises(error, match=words):
        predict(**SMALL | options)


def test_auto_takes_the_plan_that_costs_least_and_never_a_dearer_one_than_one_at_a_time():
    plans = {}
    for per_gpu in (1, 4, "auto"):
        question = Question(**SMALL | {"gpus": [H100, "L4", "T4"]}, data_set="cifar100", per_gpu=per_gpu)
        plans[per_gpu] = compare(question, Plan(epochs=90, trials=20))
    cost_usd = {per_gpu: plan.rows[0].total_cost_usd for per_gpu, plan in plans.items()}
    assert cost_usd["auto"] <= min(cost_usd.values())
    by_gpu = {row.gpu: row for row in plans[1].rows}
    assert all(
        row.total_cost_usd <= by_gpu[row.gpu].total_cost_usd * (1 + 1e-9) for row in plans["auto"].rows
    )
    [packed] = [row for row in plans["auto"].rows if row.gpu == H100]
    assert packed.per_gpu > 2 < packed.packing_gain
    assert "trainings on each GPU, a process each" in plans[4].verdict.sentence
    with pytest.raises(SchemaError, match="trials"):
        compare(Question(**SMALL, samples=9, per_gpu="auto"))


def test_a_plan_bills_the_trainings_that_there_are_and_a_last_round_of_fewer_as_fewer(tmp_path):
    prices = tmp_path / "prices.csv"
    prices.write_text(f"provider,instance,gpu,gpu_count,vcpus,usd_per_hour\nown,own,{H100},1,64,1\n")

    def planned(per_gpu, trials=None):
        question = Question(**SMALL, data_set="cifar100", per_gpu=per_gpu, offers=str(prices))
        return compare(question, Plan(epochs=90, trials=trials))

    one, two, four = (planned(n, n).rows[0] for n in (1, 2, 4))
    for (per_gpu, trials), parts in {
        (4, 9): (four, four, one),
        (4, 6): (four, two),
        (2, 3): (two, one),
    }.items():
        row = planned(per_gpu, trials).rows[0]
        for name in ("total_time_h", "total_low_h", "total_high_h", "total_cost_usd", "total_watt_hours"):
            assert getattr(row, name) == pytest.approx(sum(getattr(part, name) for part in parts)), name
    assert planned(4).rows[0] == four
    assert planned("auto", 5).rows[0].total_time_h <= planned(1, 5).rows[0].total_time_h
    assert "for all 4 trainings. 4 trainings on each GPU" in planned(4).verdict.sentence
    assert "On each GPU the trainings that share it take turns" in planned("auto", 5).scope
    for trials in (1, 3):
        with pytest.raises(
            OutOfRangeError, match=f"per_gpu 4 is above trials {trials}. Pass at most {trials}"
        ):
            planned(4, trials)
    large = compare(Question("vgg16", "T4", 64, data_set="imagenet", per_gpu=8))
    assert "GiB for 8 trainings on each GPU, more than fits" in large.verdict.sentence
    unpriced = compare(Question(**SMALL, data_set="cifar100", per_gpu=4, spot=True, provider="lambda"))
    assert "at no known price. 4 trainings" in unpriced.verdict.sentence
    assert " x faster than one at a time" in unpriced.verdict.sentence


@each_row
def test_somebody_else_on_the_gpu_is_blamed_for_the_turns_that_he_takes(cnn, slower, is_blamed):
    mode = {"precision": "amp_fp16", "memory_format": "channels_last", "image_size": 224, "loader": "none"}
    question = Question(cnn, H100, 256 if cnn == "resnet50" else 16, **mode)
    [row] = predict(cnn, H100, question.batch_sizes, **mode)
    causes = check(question, Speed(iteration_time_ms=slower * row.iteration_time_ms)).causes
    process = next((cause for cause in causes if cause.name == "process"), None)
    assert (process is not None and process.probability > 0.1) == is_blamed, causes
    if is_blamed:
        others_ms = process.expected_ms / ratios_of("packed")["switches"] - row.gpu_time_ms
        assert f"{others_ms:.1f} ms" in process.what


@each_row
def test_causes_are_those_of_a_training_beside_others(gpu, sharing, measured_ms, expected_ms):
    checkup = check(Question("resnet50", gpu, 64, **sharing), Speed(iteration_time_ms=measured_ms))
    causes = {cause.name: round(cause.expected_ms) for cause in checkup.causes}
    assert {name: causes.get(name) for name in expected_ms} == expected_ms, checkup.causes


def test_other_processes_are_those_beyond_the_named_and_take_what_the_iteration_leaves():
    checkup = check(Question("resnet50", H100, 64, per_gpu=2), Speed(iteration_time_ms=125))
    [gpu_ms] = {row.gpu_time_ms for row in predict("resnet50", H100, 64)}
    [process] = [cause for cause in checkup.causes if cause.name == "process"]
    assert process.expected_ms == pytest.approx(3 * ratios_of("packed")["switches"] * gpu_ms)
    assert f"another process works on the GPU, {gpu_ms:.1f} ms" in process.what
