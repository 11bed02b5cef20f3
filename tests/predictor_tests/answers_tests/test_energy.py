"""Energy in answers: power x time, what it rests on, its interval, and where it is unknown."""

import math

import pytest

from predictor.answers.answer import predict
from predictor.answers.compare import compare
from predictor.answers.notes import energy
from predictor.answers.question import Plan, Question
from predictor.models.ratios import ratios_of

POWER = ratios_of("power")


def row_of(gpu="NVIDIA H200", batch_size=128, cnn="resnet50", **options):
    (row,) = predict(cnn, gpu, batch_size, **{"data_set": "imagenet", **options})
    return row


def test_watt_hours_are_power_times_time_of_all_gpus_in_the_unit_of_their_size():
    words = [energy(watt_hours) for watt_hours in (12.3, 4560.0, 7.89e6, None)]
    assert words == ["12.3 Wh", "4.56 kWh", "7.89 MWh", ""]
    of_one, four = row_of(), row_of(n_gpus=4, batch_size=512)
    assert of_one.watt_hours == pytest.approx(of_one.power_w * of_one.epoch_time_s / 3600)
    assert four.watt_hours == pytest.approx(4 * four.power_w * four.epoch_time_s / 3600)


def test_energy_rests_on_measured_power_else_on_the_limit_which_no_interval_passes_else_it_is_unknown():
    assert row_of().energy_basis.text == "power measured on this GPU"
    row = row_of("T4", precision="fp32")
    assert row.energy_basis.text == "estimated from the power limit of 70 W"
    assert row.watt_hours_high == pytest.approx(70 * row.epoch_high_s / 3600)
    row = row_of("NVIDIA GH200 480GB")
    assert (row.power_w, row.watt_hours, row.watt_hours_low, row.watt_hours_high) == (None,) * 4
    assert row.energy_basis.text == "unknown: gpus.csv has no power limit of NVIDIA GH200 480GB"
    row = row_of(data_set=None)
    assert (row.power_w is None, row.watt_hours) == (False, None)


def test_the_interval_is_wider_where_the_limit_alone_is_known_and_holds_the_times_too():
    measured, estimated = row_of(), row_of("A100-SXM4-80GB")
    for row, spread in ((measured, POWER.spread), (estimated, math.hypot(POWER.spread, POWER.elsewhere))):
        below = math.hypot(math.log(row.epoch_time_s / row.epoch_low_s), spread)
        assert row.watt_hours_low == pytest.approx(row.watt_hours * math.exp(-below))
        assert row.watt_hours < row.watt_hours_high
    assert measured.watt_hours_high / measured.watt_hours < estimated.watt_hours_high / estimated.watt_hours


def test_a_gpu_that_waits_for_its_images_draws_less_power_for_longer():
    fed, waiting = row_of(loader="none"), row_of(loader="torchvision", workers=1)
    assert waiting.epoch_time_s > 2 * fed.epoch_time_s
    assert waiting.power_w < 0.7 * fed.power_w
    assert waiting.watt_hours > fed.watt_hours


def test_a_training_takes_the_energy_of_all_its_epochs_and_trials():
    whole = {"data_set": "imagenet", "samples": 1_280_000}  # mini-batches without rest, which loading changes
    question = Question("resnet50", "H200", 128, **whole)
    once = compare(question).rows[0]
    often = compare(question, Plan(epochs=10, trials=3, setup_minutes=5)).rows[0]
    alone = row_of(**whole)
    waiting_s = once.epoch_time_s - alone.epoch_time_s  # of each pass, for its first images
    assert 0 < waiting_s < 3
    idle_wh = POWER["idle"] * 700 * waiting_s / 3600
    assert often.total_watt_hours == pytest.approx(30 * (alone.watt_hours + idle_wh))
    assert often.total_watt_hours == pytest.approx(30 * once.watt_hours)
    assert once.total_watt_hours_low < once.total_watt_hours < once.total_watt_hours_high


def test_an_offer_that_waits_for_images_has_the_energy_of_a_prediction_that_waits_as_long():
    whole = {"data_set": "imagenet", "samples": 1_280_000, "precision": "amp_bf16", "n_gpus": 8}
    question = Question("resnet18", "H100 SXM", 1024, **whole)
    offered = next(row for row in compare(question).rows if row.bottleneck == "loading")
    alone = row_of("H100 SXM", 1024, cnn="resnet18", loader="1e9/worker", **whole)
    assert offered.power_w < alone.power_w
    idle_wh = 8 * POWER["idle"] * 700 * (offered.epoch_time_s - alone.epoch_time_s) / 3600
    assert offered.watt_hours - alone.watt_hours == pytest.approx(idle_wh, rel=1e-6)


@pytest.mark.parametrize("n_workers", [None, 2])
def test_a_comparison_has_the_energy_of_the_prediction_on_its_offer(n_workers):
    options = {"data_set": "cifar10", "loader": "200.0/worker", "workers": n_workers}
    for gpu in ("Quadro RTX 6000", "H100 SXM", "Tesla T4"):
        [row] = compare(Question("resnet18_cifar", gpu, 256, **options)).rows
        alone = row_of(gpu, 256, cnn="resnet18_cifar", **options)
        if n_workers is None and row.offer != alone.offer:
            continue  # another offer is cheaper for a training than by the hour
        for name in ("iteration_time_ms", "epoch_time_s", "power_w", "watt_hours", "watt_hours_high"):
            assert getattr(row, name) == pytest.approx(getattr(alone, name))
