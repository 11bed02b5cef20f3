"""Refusals of steps that cannot be followed: the module and the line that stop them, and what to write instead."""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from predictor.errors import EpochcastError, SchemaError
from predictor.files import data_file

_DETECTORS = {"rpn": "self.detector.rpn.head(maps)", "head": "self.detector.head(maps)"}
"""What a detector computes on all positions of its maps, by the attribute that it has."""

_PACKAGES = {"site-packages", "dist-packages"}
"""Folders of installed packages, a user's own and those of another environment among them."""

_SEARCHES = (
    "LBFGS decides by numbers how often it calls the closure. Replace `optimizer.step(closure)` by "
    "`for _ in range(n): closure()`, n being how often it usually does; a measured "
    "iteration as an anchor corrects the answer."
)

_ANY_WAY_ROUND = (
    "Check that it runs by itself. Its tensors have no numbers here: leave out what needs them, and give a measured "
    "iteration as an anchor, which corrects the answer."
)


def refusal(error: Exception, path: Sequence[tuple[str, bool]]) -> EpochcastError:
    """The error about a step that stopped by an error of its own, of PyTorch or of ours.

    `path`: modules that were running, the innermost last.
    """
    line = _line(error)
    places = [f"module {path[-1][0]!r}"] if path else []
    if line is not None:
        places.append(f"line {line.lineno} of {Path(line.filename).name}, `{line.line}`")
    where = f" in {', '.join(places)}" if places else ""
    modules = [module for module in _owners(error, "forward") if hasattr(module, "transform")]
    detector = next((remedy for module in modules if (remedy := way_round_detector(module))), None)
    if detector is not None:
        return SchemaError(f"the step stops{where}: {detector}")
    if any(type(optimizer).__name__ == "LBFGS" for optimizer in _owners(error, "step")):
        return SchemaError(f"the step stops{where}: {_SEARCHES}")
    if isinstance(error, EpochcastError):
        return type(error)(f"the step stops{where}: {error}" if where else str(error))
    says = f"{type(error).__name__}: {first_line(error)}"
    if isinstance(error, AttributeError) and (loop := _loop_of(error.obj)):
        return SchemaError(
            f"the step fails{where}: {says}. It may know that only within its loop: record `{loop}` as it trains for "
            "one iteration, such as by `max_steps=1`."
        )
    for words, remedy in json.loads(data_file("ways_round.json").read_text("utf-8")).items():
        if words in says:
            return SchemaError(
                f"the step stops{where}: {remedy}; a measured iteration as an anchor corrects the answer."
            )
    return SchemaError(f"the step fails{where}: {says}. {_ANY_WAY_ROUND}")


def way_round_detector(module: Any) -> str | None:
    """What to give instead of a detector, such as a Faster R-CNN; None if the module is none."""
    dense = next((code for name, code in _DETECTORS.items() if hasattr(module, name)), None)
    if dense is None or not hasattr(module, "backbone"):
        return None
    return (
        "A detector trains on images with targets, and what follows its proposals depends on them. Give what runs on "
        "every image, a module that holds it as self.detector and whose forward(self, images) is "
        f"`maps = list(self.detector.backbone(images).values()); return {dense}`; proposals, box heads and losses "
        "are not counted then."
    )


def first_line(error: Exception) -> str:
    """First sentence of an exception's message, at most 200 characters."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    following = next((line.strip() for line in more if line.strip()), "") if first.endswith(":") else ""
    line = f"{first} {following}".partition(". ")[0].rstrip(". ")
    return line if len(line) <= 200 else f"{line[:197]}..."


def _line(error: Exception) -> traceback.FrameSummary | None:
    """The innermost line of the user's own code: of no installed package, Python's library or this one."""
    folders = (*sysconfig.get_paths().values(), str(Path(__file__).parents[1]))
    lines = (line for line in reversed(traceback.extract_tb(error.__traceback__)) if line.line)
    own = (line for line in lines if not line.filename.startswith(folders))
    return next((line for line in own if not _PACKAGES.intersection(Path(line.filename).parts)), None)


def _loop_of(owner: object) -> str | None:
    """The loop of an object that trains, such as a library's trainer; no module, whose `train` is a mode."""
    if owner is None or hasattr(owner, "forward"):
        return None
    loops = (name for name in ("fit", "train") if callable(getattr(type(owner), name, None)))
    return next((f"{type(owner).__name__}.{name}" for name in loops), None)


def _owners(error: Exception, method: str) -> list[Any]:
    """Objects in whose method of this name it stopped, the outermost first."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return [frame.f_locals.get("self") for frame in frames if frame.f_code.co_name == method]
