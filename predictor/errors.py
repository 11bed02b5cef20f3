"""Every error that epochcast raises on purpose, in one tree.

Raised everywhere below `epochcast`; mapped once to HTTP answers by `api` and to exit codes by the command.
A message gives the offending value, the valid range or the nearest valid names, and the next step.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Self


class EpochcastError(Exception):
    """Root of the tree: catch this to catch everything that epochcast refuses.

    `option` names the option of a question that is at fault, where one is.
    """

    option: str | None = None

    def about(self, option: str) -> Self:
        """Name the question's option at fault, unless one is named already; returns the error itself."""
        self.option = self.option or option
        return self

    def __str__(self) -> str:  # LookupError's children would print their message quoted
        return str(self.args[0]) if self.args else ""


class DataError(EpochcastError):
    """The input data cannot be used."""


class SchemaError(DataError, ValueError):
    """A table, file or value does not have the form that is documented for it."""


class UnknownGpuError(DataError, LookupError):
    """No GPU, or more than one, goes by this name."""

    option = "gpus"


class UnknownCnnError(DataError, LookupError):
    """No CNN goes by this name."""

    option = "cnn"


class ModelError(EpochcastError):
    """The model cannot answer."""


class NotFittedError(ModelError):
    """The predictor was used before it was fitted."""


class ArtifactError(ModelError):
    """A stored model is damaged, of another version, or not trusted."""


class OutOfRangeError(ModelError, ValueError):
    """The question lies outside what the model or the CNN allows."""


class StoreError(EpochcastError):
    """The measurement store cannot be reached, or refuses."""


class ServiceError(EpochcastError):
    """A service that was asked refuses, or does not answer."""


class ProfilingError(EpochcastError):
    """A measurement could not be made."""


class BackendUnavailableError(ProfilingError, ImportError):
    """A framework is not installed or finds no device."""


class DeviceOutOfMemoryError(ProfilingError):
    """The configuration does not fit in the device's memory."""


class NoisyMeasurementError(ProfilingError):
    """Something disturbed the measurement, so that its times cannot be trusted."""


def nearest(name: str, known: Iterable[str], n: int = 3) -> str:
    """At most `n` names of `known` like `name`, quoted and comma-separated; ``nothing is similar`` if none is."""
    by_key = {k.casefold(): k for k in known}
    matches = get_close_matches(name.casefold(), by_key, n=n, cutoff=0.3)
    return ", ".join(repr(by_key[k]) for k in matches) or "nothing is similar"


class EpochcastWarning(Warning):
    """Root of all warnings: filter this to filter everything that epochcast warns of."""


class RetiredOptionWarning(EpochcastWarning, FutureWarning):
    """An option was given by a name that the next minor version does not take."""


class BudgetExceededError(EpochcastError):
    """A watched training would cost or take more than its limit if it went on."""


class LeftOutWarning(EpochcastWarning, UserWarning):
    """What was named is not in the answer: a GPU without the precision that another one has, a method without rows."""
