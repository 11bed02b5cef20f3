"""Every option of the core's question can be asked of the service, and reaches the core."""

import pytest
from case_tables import table

from api import questions
from api.questions import ComparisonQuestion, ExplanationQuestion, PredictionQuestion
from predictor.answers.options import Option, options_of
from predictor.answers.question import OF_EPOCHS, RETIRED, Plan, Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.errors import OutOfRangeError, RetiredOptionWarning, SchemaError

LISTS = {"precision": "precisions", "memory_format": "memory_formats"}
OF_EPOCHS_AND_SEVERAL_GPUS = {*table(__file__, "options of epochs and several GPUs")}
"""Options that explanations, which are of one GPU and without epochs, do not take."""

GIVEN = {"cnn": "lenet5", "gpus": ["T4"], "batch_sizes": [8]}


def another(option: Option) -> object:
    """A value that is not the default."""
    if option.kind == "choice":
        return next(word for word in option.choices if word != option.default)
    if option.name == "region":
        return "FRA"
    return table(__file__, "another value of each kind of option")[option.kind]


def asked_of_a_service():
    return [option for option in options_of(Question).values() if option.remote and option.name not in LISTS]


def test_every_option_is_a_field_of_its_questions_and_reaches_the_core():
    everywhere = {option.name for option in asked_of_a_service()}
    lacking = {
        "predictions": (everywhere | {*LISTS.values()}) - {*PredictionQuestion.model_fields},
        "comparisons": (everywhere | {*LISTS} | {*options_of(Plan)}) - {*ComparisonQuestion.model_fields},
        "explanations": (everywhere | {*LISTS}) - {*ExplanationQuestion.model_fields},
    }
    assert [*lacking.values()] == [set(), {"beside"}, OF_EPOCHS_AND_SEVERAL_GPUS]
    lost = []
    for option in asked_of_a_service():
        if option.kind in ("file", "anchors") or option.name == "image_size":  # the table's own
            continue
        samples = {"samples": 5} if option.name in OF_EPOCHS else {}
        posted = PredictionQuestion.model_validate(GIVEN | samples | {option.name: another(option)})
        core = questions.core_question(posted, posted.gpus, None, ())
        if getattr(core, option.name) != another(option):
            lost.append(option.name)
    assert lost == []
    wishes = {name: another(option) for name, option in options_of(Plan).items()}
    plan = questions.plan_of(ComparisonQuestion.model_validate(GIVEN | wishes))
    assert {name: getattr(plan, name) for name in wishes} == wishes
    for name in ("model", "offers"):
        for kind in (PredictionQuestion, ComparisonQuestion, ExplanationQuestion):
            assert name not in kind.model_fields


def test_retired_options_answer_as_the_new_ones_and_are_deprecated_and_a_loader_is_no_file():
    document = PredictionQuestion.model_json_schema()["properties"]
    deprecated = {name for name, schema in document.items() if schema.get("deprecated")}
    assert deprecated == {name for name, option in RETIRED.items() if option.remote}
    for name in deprecated:
        posted = PredictionQuestion.model_validate(GIVEN | {name: 6})
        new_name, form = RETIRED[name].now
        with pytest.warns(RetiredOptionWarning, match=f"{name} goes"):
            core = questions.core_question(posted, posted.gpus, None, ())
        assert getattr(core, new_name) == options_of(Question)[new_name].checked(form.format(6))
    posted = PredictionQuestion.model_validate(GIVEN | {"loader": "input.json"})
    with pytest.raises(SchemaError, match="is a file, which a service does not read"):
        questions.core_question(posted, posted.gpus, None, ())


@pytest.mark.parametrize("name", ["precisions", "memory_formats"])
def test_what_is_left_out_is_what_the_core_takes_by_default(name):
    posted = PredictionQuestion.model_validate(GIVEN)
    usual = options_of(Question)[name.removesuffix("s")].default
    assert getattr(posted, name) == (None if usual is None else [usual])


def test_the_work_of_trainings_beside_each_other_is_that_of_all(monkeypatch):
    monkeypatch.setattr(questions, "MOST_WORK", 20_000)
    questions.check_work(ResolvedQuestion.of(Question("resnet18", "H200", 64)), 1)
    with pytest.raises(OutOfRangeError, match="too much work"):
        questions.check_work(ResolvedQuestion.of(Question("resnet18", "H200", 64, beside="densenet201:8")), 1)
