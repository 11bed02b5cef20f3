"""Each training step of the corpus is recorded as its expected layer table says, row by row, and keeps its memory.

`python tests/predictor_tests/cnns_tests/test_corpus.py` writes the expected tables again, where a change is meant.
"""

import csv
import json
import random
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from peers import product_flops

from api.layer_tables import LayerTableIn, inline_table
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.torch_step import record
from predictor.errors import SchemaError
from predictor.operators.memory import peak_memory
from predictor.operators.work import PASSES

FOLDER = Path(__file__).with_name("recorded_steps")
TABLES = FOLDER / "tables"

REFUSED = {"early_exit_that_depends_on_data"}
COUNTED_OTHERWISE = {
    "gan_with_gradient_penalty",  # PyTorch's formula takes the filters' second gradients for larger than they are
    "layers_left_out_at_random",  # other layers each time
    "text_lines_read_by_an_lstm",  # PyTorch's formulas lack the LSTM
    "tokens_of_maps_in_a_transformer",  # a fused attention computes one product again
}


UNREADABLE = {
    "blurred_one_by_one",  # a filter of one image alone, whose channels are taken for its mini-batch
    "phase_of_a_schedule_among_constants",  # whose first row waits, and a CSV names rows from 1
    "unequal_mini_batches_order_12_4",  # three images of the larger mini-batch lie below each other, as one map
    "unequal_mini_batches_order_4_12",
    "yolo_task_aligned",  # joins lists whose numbers are those of maps
}
"""Steps whose tables are refused as CSV: sizes of their rows contradict each other."""


def corpus() -> dict[str, Callable[[], Callable[[], object]]]:
    """Makers of the steps, by name."""
    sys.path.insert(0, str(FOLDER))
    try:
        import habits
        import nn_unet
        import other_steps
        import yolo
    finally:
        sys.path.remove(str(FOLDER))
    detectors = {
        f"yolo_{name.replace(' ', '_')}": lambda name=name: yolo.step_of(name) for name in yolo.LOSSES
    }
    unets = {f"nn_unet_{n}d": lambda n=n: nn_unet.step_of(n, 2, 16, (4, 8, 16)) for n in (2, 3)}
    return habits.STEPS | other_steps.STEPS | detectors | unets


def seeded(make: Callable[[], Any]) -> Any:
    import torch

    random.seed(0)
    torch.manual_seed(0)
    return make()


def memory_of(table: LayerTable) -> dict[str, str]:
    """Bytes of each part of the peak memory, as text."""
    assert table.step is not None
    return {
        part: repr(n_bytes) for part, n_bytes in asdict(peak_memory(table, table.step.batch_size)).items()
    }


@pytest.fixture(scope="module")
def steps(torch: Any) -> dict[str, Any]:
    return {name: seeded(make) for name, make in corpus().items()}


@pytest.fixture(scope="module")
def tables(steps: dict[str, Any]) -> dict[str, LayerTable]:
    recorded, refused = {}, set()
    for name, step in steps.items():
        try:
            recorded[name] = seeded(lambda step=step, name=name: record(step, name=name))
        except SchemaError:
            refused.add(name)
    assert refused == REFUSED
    return recorded


pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def test_each_step_has_the_rows_passes_mode_and_warnings_of_its_expected_table(tables, tmp_path):
    assert {path.stem for path in TABLES.iterdir()} == {*tables, "memory"}
    changed = []
    for name, table in tables.items():
        table.to_csv(tmp_path / "table.csv")
        lines = (TABLES / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        differ = set(lines) ^ set((tmp_path / "table.csv").read_text(encoding="utf-8").splitlines())
        changed += [f"{name}: {line}" for line in sorted(differ)]
    assert changed == []


def test_each_step_keeps_the_memory_that_is_expected(tables):
    with (TABLES / "memory.csv").open(newline="", encoding="utf-8") as file:
        expected = {row.pop("step"): row for row in csv.DictReader(file)}
    changed = {
        name: row
        for name, row in expected.items()
        if {key: float(n_bytes) for key, n_bytes in memory_of(tables[name]).items()}
        != pytest.approx({key: float(n_bytes) for key, n_bytes in row.items()})
    }
    assert (changed, expected.keys()) == ({}, tables.keys())


def test_each_table_written_to_csv_or_sent_as_json_is_read_again_as_it_was(tables):
    changed = []
    for name in tables.keys() - UNREADABLE:
        table = tables[name]
        document = json.loads(json.dumps(table.document()))
        again = read_layer_table_csv(TABLES / f"{name}.csv"), inline_table(LayerTableIn(**document))
        changed += [name for copy in again if replace(copy, source=table.source) != table]
    assert changed == []


def flops_of_step(torch: Any, step: Callable[[], object]) -> float:
    """FLOPs of products and convolutions while a step runs; PyTorch's own counter fails in `torch.autograd.grad`."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):  # type: ignore[misc]
        flops = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            formula = flop_registry.get(func.overloadpacket)
            self.flops += formula(*args, **kwargs or {}, out_val=result) if formula else 0.0
            return result

    with Counter() as counter:
        step()
    return counter.flops


def flops_of_table(table: LayerTable) -> float:
    """FLOPs of products and convolutions of a step: every pass as often as it runs."""
    assert table.step is not None
    return product_flops(table, PASSES) * table.step.batch_size / table.parts


def test_the_work_of_a_habit_is_that_which_pytorch_counts_as_it_runs(torch, steps, tables):
    off = {}
    for name in [*sys.modules["habits"].STEPS.keys() & tables.keys(), "unequal_mini_batches_order_12_4"]:
        share = flops_of_table(tables[name]) / flops_of_step(torch, steps[name])
        off |= {name: share} if abs(share - 1) > 0.001 else {}
    assert off.keys() <= COUNTED_OTHERWISE
    assert abs(off.get("tokens_of_maps_in_a_transformer", 1) - 1) < 0.05


def write() -> None:
    """Write the expected tables."""
    TABLES.mkdir(exist_ok=True)
    rows = []
    for name, make in corpus().items():
        if name not in REFUSED:
            step = seeded(make)
            table = seeded(lambda step=step, name=name: record(step, name=name))
            table.to_csv(TABLES / f"{name}.csv")
            rows.append({"step": name, **memory_of(table)})
    with (TABLES / "memory.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write()
