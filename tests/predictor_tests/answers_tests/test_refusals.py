"""What no answer is given to: each call with its options, the error, and words that name the value or the next step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from predictor import errors
from predictor.answers.answer import predict
from predictor.answers.check import Speed, check
from predictor.answers.compare import compare
from predictor.answers.diff import diff
from predictor.answers.explain import explain
from predictor.answers.fit_memory import fit_memory
from predictor.answers.parallel import parallel_ways
from predictor.answers.question import Plan, Question

L4 = Question("resnet50", "L4", 256, framework="pytorch")
T4 = Question("resnet50", "T4", 64, data_set="imagenet")
VGG = Question("vgg16", "T4", 64)


def ranked(**options):
    plan, question_options = Plan.of(options)
    return compare(Question(question_options.pop("cnn"), ["T4", "H200"], 64, **question_options), plan)


def planned(memory_gib=None, allow=(), plan=None, **options):
    extras = {"memory_gib": memory_gib, "allow": allow, "plan": plan and Plan(**plan)}
    return fit_memory(replace(L4, **options), **{name: value for name, value in extras.items() if value})


CALLS = {
    "predict a CNN": predict,
    "predict by a method": predict,
    "predict parts": predict,
    "predict a team": predict,
    "rank": ranked,
    "plan": Plan,
    "explain": lambda **options: explain(Question(**options)),
    "fit memory": planned,
    "ways of several GPUs": lambda **options: parallel_ways(Question("vgg_cifar", "T4", **options)),
    "speed": Speed,
    "check": lambda **options: check(replace(T4, **options), Speed(epoch_time_s=100)),
    "diff": lambda **options: diff(replace(VGG, **options), VGG),
    "question": lambda **options: Question("resnet50", "T4", 64, **options),
}
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text(encoding="utf-8"))
"""By the call: options that each row has besides, and rows of what is wrong, the error and its words."""


@pytest.mark.parametrize(
    ("call", "options", "error", "words"),
    [(call, table["usual"] | row[0], *row[1:]) for call, table in REFUSALS.items() for row in table["rows"]],
)
def test_what_cannot_be_answered_is_refused_with_what_is_wrong_or_next(call, options, error, words):
    with pytest.raises(getattr(errors, error), match=words):
        CALLS[call](**options)
