"""Every predictor by name. Loaded one at a time, since scikit-learn takes a second to import.

Called by evaluation, by `fit` and by notebooks; calls the module that an entry names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from predictor.errors import SchemaError, nearest

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["PREDICTORS", "predictor_class"]

PREDICTORS: dict[str, str] = {
    "gpu-specs": "predictor.predictors.gpu_specs:GpuSpecs",
    "gpu-specs-relative": "predictor.predictors.gpu_specs:GpuSpecsRelative",
    "proxy-times": "predictor.predictors.proxy_times:ProxyTimes",
    "proxy-times-relative": "predictor.predictors.proxy_times:ProxyTimesRelative",
    "layer-times": "predictor.predictors.layer_times:LayerTimes",
    "roofline": "predictor.predictors.roofline:Roofline",
    "anchored": "predictor.predictors.anchored:Anchored",
    "flops-ratio": "predictor.predictors.flops_ratio:FlopsRatio",
    "interpolation": "predictor.predictors.interpolation:Interpolation",
    "line": "predictor.predictors.line:Line",
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
