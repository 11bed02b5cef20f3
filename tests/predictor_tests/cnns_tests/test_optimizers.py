"""A recorded step says what its optimizer keeps, passes and holds beside, whatever the optimizer's class."""

import csv
from ast import literal_eval
from pathlib import Path

import pytest
from case_tables import each_row

from predictor.cnns.torch_step import record

MEASURED = Path(__file__).parents[3] / "benchmarks" / "optimizers_h100.csv"


def step_by(torch, make):
    """Step of a VGG-16's three dense layers, the largest of which has 0.83 of all numbers, as in the whole CNN 0.74."""
    nn = torch.nn
    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(25088, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000))
    module, images = module.to_empty(device="cpu"), torch.empty(4, 25088)
    optimizer = make(module.parameters())

    def step():
        optimizer.zero_grad()
        module(images).mean().backward()
        optimizer.step()

    return record(step).step


with MEASURED.open(newline="", encoding="utf-8") as file:
    ROWS = [*csv.DictReader(file)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['optimizer']} {row['options']}".strip())
def test_states_copies_and_passes_are_those_that_an_h100_was_seen_to_keep_and_run(torch, row):
    options = {"lr": 0.1} | {
        name: literal_eval(value) for name, value in (word.split("=") for word in row["options"].split())
    }
    step = step_by(torch, lambda parameters: getattr(torch.optim, row["optimizer"])(parameters, **options))
    mib = int(row["parameters"]) * 4 / 2**20
    assert step.optimizer_states == pytest.approx(float(row["state_mib"]) / mib, abs=0.01)
    copies = float(row["extra_peak_mib"]) / mib
    share_of_largest = 25088 * 4096 / int(row["parameters"]) if step.optimizer_form == "loop" else 1.0
    largest = 25088 * 4097 / (25088 * 4096 + 4096 * 5096) if step.optimizer_form == "loop" else 1.0
    assert step.optimizer_copies == pytest.approx(copies / share_of_largest * largest, abs=0.01)
    gb_per_s = step.optimizer_passes * int(row["parameters"]) * 4 / float(row["gpu_time_ms"]) / 1e6
    assert gb_per_s == pytest.approx(2690, rel=0.03)  # 0.8 of its bandwidth, by all of them


def lion(torch):
    """A much used optimizer that PyTorch lacks, as its authors write it: one number kept, tensor by tensor."""

    class Lion(torch.optim.Optimizer):
        def __init__(self, parameters, lr=1e-4):
            super().__init__(parameters, {"lr": lr})

        @torch.no_grad()
        def step(self):
            for parameter in (p for group in self.param_groups for p in group["params"]):
                kept = self.state[parameter].setdefault("average", torch.zeros_like(parameter))
                direction = kept.clone().mul_(0.9).add(parameter.grad, alpha=0.1).sign_()
                parameter.add_(direction, alpha=-1e-4)
                kept.mul_(0.99).add_(parameter.grad, alpha=0.01)

    return Lion


@each_row
def test_any_optimizer_is_read_by_what_it_keeps(torch, name, states, form):
    make = lion(torch) if name == "Lion" else getattr(torch.optim, name)
    step = step_by(torch, make)
    assert (step.optimizer_states, step.optimizer_form) == (pytest.approx(states, abs=0.001), form)


def test_a_closure_runs_once_and_its_optimizer_is_read(torch):
    module, images, runs = torch.nn.Conv2d(3, 8, 3), torch.rand(4, 3, 8, 8), []
    optimizer = torch.optim.Adam(module.parameters())

    def closure():
        runs.append(1)
        optimizer.zero_grad()
        loss = module(images).mean()
        loss.backward()
        return loss

    table = record(lambda: optimizer.step(closure))
    assert (table.step.optimizer_states, table.step.optimizer_passes) == (2.0, 18.0)
    assert (len(table), runs, optimizer.state) == (2, [], {})


def test_what_an_optimizer_reads_of_its_parameters_is_no_endless_loop(torch, monkeypatch):
    monkeypatch.setattr("predictor.cnns.torch_trace._MOST_NUMBERS", 3)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    adam = torch.optim.Adam(net.parameters(), foreach=False)

    def step():
        adam.zero_grad()
        net(torch.rand(2, 3, 8, 8)).mean().backward()
        adam.step()

    assert record(step).step.optimizer == "adam"
