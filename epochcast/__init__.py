"""How long one epoch of a CNN takes on a GPU, what it costs, whether it fits, and how sure the answer is.

>>> import epochcast
>>> answer = epochcast.predict("resnet50", gpu="V100-SXM2-16GB", batch_size=[32, 64], data_set="imagenet")
>>> list(answer["batch_size"])
[32, 64]

Everything loads when it is first used, so that `import epochcast` and `epochcast --help` are fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochcast.api import (
        compare,
        evaluate,
        explain,
        fit,
        largest_batch_size,
        load_measurements,
        parallel_ways,
        predict,
        profile,
    )
    from epochcast.callbacks import lightning_callback, trainer_callback
    from epochcast.client import Client
    from epochcast.watching import watch
    from predictor.cnns.builder import NetBuilder
    from predictor.cnns.torch_step import record

__all__ = [
    "Client",
    "NetBuilder",
    "compare",
    "evaluate",
    "explain",
    "fit",
    "largest_batch_size",
    "lightning_callback",
    "load_measurements",
    "parallel_ways",
    "predict",
    "profile",
    "record",
    "trainer_callback",
    "watch",
]

_HOME = dict.fromkeys(__all__, "epochcast.api") | {
    "Client": "epochcast.client",
    "NetBuilder": "predictor.cnns.builder",
    "lightning_callback": "epochcast.callbacks",
    "record": "predictor.cnns.torch_step",
    "trainer_callback": "epochcast.callbacks",
    "watch": "epochcast.watching",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("epochcast")
    if name not in _HOME:
        raise AttributeError(f"module 'epochcast' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        value = getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        hidden = import_module("epochcast.installation").shadowed()
        if not hidden:
            raise
        raise ImportError(" ".join(hidden)) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
