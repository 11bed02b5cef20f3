"""The scenarios of an evaluation: which rows a predictor is fitted on, which it may know, which it is tested on.

A new one is one row of ``scenarios.csv`` and, where its split is new, a function of `predictor.evaluation.splits`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.rows import read_rows
from predictor.errors import DataError, nearest
from predictor.evaluation import splits
from predictor.evaluation.splits import Fold, Positions, SplitTable, target_rows
from predictor.files import data_file

if TYPE_CHECKING:
    import pandas as pd

DEFAULT = "default"
"""Name in evaluations of the model as it is shipped, which is not fitted again; it may know the rows."""

SCALINGS = {"problem": "scaling-problem", "hardware": "scaling-hardware", "both": "scaling-both"}
"""The founding study's questions, by what differs from the training rows, and their scenarios."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question that predictors answer, a row of ``scenarios.csv``.

    `split` is a function of `predictor.evaluation.splits`. `sources` are the data sets whose rows are tested, on fits
    of all sources; all where it is empty, or in a table without published data. `group` is the column whose worst value
    is reported. `goal` and `start` (best figure known before this project) are MAPE as fractions, None where there is
    none. `answer` is the predicted column; `known` names measured columns that predictors may read. Without
    `host_known` the machines are hidden. `predictors` are the registered names that apply, all where it is empty. One
    that `repeats` another on other data is left out on a table without published rows; one of `scaling` is judged only
    on request.
    """

    name: str
    title: str
    question: str
    split: str
    sources: tuple[str, ...] = ()
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
        splits_of = getattr(splits, self.split)(SplitTable(features, rows, seed))
        shown = (replace(fold, train=fold.train[fitted[fold.train]]) for fold in splits_of)
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


SCENARIOS = {scenario.name: scenario for scenario in read_rows(Scenario, data_file("scenarios.csv"))}
