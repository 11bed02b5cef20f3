"""What evaluations judge is what a question is answered with, number by number: anchors, epochs and hosts included."""

import numpy as np
import pandas as pd
import pytest

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.evaluation.run import evaluate
from predictor.evaluation.scenarios import SCENARIOS
from predictor.measurements.features import feature_table
from predictor.measurements.table import check_measurements
from predictor.models.fit import TrainingData, fit_measurements
from predictor.models.roofline.model import Roofline

pytestmark = pytest.mark.slow

MS_PER_IMAGE = {"T4": 3.6, "V100-SXM2-16GB": 1.2}
CNNS = {"resnet18": 1.0, "resnet50": 2.3, "vgg11": 2.0, "alexnet": 0.4}
SAMPLES, VALIDATION = 50_000, 10_000
TIMES = ["iteration_time_ms", "low_ms", "high_ms"]


@pytest.fixture(scope="module")
def measured() -> pd.DataFrame:
    rows = [
        {"gpu": gpu, "host": f"host of {gpu}", "cnn": cnn, "image_size": 224, "batch_size": batch}
        | {"iteration_time_ms": (5 + work * speed * batch) * (1 + 0.1 * (cnn == "vgg11") * (gpu == "T4"))}
        for cnn, work in CNNS.items()
        for gpu, speed in MS_PER_IMAGE.items()
        for batch in (16, 32, 64, 128)
    ]
    table = pd.DataFrame(rows).assign(
        precision="fp32", framework="pytorch", samples_per_epoch=SAMPLES, validation_samples=VALIDATION
    )
    iterations = np.ceil(SAMPLES / table["batch_size"])
    table["epoch_time_s"] = iterations * (1.07 * table["iteration_time_ms"] + 0.4) / 1000
    return check_measurements(table, "made up")


def _answers(model, fold, measured, method):
    """What the model, fitted on the fold's training rows, says of its tested rows with its anchors of each CNN."""
    rows = []
    for position in fold.test:
        row = measured.iloc[position]
        runs = measured.iloc[fold.anchors]
        runs = runs[(runs["cnn"] == row["cnn"]) & (runs["image_size"] == row["image_size"])]
        question = Question(
            row["cnn"], row["gpu"], [int(row["batch_size"])], precision="fp32",
            host=row["host"] if row["host"] in model.hosts() else None, model=model, method=method,
            anchors=tuple(runs[["gpu", "batch_size", "iteration_time_ms"]].to_dict("records")), samples=SAMPLES,
            validation_samples=VALIDATION,
        )  # fmt: skip
        (served,) = answer(question).rows()
        assert served.method == method
        rows.append((position, served))
    return rows


def test_a_question_with_anchors_is_answered_with_what_was_judged(measured):
    features = feature_table(measured)
    judged = evaluate(features, ["problem-scaling"], ["anchored"]).predictions.set_index(["fold", "row"])
    for fold in SCENARIOS["problem-scaling"].folds(features)[:3]:
        model = fit_measurements(measured.iloc[fold.train])
        assert fold.anchors.size
        for position, served in _answers(model, fold, measured, "anchored"):
            assert served.extrapolates == ()
            expected = judged.loc[fold.name, position][["predicted", "low", "high"]].astype(float)
            times = [getattr(served, name) for name in TIMES]
            assert times == pytest.approx(expected.tolist(), rel=1e-9)


@pytest.mark.parametrize(("scenario", "group"), [("unseen-cnn", "cnns"), ("unseen-gpu-specs", "chips")])
def test_a_scenario_judges_the_fit_of_the_default_without_the_group(scenario, group, measured):
    data = TrainingData.of_table(measured)
    judged = evaluate(data.features, [scenario], ["roofline"]).predictions
    for fold in SCENARIOS[scenario].folds(data.features)[:2]:
        fitted_on = data.without(**{group: [fold.name]})
        law, rows = fitted_on.law(), judged[judged["fold"] == fold.name]
        assert law.predict(data.features.iloc[rows["row"]]).tolist() == rows["predicted"].tolist()
        of_group = {"cnns": rows["cnn"], "chips": rows["gpu"]}[group]
        assert not set(fitted_on.layers["cnn" if group == "cnns" else "gpu"]) & set(of_group)


def test_predictors_that_learn_the_same_are_fitted_once_and_answer_as_alone(measured, monkeypatch):
    features, fits, fit = feature_table(measured), [], Roofline.fit
    alone = evaluate(features, ["problem-scaling"], ["anchored"]).predictions
    monkeypatch.setattr(Roofline, "fit", lambda self, X, y: fits.append(len(X)) or fit(self, X, y))
    beside = evaluate(features, ["problem-scaling"], ["roofline", "anchored"]).predictions
    assert len(fits) == features["batch_size"].nunique() - 2
    beside = beside[beside["predictor"] == "anchored"].reset_index(drop=True)
    pd.testing.assert_frame_equal(beside, alone, check_exact=True)


def test_an_epoch_is_answered_with_what_was_judged(measured):
    features = feature_table(measured)
    judged = evaluate(features, ["epoch-time"], ["roofline"]).predictions
    judged = judged[judged["predictor"] == "roofline + overhead"].set_index(["fold", "row"])
    for fold in SCENARIOS["epoch-time"].folds(features)[:3]:
        model = fit_measurements(measured.iloc[fold.train])
        for position, served in _answers(model, fold, measured, "roofline"):
            expected = judged.loc[fold.name, position]["predicted"]
            assert served.epoch_time_s == pytest.approx(expected, rel=1e-12)
