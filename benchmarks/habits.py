"""How `epochcast.record` takes forty habits of training (`habit_steps.py`): answered, refused, or neither.

Run it as `python benchmarks/habits.py [NAME ...]`, with `--csv FILE` for a table: habit, outcome, share, text; with
`--modules` the modules are read instead of the steps. A share is the multiply-adds that the reader counts over those
that PyTorch counts while the step runs. An answer is wrong if the share lies beyond 0.95 to 1.05 and the answer does
not say that the CNN is uncertain.
"""

import argparse
import csv
import sys
import warnings
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from habit_steps import HABITS, Habit
from machine import machine

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.torch_step import record
from predictor.errors import EpochcastError
from predictor.models.extrapolation import of_table
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_flops

MOST_OFF = 0.05


class Outcome(NamedTuple):
    """What the reader makes of a habit."""

    outcome: str
    share: float | None
    text: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="habits (all)")
    parser.add_argument("--modules", action="store_true", help="read the modules, not the steps")
    parser.add_argument("--csv", type=Path, help="file to write")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in HABITS]
    if unknown:
        parser.error(f"unknown habits {', '.join(unknown)}; known: {', '.join(HABITS)}")
    warnings.simplefilter("ignore")
    outcomes = {name: outcome_of(HABITS[name](), options.modules) for name in options.names or HABITS}
    print(f"habits | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    for name, each in outcomes.items():
        share = "" if each.share is None else f"{each.share:.2f}"
        print(f"{name.replace('_', ' '):45} {each.outcome:15} {share:>6}  {each.text[:150]}")
    counted = Counter(outcome.outcome for outcome in outcomes.values())
    print("\n" + ", ".join(f"{number} {outcome}" for outcome, number in counted.most_common()))
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("habit", *Outcome._fields))
            writer.writerows((name, *each) for name, each in outcomes.items())
    return 0


def outcome_of(habit: Habit, of_module: bool = False) -> Outcome:
    """What becomes of a habit whose module, or step, is given to the reader."""
    import torch

    torch.manual_seed(0)
    real = work_of_step(habit)
    torch.manual_seed(0)
    try:
        table = resolve_cnn(habit.module, habit.image_size) if of_module else record(habit.step)
    except EpochcastError as error:
        return Outcome("refused", None, str(error))
    except Exception as error:  # noqa: BLE001 - what is looked for
        return Outcome("traceback", None, f"{type(error).__name__}: {error}")
    share = work_of_table(table, habit.batch_size) / real
    reasons = "; ".join(map(str, of_table(table)))
    right = abs(share - 1) <= MOST_OFF
    return Outcome("answered" if right else "uncertain" if reasons else "wrong", share, reasons)


def work_of_step(habit: Habit) -> float:
    """FLOPs of products and convolutions while the step runs, by PyTorch's formulas.

    Its own counter cannot be used: it fails where a step asks for gradients by `torch.autograd.grad`.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        flops = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **kwargs or {})
            formula = flop_registry.get(func.overloadpacket)
            self.flops += formula(*args, **kwargs or {}, out_val=result) if formula else 0.0
            return result

    with Counter() as counter:
        habit.step()
    return counter.flops


def work_of_table(table: LayerTable, batch_size: int) -> float:
    """FLOPs of products and convolutions of a training iteration: every pass as often as it runs."""
    products = (layer for layer in table if OPERATOR_TYPES[layer.type].product is not None)
    size = batch_size if table.step is None else table.step.batch_size
    return sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in PASSES) * size / table.parts


if __name__ == "__main__":
    sys.exit(main())
