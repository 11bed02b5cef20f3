"""What tables lacked: shapes that CNNs of one's own have, Chainer's CNNs, batch norms synchronised over two GPUs.

python benchmarks/gaps.py shapes --out FILE.csv.gz [--time-limit 90]
python benchmarks/gaps.py chainer --out FILE.csv.gz
python benchmarks/gaps.py synchronised --out FILE.csv.gz
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.operators.operators import Operator
from proxy_cnns.configuration import Configuration, Replicas
from proxy_cnns.data_parallel import TOGETHER
from proxy_cnns.designs import conv, conv_transpose, from_to, linear, same_shape
from proxy_cnns.jobs import Request
from proxy_cnns.presets import SYNC, operator_subjects
from proxy_cnns.runs import profile
from proxy_cnns.user_cnns import distinct_operators, named_table, target_subject

TF32, BF16 = Mode("pytorch", "tf32"), Mode("pytorch", "amp_bf16")
BF16_LAST = Mode("pytorch", "amp_bf16", "channels_last")
CHANNELS, SIDES = (24, 48, 96, 192, 384), (8, 16, 32, 64, 128)
MOST_NUMBERS = 1_600_000  # of a map of one image
FAMILIES = ("skresnet34", "ghostnet_100", "convnextv2_atto", "unet_group_norm")
CHAINER = ("alexnet", "vgg11", "resnet18", "squeezenet1_1", "googlenet", "mobilenet_v2")
NORMED = ("resnet50", "resnet18", "mobilenet_v2", "vgg_cifar@32", "densenet121", "efficientnet_b0")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--device", default="cuda:0", help="several joined by commas where they train together"
    )
    parser.add_argument("--time-limit", type=float, default=90, help="seconds")
    parser.add_argument("--limit", type=int, help="the first configurations alone")
    options = parser.parse_args()
    make, more = WHAT[options.what]
    configurations = tuple(make())[: options.limit]
    framework = configurations[0].mode.framework
    request = Request(
        options.what, configurations, framework, (options.device,), options.out, options.time_limit,
        allow_noise=True, **more,
    )  # fmt: skip
    print(f"{len(configurations)} configurations", flush=True)
    print(profile(request))
    return 0


def own_shapes() -> Iterator[Configuration]:
    """Operators on maps of 24 to 384 channels and 8 to 128 pixels, then those of whole CNNs."""
    shapes = operator_subjects(tuple(dict.fromkeys(_designed())))
    for mode, batch_size in (
        (BF16_LAST, 4),
        (TF32, 32),
        (BF16_LAST, 32),
        (TF32, 4),
        (BF16_LAST, 128),
        (BF16, 32),
    ):
        yield from (Configuration(each, mode, batch_size) for each in shapes)
    here = Path(__file__).parent / "other_families.py"
    tables = [named_table(f"{here}:{cnn}@{128 if cnn.startswith('unet') else 224}") for cnn in FAMILIES]
    known = {each.operator for each in shapes}
    lacking = [each for each in distinct_operators(tables) if each not in known and (each.groups or 1) == 1]
    for subject in operator_subjects(tuple(lacking)):
        yield Configuration(subject, BF16_LAST, 64)


def _designed() -> Iterator[Operator]:
    for channels in CHANNELS:
        for side in SIDES:
            if not 1000 <= channels * side * side <= MOST_NUMBERS:
                continue
            for ins, outs in ((channels, channels), (channels, 2 * channels), (2 * channels, channels)):
                yield conv(ins, side, outs, (3, 3))
            yield conv(channels, side, 2 * channels, (3, 3), 2)
            yield conv(channels, side, 4 * channels, (1, 1))
            yield conv(4 * channels, side, channels, (1, 1), bias=True)
            yield conv(3, 2 * side, channels, (3, 3), 2, first=True)
            yield conv_transpose(2 * channels, side, channels, 2, 2)
            yield same_shape("group_norm", channels, side)
            for kind in ("silu", "gelu"):
                yield same_shape("activation", channels, side, kind=kind)
            yield same_shape("activation", channels, side, kind="silu", in_place=True)
            yield same_shape("multiply", channels, side)
            yield from_to("upsample", (channels, side, side), (channels, 2 * side, 2 * side))
        yield linear(channels, channels // 4)
        yield linear(channels // 4, channels)


def of_chainer() -> Iterator[Configuration]:
    """CNNs that Chainer was not timed with, fewest layers first."""
    for precision in ("tf32", "amp_fp16"):
        for batch_size in (64, 16):
            for cnn in CHAINER:
                yield Configuration(target_subject(f"{cnn}@224"), Mode("chainer", precision), batch_size)


def synchronised() -> Iterator[Configuration]:
    """CNNs on two GPUs with batch norms of their own and of all images, beside one GPU; then the smallest batches."""
    subjects = [target_subject(cnn if "@" in cnn else f"{cnn}@224") for cnn in NORMED]
    teams = (replace(SYNC, n_gpus=2), Replicas(2), Replicas(1))
    for mode, batch_size, chosen in (
        (TF32, 32, teams),
        (BF16_LAST, 32, teams),
        (TF32, 8, teams),
        (TF32, 4, teams[1:]),
    ):
        for subject in subjects:
            if not (
                mode is BF16_LAST and subject.name in ("mobilenet_v2", "efficientnet_b0")
            ):  # cuDNN compiles
                yield from (Configuration(subject, mode, batch_size, replicas) for replicas in chosen)


WHAT: dict[str, tuple[Any, dict[str, Any]]] = {
    "shapes": (own_shapes, {}),
    "chainer": (of_chainer, {}),
    "synchronised": (synchronised, TOGETHER),
}


if __name__ == "__main__":
    sys.exit(main())
