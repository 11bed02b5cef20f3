"""The arguments of timm's `train.py`, as they are typed there, as arguments of a command here (`--args "..."`)."""

import argparse
import shlex
from collections.abc import Sequence
from importlib.util import find_spec
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
_LEFT = (  # noqa: SIM905 - a list of words
    "--aa --aug-repeats --aug-splits --bce-target-thresh --bn-eps --bn-momentum --checkpoint-hist "
    "--class-map --clip-grad --clip-mode --color-jitter --cooldown-epochs --crop-pct --cutmix "
    "--cutmix-minmax -d --data-dir --dataset --decay-epochs --decay-milestones --decay-rate --device "
    "--dist-bn --dr --drop --drop-block --drop-connect --drop-path --epoch-repeats --eval-metric "
    "--experiment --fuser --gp --hflip --in-chans --initial-checkpoint --interpolation --layer-decay "
    "--local-rank --local_rank --log-interval --lr --lr-base --lr-base-scale --lr-base-size --lr-cycle-decay "
    "--lr-cycle-limit --lr-cycle-mul --lr-k-decay --lr-noise --lr-noise-pct --lr-noise-std --mean "
    "--milestones --min-lr --mixup --mixup-mode --mixup-off-epoch --mixup-prob --mixup-switch-prob "
    "--model-ema-decay --momentum --num-classes --opt-betas --opt-eps --opt-kwargs --output "
    "--patience-epochs --ratio --recount --recovery-interval --remode --reprob --resume --scale "
    "--sched --seed --smoothing --start-epoch --std --train-interpolation --train-num-samples --train-split "
    "--tta --val-num-samples --val-split --validation-batch-size -vb --vflip --warmup-epochs --warmup-lr "
    "--weight-decay --worker-seeding"
).split()
_SWITCHES = (  # noqa: SIM905 - a list of words
    "--apex-amp --bce-loss --dataset-download --fast-norm --grad-checkpointing --jsd-loss --log-wandb "
    "--model-ema --model-ema-force-cpu --model-ema-warmup --native-amp --no-aug --no-ddp-bb --no-prefetcher "
    "--no-resume-opt --pin-mem --pretrained --resplit --save-images --sched-on-updates --split-bn --standalone "
    "--torchscript --use-multi-epochs-loader"
).split()
_CHANGING = (  # noqa: SIM905 - a list of words
    "model_ema clip_grad mixup cutmix cutmix_minmax aug_splits jsd_loss split_bn drop_path drop_block bce_loss "
    "grad_checkpointing torchscript"
).split()
"""Arguments that change what an iteration does, and that no option tells."""
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
