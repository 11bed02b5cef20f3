"""Habits of repositories that train CNNs: their steps run, and the reader answers or refuses each of them."""

from pathlib import Path

import pytest

ANSWERED = {
    *(
        "plain_classifier",
        "grey_images",
        "twelve_satellite_bands",
        "frozen_batch_norms",
        "gradient_accumulation",
    ),
    *("mixed_precision_with_a_scaler", "channels_last_adamw_groups", "auxiliary_losses"),
    *("loss_inside_the_module", "detector_head_on_all_anchors", "segmentation_per_pixel"),
    *("custom_autograd_function", "mixup_with_logging", "moving_average_of_weights"),
    *("tokens_of_maps_in_a_transformer", "spectral_norm_of_weights", "frequencies_by_fft"),
}
"""Those whose work the reader counts as it is."""


@pytest.fixture
def habits(torch, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[3] / "benchmarks")
    import habits

    return habits


def test_there_are_forty(habits):
    assert len(habits.HABITS) == 40


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_habit_is_answered_or_refused_in_one_line(habits):
    outcomes = {name: habits.outcome_of(make()) for name, make in habits.HABITS.items()}
    assert {name: each.text for name, each in outcomes.items() if each.outcome == "traceback"} == {}
    assert [name for name, each in outcomes.items() if "\n" in each.text] == []
    assert ANSWERED - {name for name, each in outcomes.items() if each.outcome == "answered"} == set()
