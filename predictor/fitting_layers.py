"""From measured operators to served layer models: libraries, weights and intervals, on top of what is known already.

Called by fitting (the shipped ones) and own_measurements (a user's); calls the `layer-times` estimator's parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.layer_models import LayerModel, LayerModels
from predictor.measurement_noise import disturbed_rows

if TYPE_CHECKING:
    import pandas as pd

    from predictor.layer_law import LayerLaw

__all__ = ["fit_layer_models"]


def fit_layer_models(measurements: pd.DataFrame, known: LayerModels | None = None) -> list[LayerModel]:
    """Layer models of every GPU and mode whose operators a measurement table has; none if it has no operators.

    Parameters
    ----------
    measurements : DataFrame
        A checked measurement table; its targets, CNNs of the zoo, pin the weights down.
    known : LayerModels, optional
        What was known before: operators that the table lacks, and weights to start from; another GPU's or mode's
        if need be.
    """
    from predictor.features import feature_table
    from predictor.predictors.layer_times import LayerTimes, libraries_of

    operators = measurements[measurements["kind"] == "operator"]
    targets = measurements[(measurements["kind"].fillna("target") == "target") & _trained(measurements)]
    targets = _of_one_instrument(targets, operators)
    libraries = libraries_of(operators)
    known = known or LayerModels()
    before = {mode: found for mode in libraries if (found := known.find(mode))}
    laws_before = {mode: law for mode in libraries if (law := known.nearest_law(mode))}
    libraries = {
        mode: before[mode].library.updated(library) if mode in before else library
        for mode, library in libraries.items()
    }
    if not libraries:
        return []
    estimator = LayerTimes()
    features = feature_table(targets) if len(targets) else None
    libraries, laws = estimator.learn(libraries, features, laws_before)
    return [LayerModel(library, _with_noise(laws[mode], operators)) for mode, library in libraries.items()]


def _with_noise(law: LayerLaw, operators: pd.DataFrame) -> LayerLaw:
    """The law, which says so where other work disturbed what it stands on."""
    disturbed = disturbed_rows(operators)
    if not disturbed:
        return law
    told = f"{disturbed} of {len(operators)} measurements were disturbed by other work"
    return replace(law, trained_on=f"{law.trained_on}; {told}")


def _of_one_instrument(targets: pd.DataFrame, operators: pd.DataFrame) -> pd.DataFrame:
    """Targets of the sources that measured operators, too: others' iterations hold other work (kept gradients)."""
    if "source" not in targets or not len(operators):
        return targets
    same = targets[targets["source"].isin(operators["source"].unique())]
    return same if len(same) else targets


def _trained(frame: pd.DataFrame) -> Any:
    if "pass" not in frame:
        return np.ones(len(frame), dtype=bool)
    return frame["pass"].fillna("training") == "training"
