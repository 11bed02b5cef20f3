"""Every predictor by name, and the methods of a question; an estimator is imported when first used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from predictor.errors import SchemaError, nearest

if TYPE_CHECKING:
    from predictor.models.base import FeatureTablePredictor

__all__ = ["METHODS", "PREDICTORS", "Registered", "new_predictor"]


@dataclass(frozen=True, slots=True)
class Registered:
    """An estimator as ``module:Class`` with its parameters; if `served`, questions may choose it as method."""

    estimator: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    served: bool = False


_FOUNDING, _BASELINES, _ROOFLINE = (
    f"predictor.models.{name}" for name in ("founding", "baselines", "roofline.model")
)

PREDICTORS: dict[str, Registered] = {
    "gpu-specs": Registered(f"{_FOUNDING}:GpuSpecs"),
    "gpu-specs-relative": Registered(f"{_FOUNDING}:GpuSpecs", {"relative": True}),
    "proxy-times": Registered(f"{_FOUNDING}:ProxyTimes"),
    "proxy-times-relative": Registered(f"{_FOUNDING}:ProxyTimes", {"relative": True}),
    "layer-times": Registered("predictor.models.layer_times.estimator:LayerTimes", served=True),
    "roofline": Registered(f"{_ROOFLINE}:Roofline", served=True),
    "anchored": Registered(f"{_ROOFLINE}:Anchored", served=True),
    "flops-ratio": Registered(f"{_BASELINES}:FlopsRatio"),
    "interpolation": Registered(f"{_BASELINES}:Interpolation"),
    "line": Registered(f"{_BASELINES}:Line"),
}
"""docs/predictors.md says what each predictor needs and when it is the best choice."""

METHODS = ("auto", *(name for name, entry in PREDICTORS.items() if entry.served))
"""Methods of a question; ``auto`` selects the best one for the available measurements."""


def new_predictor(name: str) -> FeatureTablePredictor:
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
    entry = PREDICTORS[name]
    module, class_ = entry.estimator.split(":")
    made: FeatureTablePredictor = getattr(import_module(module), class_)(**entry.parameters)
    return made
