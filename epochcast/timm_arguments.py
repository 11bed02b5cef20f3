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

_TAKEN, _LEFT, _SWITCHES, _CHANGING, _TORCHVISIONS = (
    json.loads(Path(__file__).with_name("timm_arguments.json").read_text(encoding="utf-8"))[kind]
    for kind in ("taken", "left", "switches", "changing", "torchvision")
)
"""Arguments that are read, as argparse takes them; those with a value and switches that are not read; those that change
an iteration, and that no option tells; those that only torchvision's `references/classification/train.py` has."""
_LAUNCHER = "distributed_train.sh"
"""timm's documented launcher: its first argument is the number of GPUs."""
_OPTIMIZERS = {"sgd": "momentum", "momentum": "momentum", "nesterov": "momentum", "rmsproptf": "rmsprop"}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SchemaError(f"--args: {message}. Give the arguments of timm's train.py in one pair of quotes.")


def with_timm_arguments(typed: Sequence[str]) -> tuple[list[str], str]:
    """Typed words with `--args "..."` replaced by options of this command, and a note that says so.

    What the command has no option for is left out, and named. SchemaError if `--args` names no model, an argument that
    is not known, or a value of the wrong kind.
    """
    position = next(i for i, word in enumerate(typed) if word.partition("=")[0] == "--args")
    _, has_text, text = typed[position].partition("=")
    text = text if has_text else "".join(typed[position + 1 : position + 2])
    own_words = [*typed[:position], *typed[position + 2 - bool(has_text) :]]
    parser = _Parser(add_help=False, allow_abbrev=False)
    for names, more in _TAKEN.items():
        parser.add_argument(*names.split(), **more | ({"type": int} if "type" in more else {}))
    for name in _LEFT:
        parser.add_argument(name)
    for name in _SWITCHES:
        parser.add_argument(name, action="store_true")
    own_text, n_launched = _launched(shlex.split(text))
    arguments, words = parser.parse_known_args(own_text)
    arguments.nproc_per_node = arguments.nproc_per_node or n_launched
    unknown = [word for word in words if word.startswith("-")]
    if unknown or not arguments.model:
        flags = [name for names in _TAKEN for name in names.split()] + [*_LEFT, *_SWITCHES]
        of_torchvision = [word for word in unknown if word.partition("=")[0] in _TORCHVISIONS]
        if of_torchvision:
            raise SchemaError(
                f"--args: {of_torchvision[0]!r} is an argument of torchvision's references/classification/train.py, "
                "and --args reads those of timm's. Give options: its --model as the CNN, --batch-size (there of one "
                "GPU, here of all), --n-gpus, --epochs, --precision amp_fp16 for --amp."
            )
        raise SchemaError(
            f"--args: {unknown[0]!r} is not known. Nearest: {nearest(unknown[0], flags)}. Leave it out."
            if unknown
            else "--args names no --model. Give timm's, such as --args '--model resnet50 -b 256 --amp'."
        )
    own, unread = _options(arguments, _flags_of("".join(own_words[:1])))
    left = sorted(
        [*unread, *(f"--{name.replace('_', '-')}" for name in _CHANGING if getattr(arguments, name))]
    )
    note = f"--args read as: epochcast {' '.join([*own_words[:1], *own, *own_words[1:]])}"
    note += f"; not counted: {', '.join(left)}" if left else ""
    return [*own_words[:1], *own, *own_words[1:]], note


def _launched(words: list[str]) -> tuple[list[str], int | None]:
    """The arguments without timm's launcher, and its number of GPUs; None where it does not launch them."""
    if not words or Path(words[0]).name != _LAUNCHER:
        launchers = {"bash", "sh"}
        return _launched(words[1:]) if words and words[0] in launchers else (words, None)
    count = "".join(words[1:2])
    if not count.isdecimal() or int(count) < 1:
        raise SchemaError(
            f"--args: {_LAUNCHER} {count!r} is no number of GPUs, its first argument. Give 1 or more."
        )
    return words[2:], int(count)


def _flags_of(command: str) -> set[str]:
    """Options that a command shows in its help."""
    import typer

    from epochcast.command import build_app

    commands = getattr(typer.main.get_command(build_app(command)), "commands", {})
    options = commands[command].params if command in commands else ()  # what is no command is refused later
    return {flag for option in options if not getattr(option, "hidden", False) for flag in option.opts}


def _options(arguments: Any, flags: set[str]) -> tuple[list[str], list[str]]:
    """The CNN and its options as a command with these flags takes them, and the flags that it does not."""
    in_zoo = arguments.model in zoo_names() and find_spec("timm") is None
    gpus, parts = arguments.nproc_per_node or 1, arguments.grad_accum_steps
    shared = gpus if "--n-gpus" in flags else 1
    half = {"float16": "amp_fp16", "bfloat16": "amp_bf16"}.get(arguments.amp_dtype or "float16")
    if half is None:
        raise SchemaError(f"--args: --amp-dtype {arguments.amp_dtype!r} is none of float16, bfloat16.")
    side = arguments.img_size or (arguments.input_size or [None])[-1]
    pairs = {
        "--batch-size": (arguments.batch_size or 128) * parts * shared,
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
    pairs |= {"--sync-batch-norm": ""} if arguments.sync_bn else {}
    given = {name: value for name, value in pairs.items() if value is not None}
    words = [
        str(word) for name, value in given.items() if name in flags for word in (name, value) if word != ""
    ]
    return [arguments.model if in_zoo else f"timm:{arguments.model}", *words], [*given.keys() - flags]
