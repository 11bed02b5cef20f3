"""predict: what a row says, what is refused and how."""

import math
from dataclasses import replace
from itertools import product

import pytest
from case_tables import each_row

import epochcast
from predictor.answers.answer import answer, predict
from predictor.answers.compare import compare
from predictor.answers.notes import REMEDIES, Reason
from predictor.answers.question import Plan, Question
from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import LeftOutWarning, OutOfRangeError, SchemaError, UnknownGpuError


@pytest.fixture
def ask(fake_model, prices):
    """The rows of a question about ResNet-18 on a T4 at batch size 64, but for what is said otherwise."""

    def rows(cnn="resnet18", gpus="T4", batch_sizes=64, **options):
        return predict(cnn, gpus, batch_sizes, **{"offers": prices, "model": fake_model} | options)

    return rows


def test_there_is_a_row_for_each_cnn_gpu_and_batch_size_and_the_model_is_asked_once_for_a_gpu(
    ask, fake_model
):
    ask(batch_sizes="32,64,128")
    assert fake_model.calls == [("resnet18", "Tesla T4", [32, 64, 128])]
    cnns, gpus = ["resnet18", "alexnet"], ["Tesla T4", "Tesla K80"]
    rows = ask(cnns, gpus, [64, 32], samples=1000)
    assert [(row.cnn, row.gpu, row.batch_size) for row in rows] == list(product(cnns, gpus, (32, 64)))


@each_row
def test_columns_follow_from_the_question(ask, question, columns):
    (row,) = ask(**question)
    assert {name: getattr(row, name) for name in columns} == columns


def test_an_extrapolation_has_its_reason_and_a_layer_table_its_own_image_size(ask):
    assert ask(gpus="H200")[0].extrapolates == (Reason("gpu", "not measured", REMEDIES["gpu"]),)
    assert ask(zoo_cnn("resnet18", 64), data_set="cifar10")[0].image_size == 64


def epoch_s(iteration_ms):
    """What the fake model makes of 16 iterations."""
    return 1.1e-3 * 16 * iteration_ms + 0.5


@pytest.mark.parametrize(
    ("question", "column", "formula"),
    [
        ({"samples": 1024}, "epoch_time_s", lambda row: epoch_s(row.iteration_time_ms)),
        ({"samples": 1024}, "epoch_low_s", lambda row: epoch_s(row.low_ms)),
        ({"samples": 1024}, "epoch_high_s", lambda row: epoch_s(row.high_ms)),
        # a third of an iteration for each mini-batch of validation
        ({"samples": 1024, "validation_samples": 128}, "epoch_time_s",
         lambda row: epoch_s(row.iteration_time_ms) + 2 * row.iteration_time_ms / 3000),
        # the whole cheapest instance is paid
        ({"samples": 1024, "gpus": "A100-SXM4-40GB"}, "cost_usd", lambda row: 24.0 * row.epoch_time_s / 3600),
        ({"samples": 1024, "spot": True}, "cost_usd", lambda row: 0.1 * row.epoch_time_s / 3600),
        ({}, "throughput_samples_per_s", lambda row: 64_000 / row.iteration_time_ms),
    ],
)  # fmt: skip
def test_columns_follow_from_the_iteration(ask, question, column, formula):
    (row,) = ask(**question)
    assert getattr(row, column) == pytest.approx(formula(row))


def test_the_smallest_batch_size_near_the_best_epoch_time_that_fits_is_marked(ask):
    rows = ask("vgg_cifar", "V100-SXM2-16GB", [8, 64, 512, 1024], samples=10**6)
    best = min(row.epoch_time_s for row in rows)
    expected = next(row.batch_size for row in rows if row.epoch_time_s <= 1.05 * best)
    assert [row.batch_size for row in rows if row.best_batch] == [expected]
    rows = ask("resnet50", "K80", [32, 4096], samples=10**6)
    assert [(row.fits_in_memory, row.best_batch) for row in rows] == [(True, True), (False, False)]
    rows = ask(gpus="all", precision="amp_bf16")  # every GPU that has the precision
    assert {find_gpu(row.gpu).generation for row in rows} == {"ampere", "ada", "hopper", "blackwell"}


@pytest.mark.parametrize("gpu", ["T4", "L4", "H200"])
@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("end", ["low", "high"])
def test_an_anchor_beyond_the_interval_is_adopted_and_the_answer_says_by_how_much(gpu, end, factor):
    (plain,) = predict("resnet50", gpu, 64)
    run_ms = factor * getattr(plain, f"{end}_ms")
    run = {"gpu": gpu, "batch_size": 64, "iteration_time_ms": run_ms}
    (row,) = predict("resnet50", gpu, 64, anchors=[run])
    texts = [reason.text for reason in row.extrapolates if reason.kind == "anchor"]
    assert row.iteration_time_ms == pytest.approx(run_ms, rel=0.05)
    assert len(texts) == (not plain.low_ms <= run_ms <= plain.high_ms)
    assert all(f"{run_ms / plain.iteration_time_ms:.2g} times the model's own time" in text for text in texts)


def test_an_anchor_may_be_told_in_three_ways(ask):
    of_epoch = {"epoch_time_s": epoch_s(200.0), "samples": 1024}
    for speed in ({"iteration_time_ms": 200.0}, {"images_per_s": 320.0}, of_epoch):
        (plain,), (row,) = ask(), ask(anchors=[{"gpu": "T4", "batch_size": 64, **speed}])
        assert row.iteration_time_ms == pytest.approx(2 * plain.iteration_time_ms)
        assert row.method == "anchored"


@pytest.mark.parametrize("precision", ["tf32", "amp_bf16"])
def test_a_gpu_without_the_precision_is_left_out_with_a_warning(precision, fake_model, prices):
    options = {"precision": precision, "offers": prices, "model": fake_model}
    with pytest.warns(LeftOutWarning, match=f"Tesla T4 is left out in {precision}: the GPU has fp32, fp16"):
        answered = answer(Question("alexnet", ["T4", "H200"], 64, **options))
    assert answered.columns["gpu"] == ["NVIDIA H200"]
    assert answered.scope.startswith("Tesla T4 is left out")
    with pytest.warns(LeftOutWarning), pytest.raises(SchemaError, match="one CNN on one GPU"):
        epochcast.largest_batch_size("alexnet", ["T4", "H200"], precision="amp_bf16")


def test_a_model_that_answers_nonsense_is_an_error(ask, fake_model, monkeypatch):
    def broken(table, gpu, batch_sizes, *more):
        forecast = type(fake_model)().forecast(table, gpu, batch_sizes, *more)
        return replace(forecast, iteration_time_ms=forecast.iteration_time_ms * math.nan)

    monkeypatch.setattr(fake_model, "forecast", broken)
    with pytest.raises(OutOfRangeError, match="the model gives nan ms for resnet18 on Tesla T4"):
        ask()


@each_row
def test_the_last_iteration_of_an_epoch_is_that_of_the_images_left(samples, batch_size, more, n_full, images):
    more = more | {"anchors": [{"gpu": "A100-SXM4-40GB", "batch_size": 64, "iteration_time_ms": 200.0}]}
    (row,), (last,) = (
        predict("resnet50", "A100-SXM4-40GB", size, samples=samples, **more) for size in (batch_size, images)
    )
    assert row.epoch_time_s == pytest.approx((n_full * row.iteration_time_ms + last.iteration_time_ms) / 1e3)
    question = Question("resnet50", "A100-SXM4-40GB", batch_size, samples=samples, **more)
    rows = compare(question, Plan(all_offers=True)).rows
    compared = [own for own in rows if own.gpus_used == row.gpus_used]
    assert compared
    assert [own.epoch_time_s for own in compared] == pytest.approx([row.epoch_time_s] * len(compared))


@pytest.mark.parametrize("samples", [257, 50_000])
def test_an_epoch_as_an_anchor_gives_its_own_time_again(samples):
    run = {"gpu": "T4", "batch_size": 256, "epoch_time_s": samples / 200, "samples": samples}
    (row,) = predict("resnet50", "T4", 256, samples=samples, anchors=[run])
    assert row.epoch_time_s == pytest.approx(samples / 200, rel=0.02)


def test_a_text_may_name_several_gpus_as_it_may_batch_sizes():
    asked = [predict("resnet18", gpus, 8) for gpus in ("T4, L4", ["T4", "L4"])]
    assert [row.gpu for row in asked[0]] == [row.gpu for row in asked[1]] == ["Tesla T4", "NVIDIA L4"]


@each_row
def test_several_gpus_or_a_machine_in_one_name_are_refused_with_the_name_and_number_of_its_gpus(name, words):
    with pytest.raises(UnknownGpuError, match=words):
        predict("resnet18", name, 8)
