"""Optimizers: their states in memory, and what is said of their times."""

import pytest

import epochcast


@pytest.mark.parametrize("optimizer", ["adamw", "nadam", "rmsprop", "adadelta", "adagrad", "lamb"])
def test_an_optimizer_that_was_not_measured_is_answered_with_its_states_and_the_doubt(optimizer):
    [row], [momentum] = (
        epochcast.predict("resnet18", "T4", 64, optimizer=name).to_dict("records")
        for name in (optimizer, "momentum")
    )
    assert row["high_ms"] / row["low_ms"] > momentum["high_ms"] / momentum["low_ms"]
    assert any(optimizer in str(why) for why in row["extrapolates"])
    one_state = optimizer in ("rmsprop", "adagrad")
    assert (row["peak_memory_gib"] == momentum["peak_memory_gib"]) == one_state
