"""What to do with a table that `epochcast profile` has just written: commands that work for what was measured.

Operators predict any CNN, on a CPU as well; whole CNNs predict themselves on a GPU; of the rest, the table
tells what was measured and no more.
"""

import shlex
from typing import TYPE_CHECKING

from predictor.catalogue.devices import is_cpu

if TYPE_CHECKING:
    from proxy_cnns.runs import Outcome, Request

__all__ = ["next_steps"]

_ANY_CNN = "resnet50"
_USUAL_BATCH_SIZE = 64


def next_steps(request: "Request", outcome: "Outcome") -> list[str]:
    """Commands to go on with, and a sentence where something else is needed first."""
    out = _quoted(str(outcome.out))
    steps = [f"epochcast data show {out}"]
    kinds = {each.subject.kind for each in request.configurations}
    if "operator" in kinds or ("target" in kinds and not is_cpu(outcome.gpu)):
        return [*steps, _prediction(request, outcome, out)]
    alone = "whole CNNs of a CPU" if "target" in kinds else "proxy CNNs"
    sentence = f"Predictions need operators, not {alone}: measure some with --preset cnn:NAME."
    return [*steps, f"epochcast explain {out}", sentence]


def _prediction(request: "Request", outcome: "Outcome", out: str) -> str:
    """Ask about the CNN that was measured, in the mode and at a batch size that were measured."""
    mode = request.configurations[0].mode
    sizes = {each.batch_size for each in request.configurations}
    size = _USUAL_BATCH_SIZE if _USUAL_BATCH_SIZE in sizes else request.configurations[0].batch_size
    words = ["epochcast predict", _cnn(request), f"--gpu {_quoted(outcome.gpu)}"]
    words += [f"--framework {mode.framework}"] * (mode.framework != "pytorch")
    words += [f"--precision {mode.precision}"]
    words += [f"--memory-format {mode.memory_format}"] * (mode.memory_format != "nchw")
    words += [f"--capture {mode.capture}"] * (mode.capture != "eager") + ["--autotune"] * mode.autotune
    return " ".join([*words, f"--batch-size {size}", f"--measurements {out}"])


def _cnn(request: "Request") -> str:
    """The CNN of ``cnn:`` or the first of ``targets:``; of a preset with whole CNNs its first, else any."""
    from proxy_cnns.user_cnns import names_a_file

    _, _, texts = request.name.partition(":")
    text = texts.split(",")[0].strip()
    if not text:
        cnn = next((each.subject for each in request.configurations if each.subject.kind == "target"), None)
        text = _ANY_CNN if cnn is None else f"{cnn.name}@{cnn.image_size}"
    if names_a_file(text):
        return _quoted(text)
    name, at, size = text.rpartition("@")
    return f"{_quoted(name)} --image-size {size}" if at and size.isdecimal() else _quoted(text)


def _quoted(text: str) -> str:
    """As a shell takes it as one word; in double quotes if that is enough."""
    quoted = shlex.quote(text)
    return quoted if quoted == text or set(text) & set('"$`\\!') else f'"{text}"'
