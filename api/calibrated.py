"""Models that know the operators of someone's own measurements: fitted once, used by every question about them.

The last few fits are kept by the rows that they are of, because fitting takes longer than the questions that
follow.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from predictor.models.served import Model

if TYPE_CHECKING:
    import pandas as pd

    from predictor.answers.question import OwnMeasurements

__all__ = ["Calibrations"]


class Calibrations:
    """The fits of the last few sets of rows; at most `kept`, each some megabytes."""

    def __init__(self, kept: int = 8) -> None:
        self._kept, self._lock = kept, threading.Lock()
        self._fits: OrderedDict[str, tuple[Model, OwnMeasurements]] = OrderedDict()

    def fit(self, frame: pd.DataFrame, name: str, model: Model) -> OwnMeasurements:
        """Fit these measurements on top of the model, or find that fit again.

        Parameters
        ----------
        frame : DataFrame
            A checked measurement table.
        name : str
            The same for the same rows, such as a hash of them.
        model : Model
            Another model than last time is another fit.

        Raises
        ------
        DataError, SchemaError
            If the rows hold neither operators nor CNNs as trained.
        """
        from predictor.answers.question import OwnMeasurements

        with self._lock:
            known = self._fits.get(name)
        if known is not None and known[0] is model:
            return known[1]
        fitted = OwnMeasurements.of(frame, model)
        with self._lock:
            self._fits[name] = (model, fitted)
            self._fits.move_to_end(name)
            while len(self._fits) > self._kept:
                self._fits.popitem(last=False)
        return fitted
