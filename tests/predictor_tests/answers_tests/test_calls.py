"""A question about one GPU takes few calls, and passes through few modules twice."""

import sys
from pathlib import Path

import epochcast
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion

_ROOT = Path(epochcast.__file__).parent.parent
_PACKAGES = tuple(f"{_ROOT / package}/" for package in ("predictor", "epochcast"))


def _calls_of_a_warm_predict():
    """Module of each Python call in our packages, and whether a local is the question, or holds it looked up."""
    calls = []

    def profile(frame, event, _):
        module = frame.f_code.co_filename
        if event == "call" and module.startswith(_PACKAGES):
            holds = any(type(value) in (Question, ResolvedQuestion) for value in frame.f_locals.values())
            calls.append((module, holds))

    for _ in range(2):
        epochcast.predict("resnet50", "T4", 64, data_set="imagenet")
    sys.setprofile(profile)
    try:
        epochcast.predict("resnet50", "T4", 64, data_set="imagenet")
    finally:
        sys.setprofile(None)
    return calls


def test_a_warm_prediction_for_one_gpu_takes_at_most_700_calls():
    assert len(_calls_of_a_warm_predict()) <= 700


def test_its_question_returns_to_modules_that_it_left_at_most_18_times():
    modules = [module for module, holds in _calls_of_a_warm_predict() if holds]
    stays = [module for module, before in zip(modules, [None, *modules], strict=False) if module != before]
    assert len(stays) - len(set(stays)) <= 18
