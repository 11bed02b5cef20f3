"""predict: what a row says, what is refused and how."""

import math
from dataclasses import replace

import pytest

import epochcast
from predictor.answers.answer import answer, predict
from predictor.answers.notes import REMEDIES, Reason
from predictor.answers.question import Question
from predictor.catalogue.devices import find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import LeftOutWarning, OutOfRangeError, SchemaError


def test_there_is_a_row_for_each_cnn_gpu_and_batch_size(fake_model, prices):
    rows = predict(
        ["resnet18", "alexnet"], ["T4", "K80"], [64, 32], samples=1000, offers=prices, model=fake_model
    )
    assert [(row.cnn, row.gpu, row.batch_size) for row in rows] == [
        (cnn, gpu, size)
        for cnn in ("resnet18", "alexnet")
        for gpu in ("Tesla T4", "Tesla K80")
        for size in (32, 64)
    ]


def test_the_model_is_asked_once_for_all_batch_sizes_of_a_gpu(fake_model, prices):
    predict("resnet18", "T4", "32,64,128", offers=prices, model=fake_model)
    assert fake_model.calls == [("resnet18", "Tesla T4", [32, 64, 128])]


def test_iterations_are_samples_over_batch_size_rounded_up(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, samples=1000, offers=prices, model=fake_model)
    assert row.iterations_per_epoch == 16


def test_epoch_time_is_what_the_model_makes_of_the_iterations(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, samples=1000, offers=prices, model=fake_model)
    assert row.epoch_time_s == pytest.approx(1.1e-3 * 16 * row.iteration_time_ms + 0.5)


def test_the_interval_of_an_epoch_follows_that_of_the_iteration(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, samples=1000, offers=prices, model=fake_model)
    assert row.epoch_low_s == pytest.approx(1.1e-3 * 16 * row.low_ms + 0.5)
    assert row.epoch_high_s == pytest.approx(1.1e-3 * 16 * row.high_ms + 0.5)


def test_validation_adds_a_third_of_an_iteration_per_batch(fake_model, prices):
    question = {"samples": 1000, "offers": prices, "model": fake_model}
    (without,) = predict("resnet18", "T4", 64, **question)
    (row,) = predict("resnet18", "T4", 64, validation_samples=100, **question)
    assert row.epoch_time_s - without.epoch_time_s == pytest.approx(2 * row.iteration_time_ms / 3000)


def test_cost_is_the_epoch_on_the_whole_cheapest_instance(fake_model, prices):
    (row,) = predict("resnet18", "A100-SXM4-40GB", 64, samples=10**6, offers=prices, model=fake_model)
    assert row.cost_usd == pytest.approx(24.0 * row.epoch_time_s / 3600)
    assert (row.offer, row.offer_gpu_count, row.gpus_used) == ("cloud eight-a100", 8, 1)


def test_the_spot_price_counts_when_asked_for(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, samples=10**6, offers=prices, spot=True, model=fake_model)
    assert row.cost_usd == pytest.approx(0.1 * row.epoch_time_s / 3600)


@pytest.mark.parametrize("gpu", ["H200", "K80"])
def test_without_a_current_offer_of_a_whole_gpu_there_is_no_cost(gpu, fake_model, prices):
    (row,) = predict("resnet18", gpu, 64, samples=1000, offers=prices, model=fake_model)
    assert (row.offer, row.cost_usd, row.priced_on) == ("no offer", None, None)


def test_without_samples_there_is_an_iteration_but_no_epoch(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, offers=prices, model=fake_model)
    assert row.iteration_time_ms > 0
    assert (row.epoch_time_s, row.iterations_per_epoch, row.cost_usd) == (None, None, None)


def test_throughput_is_batch_size_over_iteration_time(fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, offers=prices, model=fake_model)
    assert row.throughput_samples_per_s == pytest.approx(64_000 / row.iteration_time_ms)


def test_the_smallest_batch_size_near_the_best_epoch_time_is_marked(fake_model, prices):
    sizes = [8, 64, 512, 1024]
    rows = predict("vgg_cifar", "V100-SXM2-16GB", sizes, samples=10**6, offers=prices, model=fake_model)
    best = min(row.epoch_time_s for row in rows)
    expected = next(row.batch_size for row in rows if row.epoch_time_s <= 1.05 * best)
    assert [row.batch_size for row in rows if row.best_batch] == [expected]


def test_a_batch_size_that_does_not_fit_in_memory_is_never_recommended(fake_model, prices):
    rows = predict("resnet50", "K80", [32, 4096], samples=10**6, offers=prices, model=fake_model)
    assert [(row.fits_in_memory, row.best_batch) for row in rows] == [(True, True), (False, False)]


def test_a_row_names_its_method_its_training_data_and_why_it_extrapolates(fake_model, prices):
    (row,) = predict("resnet18", "H200", 64, offers=prices, model=fake_model)
    assert (row.method, row.trained_on, row.extrapolates) == (
        "roofline",
        "a formula",
        (Reason("gpu", "not measured", REMEDIES["gpu"]),),
    )


@pytest.mark.parametrize(("framework", "validated"), [("pytorch", True), ("tensorflow", False)])
def test_memory_says_whether_peaks_of_the_framework_were_measured(framework, validated, fake_model, prices):
    (row,) = predict("resnet18", "T4", 64, framework=framework, offers=prices, model=fake_model)
    assert row.memory_estimate_validated is validated


def test_a_data_set_gives_samples_and_image_size(fake_model, prices):
    (row,) = predict("vgg_cifar", "T4", 100, data_set="cifar100", offers=prices, model=fake_model)
    assert (row.iterations_per_epoch, row.image_size) == (500, 32)


def test_a_data_set_of_resized_images_leaves_the_image_size_to_the_cnn(fake_model, prices):
    (row,) = predict("inception_v3", "T4", 32, data_set="imagenet", offers=prices, model=fake_model)
    assert row.image_size == 299


def test_a_layer_table_keeps_its_own_image_size(fake_model, prices):
    (row,) = predict(zoo_cnn("resnet18", 64), "T4", 32, data_set="cifar10", offers=prices, model=fake_model)
    assert row.image_size == 64


def test_all_stands_for_every_gpu_that_has_the_precision(fake_model, prices):
    rows = predict("resnet18", "all", 32, precision="amp_bf16", offers=prices, model=fake_model)
    assert {find_gpu(row.gpu).generation for row in rows} == {"ampere", "ada", "hopper", "blackwell"}


@pytest.mark.parametrize("gpu", ["T4", "L4", "H200"])
@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("end", ["low", "high"])
def test_an_anchor_beyond_the_interval_is_adopted_and_the_answer_says_by_how_much(gpu, end, factor):
    (plain,) = predict("resnet50", gpu, 64)
    run_ms = factor * getattr(plain, f"{end}_ms")
    (row,) = predict(
        "resnet50", gpu, 64, anchors=[{"gpu": gpu, "batch_size": 64, "iteration_time_ms": run_ms}]
    )
    texts = [reason.text for reason in row.extrapolates if reason.kind == "anchor"]
    assert row.iteration_time_ms == pytest.approx(run_ms, rel=0.05)
    assert len(texts) == (not plain.low_ms <= run_ms <= plain.high_ms)
    assert all(f"{run_ms / plain.iteration_time_ms:.2g} times the model's own time" in text for text in texts)


@pytest.mark.parametrize(
    "anchor",
    [
        {"gpu": "T4", "batch_size": 64, "iteration_time_ms": 200.0},
        {"gpu": "T4", "batch_size": 64, "throughput_samples_per_s": 320.0},
        {"gpu": "T4", "batch_size": 64, "epoch_time_s": 1.1e-3 * 16 * 200.0 + 0.5, "samples": 1000},
    ],
    ids=["iteration time", "throughput", "epoch time"],
)
def test_an_anchor_may_be_told_in_three_ways(anchor, fake_model, prices):
    (plain,) = predict("resnet18", "T4", 64, offers=prices, model=fake_model)
    (row,) = predict("resnet18", "T4", 64, anchors=[anchor], offers=prices, model=fake_model)
    assert row.iteration_time_ms == pytest.approx(2 * plain.iteration_time_ms)
    assert row.method == "anchored"


@pytest.mark.parametrize("precision", ["tf32", "amp_bf16"])
def test_a_gpu_without_the_precision_is_left_out_with_a_warning(precision, fake_model, prices):
    with pytest.warns(LeftOutWarning, match=f"Tesla T4 is left out in {precision}: the GPU has fp32, fp16"):
        found = answer(
            Question("alexnet", ["T4", "H200"], 64, precision=precision, offers=prices, model=fake_model)
        )
    assert found.columns["gpu"] == ["NVIDIA H200"]
    assert found.scope.startswith("Tesla T4 is left out")


def test_the_largest_batch_size_is_not_that_of_another_gpu():
    with pytest.warns(LeftOutWarning), pytest.raises(SchemaError, match="one CNN on one GPU"):
        epochcast.largest_batch_size("alexnet", ["T4", "H200"], precision="amp_bf16")


def test_a_model_that_answers_nonsense_is_an_error(fake_model, prices, monkeypatch):
    honest = fake_model.forecast

    def broken(*args, **kwargs):
        forecast = honest(*args, **kwargs)
        return replace(forecast, iteration_time_ms=forecast.iteration_time_ms * math.nan)

    monkeypatch.setattr(fake_model, "forecast", broken)
    with pytest.raises(OutOfRangeError, match="the model gives nan ms for resnet18 on Tesla T4"):
        predict("resnet18", "T4", 64, offers=prices, model=fake_model)
