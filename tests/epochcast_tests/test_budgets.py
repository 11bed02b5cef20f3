"""A watched run ends within its budget and deadline, after what it saved, and says beforehand whether it will."""

import pytest
from case_tables import each_row

import epochcast
from epochcast.budgets import Limit
from epochcast.watching import Watch, WatchedLoader
from predictor.errors import BudgetExceededError, SchemaError


class Run:
    """A loop over 10 iterations of 36 s an epoch, which saves after each; an hour costs US$ 2."""

    def __init__(self, epochs=10, **limit):
        self.now_s, self.lines, self.saved, self.iterations = 0.0, [], 0, 0
        more = {
            "usd_per_hour": 2.0,
            "report_after": 4,
            "tell": self.lines.append,
            "clock": lambda: self.now_s,
        }
        self.watch = Watch(None, 10, epochs, gpu="T4", limit=Limit(**limit), **more)
        self.epochs = epochs

    def goes(self):
        loader = WatchedLoader(range(10), self.watch)
        for _ in range(self.epochs):
            for _ in loader:
                self.now_s += 36.0
                self.iterations += 1
            self.saved += 1


@each_row
def test_a_run_ends_before_the_epoch_that_would_pass_its_limit_and_says_so_at_the_first_report(limit, epochs):
    run = Run(**limit)
    with pytest.raises(
        BudgetExceededError, match=r"another epoch would pass the limit of .*Catch this error"
    ):
        run.goes()
    assert (run.saved, run.iterations) == (epochs, 10 * epochs)
    assert "the run takes 60.0 min, over" in run.lines[0]
    assert f"it ends after epoch {epochs} of 10" in run.lines[0]


def test_a_run_within_its_limit_is_left_alone_and_one_of_unknown_length_says_that_it_is_unknown():
    run = Run(deadline="1h", budget_usd=2)
    run.goes()
    assert run.saved == 10
    assert "the run ends within US$ 2.00 at US$ 2.00/h and 60.0 min" in run.lines[0]
    run = Run(deadline="25min")
    run.watch.n_batches = None
    with pytest.raises(BudgetExceededError):
        run.goes()
    assert "whether it ends within 25.0 min is not known" in run.lines[0]


def test_a_function_is_called_once_at_the_limit_within_an_epoch_and_decides_itself():
    calls = []
    run = Run(deadline="15min", on_exceeded=lambda watched: calls.append((run.iterations, watched.gpu)))
    run.goes()
    assert run.saved == 10
    [(iterations, gpu)] = calls
    assert 20 <= iterations <= 25  # 25 iterations take 15 minutes; it looks every fourth
    assert gpu == "T4"
    assert "on_exceeded is called at 25 %" in run.lines[0]
    called = f"on_exceeded was called after {iterations * 0.6:.1f} min, for the limit of 15.0 min"
    assert all(called in line for line in run.lines[3:])


@each_row
def test_a_limit_within_the_first_epoch_ends_the_run_after_it_and_what_is_gone_has_its_unit(
    limit, first, last
):
    run = Run(epochs=3, **limit)
    with pytest.raises(BudgetExceededError) as raised:
        run.goes()
    assert first in run.lines[0]
    assert last in str(raised.value)


def test_epochs_that_are_over_are_told_from_a_loader_without_length():
    run = Run(epochs=1, deadline="5h")
    run.epochs = 2
    run.goes()
    assert "is not known, since its epochs are over (1 expected)" in run.lines[-1]


def test_processes_that_train_together_follow_the_first(monkeypatch):
    import torch

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch.distributed, "broadcast_object_list", lambda decisions, src: decisions.__setitem__(src, True)
    )
    run = Run(deadline="10h")
    assert run.watch.limit.exceeds(1.0, 0.0, None, epoch_ends=True)


@each_row
def test_a_limit_that_makes_no_sense_is_refused_at_the_call(limit, words):
    with pytest.raises(SchemaError, match=words):
        epochcast.watch(range(3), **{"gpu": "TITAN V"} | limit)


@each_row
def test_what_is_no_price_is_refused_at_the_call(price, words):
    with pytest.raises(SchemaError, match=words):
        epochcast.watch(range(3), **price)
    with pytest.raises(SchemaError, match=words):
        epochcast.trainer_callback(**price)


def test_a_budget_of_a_module_has_its_price_at_the_call_and_a_refused_module_keeps_no_hook():
    import torch

    module = torch.nn.Conv2d(3, 3, 3)
    with pytest.raises(SchemaError, match="no offer has what this run trains on, cpu:"):
        epochcast.watch(range(3), module, budget_usd=1)
    assert not module._forward_pre_hooks
