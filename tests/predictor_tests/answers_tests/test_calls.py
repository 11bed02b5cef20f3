"""What an answer costs: few calls, few modules passed twice, and no iteration asked of the model again."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

import epochcast
from predictor.answers.compare import compare
from predictor.answers.grid import forecasts_of
from predictor.answers.question import Plan, Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.models.served import Model

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


@pytest.fixture
def asked_of_the_model(monkeypatch):
    """Batch sizes of every grid that the model is asked for, by whoever asks."""
    models = []
    forecasts = Model.forecasts

    def counted(self, table, devices, batch_sizes, *more, **named):
        models.append(tuple(batch_sizes))
        return forecasts(self, table, devices, batch_sizes, *more, **named)

    monkeypatch.setattr(Model, "forecasts", counted)
    return models


def test_a_comparison_for_other_epochs_or_wishes_asks_the_model_nothing(asked_of_the_model):
    question = Question("squeezenet1_1", ["T4", "H200"], 24, samples=50_000, model=replace(Model.load()))
    first = compare(question, Plan(epochs=90))
    n_before = len(asked_of_the_model)
    assert n_before > 0
    for wishes in ({}, {"deadline_h": 5.0}, {"budget_usd": 9.0}):
        again = compare(question, Plan(epochs=7, **wishes))
        assert len(asked_of_the_model) == n_before
        times = ({row.gpu: row.iteration_time_ms for row in ranked.rows} for ranked in (first, again))
        assert next(times) == next(times)


def test_another_model_is_asked_itself(asked_of_the_model):
    for _ in range(2):
        compare(Question("squeezenet1_1", "T4", 24, samples=50_000, model=replace(Model.load())))
    half = len(asked_of_the_model) // 2
    assert half > 0
    assert asked_of_the_model[:half] == asked_of_the_model[half:]


def test_kept_iterations_cannot_be_changed():
    resolved = ResolvedQuestion.of(Question("squeezenet1_1", "T4", [24, 48]))
    (forecast,) = forecasts_of(resolved, resolved.tables[0], resolved.devices, [24, 48])
    with pytest.raises(ValueError, match="read-only"):
        forecast.iteration_time_ms[0] = 1.0
