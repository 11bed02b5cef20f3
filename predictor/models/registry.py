"""Every predictor by name, and the methods of a question; an estimator is imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError, nearest

if TYPE_CHECKING:
    from predictor.models.base import Predictor


@dataclass(frozen=True, slots=True)
class Registered:
    """An estimator as ``module:Class`` with its parameters.

    `splits` says whether it tells the GPU's time from the host's, from which other numbers are computed; `needs_runs`
    whether a question has to give measurements of the CNN.
    """

    estimator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    splits: bool = False
    needs_runs: bool = False


_FOUNDING, _BASELINES, _ROOFLINE = (
    f"predictor.models.{name}" for name in ("founding", "baselines", "roofline.model")
)

PREDICTORS: dict[str, Registered] = {
    "gpu-specs": Registered(f"{_FOUNDING}:GpuSpecs"),
    "proxy-times": Registered(f"{_FOUNDING}:ProxyTimes"),
    "layer-times": Registered("predictor.models.layer_times.estimator:LayerTimes", splits=True),
    "roofline": Registered(f"{_ROOFLINE}:Roofline", splits=True),
    "anchored": Registered(f"{_ROOFLINE}:Anchored", splits=True, needs_runs=True),
    "flops-ratio": Registered(f"{_BASELINES}:FlopsRatio"),
    "interpolation": Registered(f"{_BASELINES}:Interpolation", needs_runs=True),
    "line": Registered(f"{_BASELINES}:Line", needs_runs=True),
}
"""docs/predictors.md says what each predictor needs and when it is the best choice."""

METHODS = ("auto", *PREDICTORS)
"""Methods of a question; ``auto`` selects the best one for the available measurements."""

WHOLE_METHODS = tuple(name for name, entry in PREDICTORS.items() if not entry.splits)
"""Methods that predict whole iterations on one GPU and no part of them."""


def new_predictor(name: str) -> Predictor:
    """Make the unfitted scikit-learn estimator of this name.

    Raises
    ------
    SchemaError
        If no predictor has this name; the message lists the nearest.
    """
    if name not in PREDICTORS:
        raise SchemaError(
            f"no predictor is called {name!r}. Nearest: {nearest(name, PREDICTORS)}; "
            f"all: {', '.join(PREDICTORS)}."
        )
    made: Predictor = estimator_class(name)(**PREDICTORS[name].parameters)
    return made


def estimator_class(name: str) -> Any:
    """The class of a registered estimator, imported now."""
    module, class_ = PREDICTORS[name].estimator.split(":")
    return getattr(import_module(module), class_)


def name_of(class_: type) -> str:
    """The registered name of a predictor's class, else the class's own."""
    path = f"{class_.__module__}:{class_.__qualname__}"
    return next((name for name, entry in PREDICTORS.items() if entry.estimator == path), class_.__qualname__)
