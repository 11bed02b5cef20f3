"""`--args "..."` takes the arguments of timm's `train.py` as they are typed."""

import subprocess
import sys

import pytest
from case_tables import each_row, table

from epochcast.timm_arguments import with_timm_arguments
from predictor.errors import SchemaError

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
    words, note = with_timm_arguments(["compare", "--args", typed, "--gpu", "H200"])
    expected = ["compare", *TYPED[typed].split(), "--gpu", "H200"]
    assert [word.removeprefix("timm:") for word in words] == expected
    assert "not counted" not in note


@each_row
def test_what_a_command_has_no_option_for_is_left_out_and_named(command, options, left):
    typed = "./distributed_train.sh 2 /data --model resnet50 -b 64 --epochs 90 -j 8"
    words, note = with_timm_arguments([command, "--args", typed])
    assert words[2:] == options.split()
    assert note.endswith(f"not counted: {left}")


@each_row
def test_what_is_typed_for_another_program_is_refused_by_its_name(typed, message):
    with pytest.raises(SchemaError, match=message):
        with_timm_arguments(["compare", "--args", typed])


def test_the_command_answers_what_is_typed_for_timm_as_its_own_options():
    def answered(*words):
        code = "from epochcast.command import main; main()"
        command = [sys.executable, "-c", code, "predict", *words, "--gpu", "H200", "--json"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    by_options = answered("resnet50", "--batch-size", "64", "--optimizer", "adam")
    assert answered("--args", "--model resnet50 -b 64 --opt adam") == by_options
