"""Every predictor by name. Loaded one at a time, since scikit-learn takes a second to import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from predictor.errors import SchemaError, nearest

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["PREDICTORS", "predictor_class"]

PREDICTORS: dict[str, str] = {
    "gpu-specs": "predictor.models.founding:GpuSpecs",
    "gpu-specs-relative": "predictor.models.founding:GpuSpecsRelative",
    "proxy-times": "predictor.models.founding:ProxyTimes",
    "proxy-times-relative": "predictor.models.founding:ProxyTimesRelative",
    "layer-times": "predictor.models.layer_times.estimator:LayerTimes",
    "roofline": "predictor.models.roofline.model:Roofline",
    "anchored": "predictor.models.roofline.model:Anchored",
    "flops-ratio": "predictor.models.baselines:FlopsRatio",
    "interpolation": "predictor.models.baselines:Interpolation",
    "line": "predictor.models.baselines:Line",
}
"""Name -> "module:Class". docs/predictors.md says what each needs and when it is the best choice."""


def predictor_class(name: str) -> type[BaseEstimator]:
    """Import the scikit-learn estimator of this name; SchemaError with the nearest names if there is none."""
    if name not in PREDICTORS:
        raise SchemaError(
            f"no predictor is called {name!r}. Nearest: {nearest(name, PREDICTORS)}; "
            f"all: {', '.join(PREDICTORS)}."
        )
    module, class_ = PREDICTORS[name].split(":")
    found: type[BaseEstimator] = getattr(import_module(module), class_)
    return found
