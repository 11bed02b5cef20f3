"""The cheapest way to train in some memory: every number is the comparison's, and what a plan says is what it does."""

from dataclasses import replace
from itertools import pairwise

import pandas as pd
import pytest

from predictor.answers.changes import in_mode
from predictor.answers.compare import compare
from predictor.answers.fit_memory import code_of, fit_memory, knapsack
from predictor.answers.question import Plan, Question
from predictor.answers.resolved import OwnMeasurements
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.blocks import Block, block_levels
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.table import check_measurements
from predictor.models.served import Model
from predictor.operators.memory import USABLE_SHARE, bytes_of_parts, peak_memory_gib

OWN = {"samples": 25_600, "usd_per_hour": 1.0}
L4 = Question("resnet50", "L4", 256, **OWN)
WHOLE = replace(L4, gradient_accumulation=1, precision="amp_bf16", memory_format="channels_last")


def test_a_training_that_fits_is_planned_as_its_fastest_comparison():
    best = fit_memory(L4).best
    [row] = compare(WHOLE).rows
    assert (best.parts, best.recomputed, best.slower) == (1, (), pytest.approx(1.0))
    assert best.row.total_cost_usd == pytest.approx(row.total_cost_usd)


def test_a_plan_fills_nine_tenths_at_most_and_is_the_comparison_of_its_step():
    for memory_gib in (3, 5, 8, 11):
        plans = fit_memory(L4, memory_gib=memory_gib)
        for plan in (plans.best, *filter(None, plans.without.values())):
            assert plan.row.peak_memory_gib <= USABLE_SHARE * memory_gib
            assert plan.memory_gib == pytest.approx(memory_gib)
            named = {block.name: block for level in block_levels(zoo_cnn("resnet50")) for block in level}
            table = zoo_cnn("resnet50").recomputing([named[name].positions for name in plan.recomputed])
            question = replace(L4, cnn=table, gradient_accumulation=plan.parts)
            question = in_mode(question, [find_gpu("L4")], plan.row.precision, plan.row.memory_format)
            [row] = compare(question).rows
            assert row.total_cost_usd == pytest.approx(plan.row.total_cost_usd)


def test_less_memory_never_costs_less():
    costs = [fit_memory(L4, Plan(90), gib).best.row.total_cost_usd for gib in (24, 6, 3, 2)]
    # the first iterations of parts are shorter
    assert all(more > 0.99 * less for less, more in pairwise(costs))
    assert costs[-1] > 1.02 * costs[0]


def test_without_a_concession_the_best_other_plan_is_named():
    plans = fit_memory(L4, memory_gib=8)
    assert set(plans.without) == set(plans.best.concessions) == {"precision", "accumulation"}
    assert plans.without["precision"].row.precision == "tf32"
    without = plans.without["accumulation"]
    assert (without.parts, bool(without.recomputed), "recomputing" in without.concessions) == (1, True, True)
    assert len(plans.lines()) == 2


def test_what_is_given_stays():
    plan = fit_memory(replace(L4, precision="tf32", gradient_accumulation=2), memory_gib=16).best
    assert (plan.row.precision, plan.parts, plan.concessions) == ("tf32", 2, ())


def test_images_and_optimizer_change_only_where_they_may_and_nothing_else_holds_the_limits():
    tight = Plan(budget_usd=0.013)
    kept = fit_memory(L4, tight, memory_gib=8)
    assert not kept.best.row.holds_limits
    assert kept.sentence.startswith("No plan stays within")
    smaller = fit_memory(L4, tight, memory_gib=8, allow=["image_size"]).best
    assert (smaller.row.image_size < 224, "image_size" in smaller.concessions) == (True, True)
    assert fit_memory(L4, memory_gib=8, allow=["image_size", "optimizer"]).best.row.image_size == 224


def test_several_gpus_of_an_offer_may_share_the_mini_batch():
    plans = fit_memory(Question("resnet50", None, 256, data_set="imagenet"), Plan(90, deadline_h=6))
    assert plans.best.row.gpus_used > 1
    alone = plans.without["gpus"]
    assert alone is None or alone.row.gpus_used == 1


def test_without_an_epoch_a_plan_is_of_an_iteration_and_has_no_cost():
    plan = fit_memory(Question("resnet50", "L4", 256), memory_gib=8).best
    row = compare(
        Question("resnet50", "L4", 256, samples=256, gradient_accumulation=plan.parts,
                 precision="amp_bf16", memory_format="channels_last")
    ).rows[0]  # fmt: skip
    assert (plan.parts, plan.recomputed, plan.row.gpus_used) == (2, (), 1)
    assert plan.row.iteration_time_ms == pytest.approx(row.iteration_time_ms)
    assert plan.row.peak_memory_gib == row.peak_memory_gib <= USABLE_SHARE * 8
    assert {plan.row.epoch_time_s, plan.row.total_cost_usd, plan.row.usd_per_hour} == {None}
    assert plan.words.endswith("ms an iteration on 1x L4")
    for wrong in ({"plan": Plan(3)}, {"plan": Plan(budget_usd=9)}):
        with pytest.raises(SchemaError, match=r"of a whole training.*Pass samples or data_set"):
            fit_memory(Question("resnet50", "L4", 256), **wrong)
    with pytest.raises(SchemaError, match="usd_per_hour is of a whole training"):
        fit_memory(Question("resnet50", "L4", 256, usd_per_hour=1.0))


def test_what_cannot_fit_is_refused_with_how_much_is_missing():
    words = r"batch_size 256 needs at least \d\.\d GiB on NVIDIA L4.* allow image_size"
    with pytest.raises(OutOfRangeError, match=words):
        fit_memory(L4, memory_gib=0.7)


def test_the_knapsack_saves_enough_at_the_least_cost():
    assert knapsack([5.0, 4.0, 3.0], [5.0, 3.0, 3.0], 6.5) == [1, 2]
    assert knapsack([5.0, 4.0, 3.0], [5.0, 3.0, 3.0], 4.0) == [1]
    assert knapsack([1.0, 1.0], [1.0, 1.0], 3.0) is None


@pytest.mark.parametrize("cnn", ["resnet50", "densenet121", "efficientnet_b0"])
def test_what_a_block_saves_is_what_the_largest_batch_gains(cnn):
    table, mode, large = zoo_cnn(cnn), Mode(precision="tf32"), 2**14
    for level in block_levels(table):
        saved = bytes_of_parts(table.recomputing([block.positions for block in level]), "tf32")
        number = max(saved, key=saved.get)
        lone = table.recomputing([level[number - 1].positions])
        assert bytes_of_parts(lone, "tf32")[1] == pytest.approx(saved[number])
        gained = peak_memory_gib(table, large, mode) - peak_memory_gib(lone, large, mode)
        assert 0 < gained <= 1.001 * saved[number] * large / 2**30


def test_blocks_are_modules_or_else_stages():
    stages, blocks = block_levels(zoo_cnn("resnet50"))
    assert [block.name for block in stages] == ["layer1", "layer2", "layer3", "layer4"]
    assert len(blocks) == 16
    [flat] = block_levels(zoo_cnn("vgg16"))
    assert flat[0].name == "conv1_1 to pool1"
    assert not flat[0].is_module


def hold_the_plain_step(torch, model, code, images):
    """Hold the model after one step by these lines on the CPU against that after a plain step."""
    after = []
    for lines in (code_of("fp32", "nchw", 1, ()), code):
        torch.manual_seed(1)
        space = {"model": model(), "criterion": torch.nn.CrossEntropyLoss()}
        space["optimizer"] = torch.optim.SGD(space["model"].parameters(), lr=0.1)
        exec(lines.replace('"cuda"', '"cpu"'), space)  # noqa: S102 - what is tested
        space["train_step"](images, torch.arange(len(images)))
        after.append([parameter.detach().contiguous() for parameter in space["model"].parameters()])
    torch.testing.assert_close(*after, rtol=1e-4, atol=1e-6)


def test_the_lines_of_a_plan_train_as_the_plain_step(torch):
    def model():
        block = [torch.nn.Sequential(torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.ReLU()) for _ in range(3)]
        body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), *block)
        return torch.nn.Sequential(body, torch.nn.Flatten(), torch.nn.Linear(196, 10))

    [level, *_] = block_levels(resolve_cnn(model(), 16))
    assert level
    hold_the_plain_step(torch, model, code_of("fp32", "channels_last", 4, level), torch.randn(8, 3, 16, 16))


def test_the_lines_of_a_plan_move_a_part_at_a_time_and_keep_the_allocator_from_fragmenting():
    lines = code_of("amp_bf16", "channels_last", 4, ()).splitlines()
    allocator = next(position for position, line in enumerate(lines) if "expandable_segments:True" in line)
    assert allocator < lines.index("import torch")
    [moved] = [line for line in lines if "images.to(" in line]
    assert moved.startswith("        images, labels = ")  # in the loop over parts


def test_a_block_that_is_given_a_list_keeps_it_as_it_was(torch):
    class Join(torch.nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.conv, self.act = torch.nn.Conv2d(channels, 2, 1), torch.nn.ReLU()

        def forward(self, maps):
            return self.act(self.conv(torch.cat(maps, 1)))

    class Dense(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.pool = Join(3), Join(5), torch.nn.AdaptiveAvgPool2d(1)
            self.head = torch.nn.Linear(7, 10)

        def forward(self, images):
            maps = [images]
            for layer in (self.first, self.second):
                maps.append(layer(maps))
            return self.head(self.pool(torch.cat(maps, 1)).flatten(1))

    [level] = block_levels(resolve_cnn(Dense(), 16))
    assert any(block.joins for block in level)
    hold_the_plain_step(torch, Dense, code_of("fp32", "nchw", 1, level), torch.randn(4, 3, 16, 16))


def test_runs_of_a_table_correct_no_plan_that_recomputes():
    row = {"gpu": "NVIDIA L4", "cnn": "resnet50", "image_size": 224, "batch_size": 256}
    row |= {"precision": "tf32", "iteration_time_ms": 9_000.0}
    own = OwnMeasurements.of(check_measurements(pd.DataFrame([row]), "rows"), Model.load())
    table = zoo_cnn("resnet50")
    assert len(own.anchors(table, lambda _: Mode(precision="tf32"))) == 1
    assert own.anchors(table.recomputing([range(4, 14)]), lambda _: Mode(precision="tf32")) == ()


def test_a_stage_of_a_sequential_runs_again_by_its_children(torch):
    def model():
        layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2), torch.nn.Flatten()]
        return torch.nn.Sequential(*layers, torch.nn.Linear(196, 10))

    code = code_of("fp32", "nchw", 1, [Block("0 to 2", 0, 2)])
    assert "checkpoint(layers[first : last + 1]" in code
    hold_the_plain_step(torch, model, code, torch.randn(4, 3, 16, 16))


def test_recomputing_a_block_is_what_a_recorded_checkpoint_is(torch):
    from torch.utils.checkpoint import checkpoint

    from predictor.cnns.torch_step import record

    def model(again):
        first, last = (torch.nn.Conv2d(8, 8, 3) for _ in range(2))
        block = torch.nn.Sequential(first, torch.nn.BatchNorm2d(8), last)
        if again:
            block.forward = lambda x, run=block.forward: checkpoint(run, x, use_reentrant=False)
        head = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))
        return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), block, head)

    def table(module):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)

        def step():
            loss = torch.nn.functional.cross_entropy(module(torch.randn(4, 3, 16, 16)), torch.arange(4))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        return record(step)

    plain, recorded = table(model(False)), table(model(True))
    positions = [position for position, layer in enumerate(recorded) if layer.recomputed]
    planned = plain.recomputing([positions])
    assert positions
    for position in positions[:-1]:  # PyTorch stops before the last layer, of which it needs the input alone
        assert planned.layers[position].forwards == recorded.layers[position].forwards == 2
    assert peak_memory_gib(planned, 4096) == pytest.approx(peak_memory_gib(recorded, 4096), rel=0.02)
