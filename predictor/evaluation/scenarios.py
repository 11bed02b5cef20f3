"""The scenarios of an evaluation: which rows a predictor is fitted on, which it may know, which it is tested on.

A new one is one entry in `SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from predictor.errors import DataError, nearest
from predictor.evaluation import splits
from predictor.evaluation.splits import Fold, Positions, SplitTable, target_rows

if TYPE_CHECKING:
    import pandas as pd

_OF_LAYERS = ("layer-times", "roofline", "flops-ratio")
DEFAULT = "default"
"""Name in evaluations of the model as it is shipped, which is not fitted again; it may know the rows."""

_OF_STUDY = ("gpu-specs", "proxy-times", DEFAULT, "flops-ratio")
SCALINGS = {"problem": "scaling-problem", "hardware": "scaling-hardware", "both": "scaling-both"}
"""The founding study's questions, by what differs from the training rows, and their scenarios."""

Split = Callable[[SplitTable], Iterable[Fold]]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question that predictors answer, with its split.

    `sources` are the data sets whose rows are tested, on fits of all sources; of a table without published data, such
    as a user's own, it takes every row. `group` is the column whose worst value is reported. `goal` and `start`
    (best figure known before this project) are MAPE as fractions, None where there is none. `answer` is
    the predicted column; `known` names measured columns that predictors may read. Without `host_known` the machines
    are hidden. `predictors` are the registered names that apply, all where it is empty. One that `repeats` another on
    other data is left out on a table without published rows; one of `scaling` is judged only where it is asked for.
    """

    name: str
    title: str
    question: str
    split: Split
    sources: tuple[str, ...] = ("profet",)
    group: str = "cnn"
    goal: float | None = None
    start: float | None = None
    answer: str = "iteration_time_ms"
    known: tuple[str, ...] = ()
    host_known: bool = True
    repeats: bool = False
    predictors: tuple[str, ...] = ()
    scaling: bool = False

    @property
    def for_any_table(self) -> bool:
        """Whether a table without layers or published data is judged on the scenario by default."""
        return self.answer != "gpu_time_ms" and not self.repeats and not self.scaling

    def rows(self, features: pd.DataFrame) -> Positions:
        """Positions of the target rows that the scenario is about."""
        judged = holds_published_rows(features) and self.sources
        return target_rows(features, self.sources if judged else ())

    def folds(self, features: pd.DataFrame, seed: int = 0) -> list[Fold]:
        """Folds of a feature table, the same for the same table and seed; no fit sees rows marked ``held_out``.

        DataError if the table's rows give no fold.
        """
        rows = self.rows(features)
        fitted = np.ones(len(features), dtype=bool)
        if "held_out" in features:
            fitted = ~features["held_out"].to_numpy(dtype=bool)
        splits = self.split(SplitTable(features, rows, seed))
        shown = (replace(fold, train=fold.train[fitted[fold.train]]) for fold in splits)
        folds = [fold for fold in shown if fold.train.size and fold.test.size]
        if not folds:
            raise DataError(
                f"{self.name}: the table's {rows.size} rows of CNNs give no fold. "
                "It needs at least two groups of the kind that the scenario holds out (docs/evaluation.md)."
            )
        return folds


def holds_published_rows(features: pd.DataFrame) -> bool:
    """Whether a feature table holds any of the published data that scenarios are defined on."""
    published = {source for scenario in SCENARIOS.values() for source in scenario.sources}
    return "source" in features and bool(features["source"].isin(published).any())


def find_scenario(name: str) -> Scenario:
    """Find the scenario of that name; a DataError with the nearest names if there is none."""
    if name not in SCENARIOS:
        raise DataError(
            f"no scenario is called {name!r}. Nearest: {nearest(name, SCENARIOS)}; "
            f"known: {', '.join(SCENARIOS)}."
        )
    return SCENARIOS[name]


# fmt: off
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in (
    Scenario(
        "problem-scaling", "Problem scaling: an unseen batch size",
        "How long does an iteration take at a batch size between those that were measured?",
        goal=0.019, start=0.025, split=splits.problem_scaling,
    ),
    Scenario(
        "unseen-batch-size", "A batch size at which no CNN was measured",
        "How long does an iteration take at batch 64, where CNNs were measured only at other batch sizes?",
        goal=0.055, start=0.105, split=splits.unseen_batch_size, predictors=("roofline",),
    ),
    Scenario(
        "problem-scaling-fine-grid", "Problem scaling on a fine grid of batch sizes",
        "With five batch sizes of the CNN, and its layers at all batch sizes, how long do the others take?",
        sources=("h200",), goal=0.010, start=0.035, split=splits.fine_grid, answer="gpu_time_ms",
        predictors=("layer-times", "interpolation", "line"),
    ),
    Scenario(
        "unseen-cnn-layers-measured", "An unseen CNN whose layers were measured on the GPU",
        "How long does a CNN take whose single layers, but not itself, were measured?",
        sources=("h200",), goal=0.015, start=0.025, split=splits.layers_measured, answer="gpu_time_ms",
        predictors=_OF_LAYERS,
    ),
    Scenario(
        "unseen-cnn-library-preset", "An unseen CNN, only the designed library of layers measured",
        "How long does a CNN take on a GPU where the preset library, and nothing else, was measured?",
        sources=("h200",), goal=0.04, split=partial(splits.preset_library, largest="library"), answer="gpu_time_ms",
        predictors=("layer-times",),
    ),
    Scenario(
        "unseen-cnn-quick-preset", "An unseen CNN, only the quick library of layers measured",
        "How long does a CNN take on a GPU that was measured for three minutes?",
        sources=("h200",), goal=0.06, split=partial(splits.preset_library, largest="quick"), answer="gpu_time_ms",
        predictors=("layer-times",),
    ),
    Scenario(
        "same-chip-specs", "An unseen card of a chip whose operators were measured on another card",
        "How long does a CNN take on a card that was never measured, given another card of its chip?",
        sources=("h200", "h100"), goal=0.04, start=0.32, split=splits.same_chip, answer="gpu_time_ms",
        predictors=_OF_LAYERS,
    ),
    Scenario(
        "same-chip-quick", "An unseen CNN on a card measured for three minutes, another card of its chip known well",
        "How long does a CNN take that was run nowhere, where operators of both cards were measured?",
        sources=("h100",), goal=0.04, start=0.043, split=splits.same_chip_quick, answer="gpu_time_ms",
        predictors=("layer-times",),
    ),
    Scenario(
        "unseen-cnn", "An unseen CNN, only other CNNs measured on the GPU",
        "How long does a CNN take that was never run, on GPUs where other CNNs ran?",
        goal=0.06, start=0.087, split=splits.unseen_cnn,
    ),
    Scenario(
        "unseen-cnn-host-unknown", "An unseen CNN on a machine of which only the GPU is known",
        "How long does a CNN take that was never run, on a measured GPU in a machine that was not?",
        split=splits.unseen_cnn, predictors=("roofline",), host_known=False, repeats=True,
    ),
    Scenario(
        "unseen-cnn-one-run", "An unseen CNN with one run of it at a middle batch size",
        "How much does one run of the CNN on that GPU, at batch 64, help for its other batch sizes?",
        goal=0.05, start=0.056, split=splits.unseen_cnn_one_run,
    ),
    Scenario(
        "unseen-cnn-run-elsewhere", "An unseen CNN with one run of it on another GPU",
        "How much does one run of the CNN at batch 64 on another GPU help, where other CNNs ran on both?",
        goal=0.11, split=splits.unseen_cnn_run_elsewhere, predictors=("anchored", "flops-ratio"),
    ),
    Scenario(
        "unseen-gpu", "An unseen GPU from its specifications, all sources",
        "How long does a CNN, measured elsewhere, take on a chip that has no measurement of anything?",
        sources=("profet", "lambda-tf", "pytorch/gpu-benchmark", "pytorch/lambda", "pytorch/sia", "timm", "h200"),
        group="gpu", goal=0.11, start=0.158, split=splits.unseen_gpu, predictors=("roofline",), repeats=True,
    ),
    Scenario(
        "unseen-gpu-specs", "An unseen GPU from its specifications (S)",
        "How long does a CNN, measured elsewhere, take on a GPU known by its data sheet only?",
        group="gpu", goal=0.12, start=0.164, split=splits.unseen_gpu,
    ),
    Scenario(
        "unseen-gpu-specs-lambda", "An unseen GPU from its specifications (S), 14 GPUs",
        "How long does a CNN, measured elsewhere, take on a chip known by its data sheet only?",
        sources=("lambda-tf",), group="gpu", goal=0.07, start=0.084, split=splits.unseen_gpu, repeats=True,
    ),
    Scenario(
        "unseen-gpu-anchored", "An unseen GPU, the CNN measured on other GPUs (A)",
        "How long does a CNN new to the fit take on a new GPU, given its runs on other GPUs?",
        group="gpu", goal=0.08, start=0.112, split=splits.unseen_gpu_anchored,
    ),
    Scenario(
        "problem-and-hardware-scaling", "Problem and hardware scaling: an unseen GPU at an unseen batch size",
        "How long does a CNN take on a new GPU at a batch size that was measured nowhere?",
        group="gpu", goal=0.12, split=splits.problem_and_hardware_scaling,
    ),
    Scenario(
        "scaling-problem", "The study's problem scaling: the same GPU, another batch size",
        "How long does an iteration take at a batch size between those that were measured on the GPU?",
        sources=(), goal=0.08, split=splits.study_problem, predictors=(*_OF_STUDY, "interpolation", "line"),
        scaling=True,
    ),
    Scenario(
        "scaling-hardware", "The study's hardware scaling: GPU 1 -> GPU 2",
        "How long does a CNN, measured on other GPUs, take on one that gives its proxies and no CNN?",
        sources=(), group="gpu", split=splits.study_hardware, predictors=_OF_STUDY, scaling=True,
    ),
    Scenario(
        "scaling-both", "The study's problem and hardware scaling: GPU 1 -> GPU 2 at another batch size",
        "How long does it take there at a batch size at which it was measured nowhere?",
        sources=(), group="gpu", goal=0.12, split=splits.study_both, predictors=_OF_STUDY, scaling=True,
    ),
    Scenario(
        "epoch-time", "Epoch time from iteration time",
        "Given an iteration's time, how long is an epoch on an unseen GPU, or of an unseen CNN?",
        goal=0.03, start=0.07, split=splits.epoch_time, answer="epoch_time_s", known=("iteration_time_ms",),
        predictors=("roofline",),
    ),
)}
# fmt: on
