"""`--args "..."` takes the arguments of timm's `train.py` as they are typed."""

import subprocess
import sys

import pytest

from epochcast.timm_arguments import with_timm_arguments

TYPED = {
    "train.py --data-dir /imagenet --model resnet50 -b 256 --amp --amp-dtype bfloat16 --channels-last --opt adamw": (
        "resnet50 --batch-size 256 --precision amp_bf16 --memory-format channels_last --optimizer adamw"
    ),
    "torchrun --nproc_per_node=4 train.py /data --model resnet50 -b 64 --epochs 90 -j 8 --sync-bn": (
        "resnet50 --batch-size 256 --n-gpus 4 --optimizer momentum --epochs 90 --workers 8 --sync-batch-norm"
    ),
    "--model resnet50 -b 32 --grad-accum-steps 4 --amp --torchcompile --input-size 3 288 288": (
        "resnet50 --batch-size 128 --gradient-accumulation 4 --precision amp_fp16 --capture compile "
        "--optimizer momentum --image-size 288"
    ),
}


TYPED_IN_RECIPES = (  # of timm's page of training scripts
    "--model resnet50 -b 128 --sched step --epochs 450 --decay-epochs 2.4 --decay-rate .97 --opt rmsproptf "
    "--opt-eps .001 -j 8 --warmup-lr 1e-6 --weight-decay 1e-5 --drop 0.3 --drop-path 0.2 --model-ema "
    "--model-ema-decay 0.9999 --aa rand-m9-mstd0.5 --remode pixel --reprob 0.2 --amp --lr .016",
    "/imagenet --model resnet50 --aug-splits 3 --aa rand-m9-mstd0.5 --resplit --split-bn --jsd-loss --dist-bn reduce",
    "--model resnet50 -b 64 --sched cosine --lr-noise 0.42 0.9 --native-amp --opt-betas 0.9 0.99 --resume a.pth",
)


@pytest.mark.parametrize("typed", TYPED_IN_RECIPES)
def test_a_recipe_of_timm_is_read_as_it_is_typed(typed):
    words, _ = with_timm_arguments(["predict", "--args", typed])
    assert words[1].removeprefix("timm:") == "resnet50"
    assert ("--precision" in words) == ("amp" in typed)


def test_checkpointing_that_is_not_counted_is_named():
    _, note = with_timm_arguments(["predict", "--args", "--model resnet50 --grad-checkpointing"])
    assert note.endswith("not counted: --grad-checkpointing")


@pytest.mark.parametrize("typed", TYPED)
def test_what_is_typed_for_timm_is_read_as_options(typed):
    words, note = with_timm_arguments(["predict", "--args", typed, "--gpu", "H200"])
    assert [word.removeprefix("timm:") for word in words] == [
        "predict",
        *TYPED[typed].split(),
        "--gpu",
        "H200",
    ]
    assert "not counted" not in note


def test_what_changes_an_iteration_and_is_not_counted_is_named():
    _, note = with_timm_arguments(["compare", "--args=--model resnet50 --model-ema --mixup 0.2 --lr 0.1"])
    assert note.endswith("not counted: --mixup, --model-ema")


def test_the_command_answers_what_is_typed_for_timm_as_its_own_options():
    def answered(*words):
        code = "from epochcast.command import main; main()"
        command = [sys.executable, "-c", code, "predict", *words, "--gpu", "H200", "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert answered("--args", "--model resnet50 -b 64 --opt adam") == answered(
        "resnet50", "--batch-size", "64", "--optimizer", "adam"
    )
