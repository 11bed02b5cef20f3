"""Every public function names and documents every option that it takes; none hides behind `**options`."""

import inspect
import re

import pytest
from typer.main import get_command

import epochcast
from epochcast.command import build_app
from epochcast.profiling import ProfileRequest
from epochcast.signatures import takes_options
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.errors import SchemaError

CALLABLE = {name: getattr(epochcast, name) for name in epochcast.__all__ if name[0].islower()}
PUBLIC = {name: function for name, function in CALLABLE.items() if not name.startswith("_")}
QUESTION, PLAN = set(options_of(Question)), set(options_of(Plan))


def options(function):
    return {
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def test_no_option_hides_and_every_parameter_is_documented_or_refused():
    hidden = {
        name
        for name, function in PUBLIC.items()
        if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(function).parameters.values())
        or "**options" in (function.__doc__ or "")
    }
    assert hidden == set()
    missing = [
        (name, parameter)
        for name, function in PUBLIC.items()
        for parameter in inspect.signature(function).parameters
        if parameter != "self" and not re.search(rf"\b{parameter}\b", function.__doc__ or "")
    ]
    assert missing == []

    def function(**options):
        """Say nothing of them."""

    with pytest.raises(ValueError, match=r"no entry \*\*options"):
        takes_options(Plan, answer="compare")(function)


def read_by(answer):
    return {*options_of(Question, answer), *options_of(Plan, answer)}


WITH_OPTIONS = {
    "predict": QUESTION,
    "compare": (QUESTION | PLAN) - {"beside"},
    "explain": read_by("explain"),
    "parallel_ways": read_by("parallel"),
    "largest_batch_size": read_by("memory"),
    "watch": read_by("watch") - {"model"}
    | {"epochs", "gpu", "on", "out", "report_after", "usd_per_hour"}
    | {"budget_usd", "deadline", "on_exceeded"},
}


@pytest.mark.parametrize("name", WITH_OPTIONS)
def test_a_function_shows_the_options_that_it_takes(name):
    assert options(PUBLIC[name]) == WITH_OPTIONS[name]


def test_an_option_shows_its_default_and_what_holds_without_it():
    shown = inspect.signature(epochcast.predict).parameters
    assert (shown["capture"].default, shown["capture"].annotation) == ("eager", "str")
    assert (shown["memory_format"].default, shown["memory_format"].annotation) == (None, "str | None")
    assert (
        "by default what the framework does: channels_last in TensorFlow's AMP, else nchw"
        in epochcast.predict.__doc__
    )
    assert "by default the shipped prices" in epochcast.predict.__doc__


def test_every_option_of_profile_is_one_of_the_command_and_an_unknown_one_is_refused_with_the_nearest():
    assert options(epochcast.profile) == {*options_of(ProfileRequest)} - {"preset"}
    command = get_command(build_app()).commands["profile"]
    assert {*options_of(ProfileRequest)} <= {param.name for param in command.params}
    with pytest.raises(SchemaError, match=r"no option is called 'batch_size'\. Nearest: 'batch_sizes'"):
        epochcast.profile("mine.csv", batch_size=[32])
