"""What a step decides by numbers that are not there: guards take their usual branch, and masks keep objects."""

import math

import pytest

from predictor.cnns.torch_step import record
from predictor.errors import SchemaError

INFINITE = float("inf")


def guards(torch):
    """Conditions under which a step leaves out its update, of which none holds as a rule."""
    return {
        "isfinite": lambda loss: not torch.isfinite(loss),
        "isnan": torch.isnan,
        "any isnan": lambda loss: torch.isnan(loss).any(),
        "read isnan": lambda loss: torch.any(torch.isnan(loss)).item(),
        "number": lambda loss: not math.isfinite(loss.item()),
        "zero or not finite": lambda loss: loss == 0 or not torch.isfinite(loss),
        "zero": lambda loss: loss == 0,
        "not itself": lambda loss: loss != loss,
        "infinite": lambda loss: loss.abs() == INFINITE,
        "not below infinity": lambda loss: not loss < INFINITE,
        "too large": lambda loss: loss > 1e5,
        "nan or infinite": lambda loss: torch.isnan(loss) | torch.isinf(loss),
        "several": lambda loss: torch.isnan(torch.stack([loss, loss])).sum() > 0,
        "all finite": lambda loss: not torch.isfinite(torch.stack([loss, loss])).all(),
    }


def trained(torch, skips, raises=None):
    module, images = torch.nn.Conv2d(3, 8, 3), torch.rand(4, 3, 32, 32)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)

    def step():
        optimizer.zero_grad()
        loss = module(images).square().mean()
        if skips(loss):
            return
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        if raises is None or not raises(norm):
            optimizer.step()

    return step


def test_a_guard_takes_its_usual_branch_and_the_table_says_so(torch):
    plain = record(trained(torch, lambda _: False))
    for name, guard in guards(torch).items():
        for table in (record(trained(torch, guard)), record(trained(torch, lambda _: False, guard))):
            assert table.step.optimizer == "sgd", name
            assert len(table) - len(plain) in (0, 1), name
            said = any("are finite" in warning.about for warning in table.warnings)
            assert said == (name != "number"), name


def test_an_assertion_that_a_loss_is_finite_holds(torch):
    def holds(loss):
        assert torch.isfinite(loss)
        return False

    assert record(trained(torch, holds)).step.optimizer == "sgd"


@pytest.mark.parametrize("bound", [0.9, 100])
def test_what_a_network_computes_is_not_guessed(torch, bound):
    with pytest.raises(SchemaError, match="decided by numbers of its tensors"):
        record(trained(torch, lambda loss: loss > bound))


def idioms(torch):
    """Losses that keep what masks and counts decide, by name."""
    nn, images = torch.nn, torch.rand(4, 3, 16, 16)
    module, of_image, points = nn.Conv2d(3, 8, 3, padding=1), torch.arange(12) // 3, torch.rand(12, 17, 3)

    def masks():
        out = module(images)
        loss = out.sum() * 0
        for maps, mask in zip(out, out[:, 0] > 0, strict=True):
            loss = loss + (maps[:, mask].square().mean() if mask.any() else (maps * 0).sum())
        return loss

    def key_points(counts_of):
        out = module(images)
        padded = torch.zeros(4, int(counts_of(of_image).max()), 17, 3)
        for i in range(4):
            own = points[of_image == i]
            padded[i, : own.shape[0]] = own
        kept = out[:, 0].flatten(1) > 0
        targets = padded.flatten(1).mean(1).repeat_interleave(kept.sum(1))
        return (out[:, 1].flatten(1)[kept] - targets).square().mean()

    return module, {
        "masks": masks,
        "unique": lambda: key_points(lambda numbers: torch.unique(numbers, return_counts=True)[1]),
        "bincount": lambda: key_points(lambda numbers: torch.bincount(numbers, minlength=4)),
        "constant counts": lambda: module(images).repeat_interleave(torch.tensor([1, 2, 0, 1]), 0).mean(),
    }


def test_losses_of_masks_and_key_points_are_read(torch):
    module, losses = idioms(torch)
    for name, loss in losses.items():
        table = record(lambda loss=loss: loss().backward())
        assert any(row.type == "conv2d" and row.weight_gradients != 0 for row in table), name
        assert table.step.batch_size == 4, name
    assert module.weight.grad is None
