"""How long one epoch of a CNN takes on a GPU, what it costs, whether it fits, and how sure the answer is.

>>> import epochcast
>>> answer = epochcast.predict("resnet50", gpu="V100-SXM2-16GB", batch_size=[32, 64], data_set="imagenet")
>>> list(answer["batch_size"])
[32, 64]

Everything loads when it is first used, so that `import epochcast` and `epochcast --help` are fast.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochcast.api import (
        check,
        compare,
        diff,
        explain,
        fit_memory,
        largest_batch_size,
        parallel_ways,
        predict,
    )
    from epochcast.callbacks import lightning_callback, trainer_callback
    from epochcast.frames import AnswerFrame
    from epochcast.measured import evaluate, feature_table, fit, load_measurements, profile
    from epochcast.watching import watch
    from predictor.answers.answer import PredictionRow
    from predictor.answers.check import Cause, Checkup
    from predictor.answers.diff import Difference
    from predictor.answers.explain import Explanation
    from predictor.answers.fit_memory import MemoryPlan, MemoryPlans
    from predictor.answers.parallel import ParallelWay
    from predictor.answers.ranking import ComparisonRow
    from predictor.answers.verdict import Verdict
    from predictor.cnns.builder import NetBuilder
    from predictor.cnns.torch_step import record

__all__ = [
    "AnswerFrame", "Cause", "Checkup", "ComparisonRow", "Difference", "Explanation", "MemoryPlan", "MemoryPlans",
    "NetBuilder", "ParallelWay", "PredictionRow", "Verdict", "check", "compare", "diff", "evaluate", "explain",
    "feature_table", "fit", "fit_memory", "largest_batch_size", "lightning_callback", "load_measurements",
    "parallel_ways", "predict", "profile", "record", "trainer_callback", "watch",
]  # fmt: skip

_NAMES = {
    "epochcast.callbacks": "lightning_callback trainer_callback",
    "epochcast.frames": "AnswerFrame",
    "epochcast.measured": "evaluate feature_table fit load_measurements profile",
    "epochcast.watching": "watch",
    "predictor.answers.answer": "PredictionRow",
    "predictor.answers.check": "Cause Checkup",
    "predictor.answers.diff": "Difference",
    "predictor.answers.explain": "Explanation",
    "predictor.answers.fit_memory": "MemoryPlan MemoryPlans",
    "predictor.answers.parallel": "ParallelWay",
    "predictor.answers.ranking": "ComparisonRow",
    "predictor.answers.verdict": "Verdict",
    "predictor.cnns.builder": "NetBuilder",
    "predictor.cnns.torch_step": "record",
}
_HOME = {name: home for home, names in _NAMES.items() for name in names.split()}
"""Modules of names; those of all others are `epochcast.api`."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("epochcast")
    if name not in __all__:
        raise AttributeError(f"module 'epochcast' has no attribute {name!r}; it has {', '.join(__all__)}")
    try:
        value = getattr(import_module(_HOME.get(name, "epochcast.api")), name)
    except ImportError as error:
        hidden = import_module("epochcast.installation").shadowed()
        if not hidden:
            raise
        raise ImportError(" ".join(hidden)) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})


class _ChainerFinder:
    """Lets ``import chainer`` work beside a current numpy, in a notebook or a file with a CNN; it fails otherwise."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        if name != "chainer":
            return None
        return import_module("predictor.cnns.chainer_compat").ChainerFinder.find_spec(name)


sys.meta_path.insert(0, _ChainerFinder)
