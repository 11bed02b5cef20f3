"""Every predictor by name, and the methods of a question; an estimator is imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True, slots=True)
class Registered:
    """An estimator as ``module:Class`` with its parameters.

    `splits` says whether it tells the GPU's time from the host's, from which other numbers are computed; `needs_runs`
    whether a question has to give measurements of the CNN; `serves` whether a question may name it, which baselines of
    `evaluate` do not.
    """

    estimator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    splits: bool = False
    needs_runs: bool = False
    serves: bool = True


_MODULES = "founding", "baselines", "roofline.model"
_FOUNDING, _BASELINES, _ROOFLINE = (f"predictor.models.{name}" for name in _MODULES)

PREDICTORS: dict[str, Registered] = {
    "gpu-specs": Registered(f"{_FOUNDING}:GpuSpecs"),
    "proxy-times": Registered(f"{_FOUNDING}:ProxyTimes"),
    "layer-times": Registered("predictor.models.layer_times.estimator:LayerTimes", splits=True),
    "roofline": Registered(f"{_ROOFLINE}:Roofline", splits=True),
    "anchored": Registered(f"{_ROOFLINE}:Anchored", splits=True, needs_runs=True),
    "flops-ratio": Registered(f"{_BASELINES}:FlopsRatio"),
    "interpolation": Registered(f"{_BASELINES}:Interpolation", serves=False),
    "line": Registered(f"{_BASELINES}:Line", serves=False),
}
"""docs/predictors.md says what each predictor needs and when it is the best choice."""

METHODS = ("auto", *(name for name, entry in PREDICTORS.items() if entry.serves))
"""Methods of a question; ``auto`` selects the best one for the available measurements."""

WHOLE_METHODS = tuple(name for name, entry in PREDICTORS.items() if entry.serves and not entry.splits)
"""Methods that predict whole iterations on one GPU and no part of them."""


def estimator_class(name: str) -> Any:
    """The class of a registered estimator, imported now."""
    module, class_ = PREDICTORS[name].estimator.split(":")
    return getattr(import_module(module), class_)


def name_of(class_: type) -> str:
    """The registered name of a predictor's class, else the class's own."""
    path = f"{class_.__module__}:{class_.__qualname__}"
    return next((name for name, entry in PREDICTORS.items() if entry.estimator == path), class_.__qualname__)
