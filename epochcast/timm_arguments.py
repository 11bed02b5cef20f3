"""The arguments of timm's `train.py`, as they are typed there, as arguments of a command here (`--args "..."`)."""

import argparse
import json
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

from predictor.cnns.zoo import zoo_names
from predictor.errors import SchemaError, nearest

_TAKEN: dict[str, dict[str, Any]] = {
    "--model": {}, "-b --batch-size": {"type": int}, "--epochs": {"type": int}, "--img-size": {"type": int},
    "--input-size": {"type": int, "nargs": 3}, "--amp": {"action": "store_true"}, "--amp-dtype": {}, "--opt": {},
    "--channels-last": {"action": "store_true"}, "--torchcompile": {"nargs": "?", "const": "inductor"},
    "--sync-bn": {"action": "store_true"}, "-j --workers": {}, "--grad-accum-steps": {"type": int, "default": 1},
    "--nproc-per-node --nproc_per_node": {"type": int},
}  # fmt: skip
_LEFT, _SWITCHES, _CHANGING = (
    json.loads(Path(__file__).with_name("timm_arguments.json").read_text(encoding="utf-8"))[kind]
    for kind in ("left", "switches", "changing")
)
"""Arguments with a value and switches that are not read; those that change an iteration, and that no option tells."""
_OPTIMIZERS = {"sgd": "momentum", "momentum": "momentum", "nesterov": "momentum", "rmsproptf": "rmsprop"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SchemaError(f"--args: {message}. Give the arguments of timm's train.py in one pair of quotes.")


def with_timm_arguments(typed: Sequence[str]) -> tuple[list[str], str]:
    """Typed words with `--args "..."` replaced by options of this command, and a note that says so.

    SchemaError if it names no model, an argument that is not known, or a value of the wrong kind.
    """
    position = next(i for i, word in enumerate(typed) if word.partition("=")[0] == "--args")
    _, has_text, text = typed[position].partition("=")
    text = text if has_text else "".join(typed[position + 1 : position + 2])
    own_words = [*typed[:position], *typed[position + 2 - bool(has_text) :]]
    parser = _Parser(add_help=False, allow_abbrev=False)
    for names, more in _TAKEN.items():
        parser.add_argument(*names.split(), **more)
    for name in _LEFT:
        parser.add_argument(name)
    for name in _SWITCHES:
        parser.add_argument(name, action="store_true")
    arguments, words = parser.parse_known_args(shlex.split(text))
    unknown = [word for word in words if word.startswith("-")]
    if unknown or not arguments.model:
        flags = [name for names in _TAKEN for name in names.split()] + [*_LEFT, *_SWITCHES]
        raise SchemaError(
            f"--args: {unknown[0]!r} is not known. Nearest: {nearest(unknown[0], flags)}. Leave it out."
            if unknown
            else "--args names no --model. Give timm's, such as --args '--model resnet50 -b 256 --amp'."
        )
    own = _options(arguments)
    left = sorted(f"--{name.replace('_', '-')}" for name in _CHANGING if getattr(arguments, name))
    note = f"--args read as: epochcast {' '.join([*own_words[:1], *own, *own_words[1:]])}"
    note += f"; not counted: {', '.join(left)}" if left else ""
    return [*own_words[:1], *own, *own_words[1:]], note


def _options(arguments: Any) -> list[str]:
    in_zoo = arguments.model in zoo_names() and find_spec("timm") is None
    gpus, parts = arguments.nproc_per_node or 1, arguments.grad_accum_steps
    half = {"float16": "amp_fp16", "bfloat16": "amp_bf16"}.get(arguments.amp_dtype or "float16")
    if half is None:
        raise SchemaError(f"--args: --amp-dtype {arguments.amp_dtype!r} is none of float16, bfloat16.")
    side = arguments.img_size or (arguments.input_size or [None])[-1]
    pairs = {
        "--batch-size": (arguments.batch_size or 128) * parts * gpus,
        "--n-gpus": gpus if gpus > 1 else None,
        "--gradient-accumulation": parts if parts > 1 else None,
        "--precision": half if arguments.amp or arguments.native_amp or arguments.apex_amp else None,
        "--memory-format": "channels_last" if arguments.channels_last else None,
        "--capture": "compile" if arguments.torchcompile else None,
        "--optimizer": _OPTIMIZERS.get(arguments.opt or "sgd", arguments.opt),
        "--image-size": side,
        "--epochs": arguments.epochs,
        "--workers": arguments.workers,
    }
    words = [str(word) for name, value in pairs.items() if value is not None for word in (name, value)]
    words += ["--sync-batch-norm"] if arguments.sync_bn else []
    return [arguments.model if in_zoo else f"timm:{arguments.model}", *words]
