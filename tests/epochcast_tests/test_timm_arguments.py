"""`--args "..."` takes the arguments of timm's `train.py` as they are typed."""

import subprocess
import sys

import pytest
from case_tables import table

from epochcast.timm_arguments import with_timm_arguments

TYPED = table(__file__, "typed of timm arguments")


TYPED_IN_RECIPES = table(__file__, "typed in recipes of timm arguments")


@pytest.mark.parametrize("typed", TYPED_IN_RECIPES)
def test_a_recipe_of_timm_is_read_as_it_is_typed(typed):
    words, _ = with_timm_arguments(["predict", "--args", typed])
    assert words[1].removeprefix("timm:") == "resnet50"
    assert ("--precision" in words) == ("amp" in typed)


def test_what_changes_an_iteration_and_is_not_counted_is_named():
    _, note = with_timm_arguments(["predict", "--args", "--model resnet50 --grad-checkpointing"])
    assert note.endswith("not counted: --grad-checkpointing")
    _, note = with_timm_arguments(["compare", "--args=--model resnet50 --model-ema --mixup 0.2 --lr 0.1"])
    assert note.endswith("not counted: --mixup, --model-ema")


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


def test_the_command_answers_what_is_typed_for_timm_as_its_own_options():
    def answered(*words):
        code = "from epochcast.command import main; main()"
        command = [sys.executable, "-c", code, "predict", *words, "--gpu", "H200", "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert answered("--args", "--model resnet50 -b 64 --opt adam") == answered(
        "resnet50", "--batch-size", "64", "--optimizer", "adam"
    )
