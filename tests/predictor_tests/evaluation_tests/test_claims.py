"""Published trainings: what is asked of each, and how answers are held against them."""

import csv
import importlib.util
from pathlib import Path

import claims
import pandas as pd
import pytest

from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion


def claim_of(**changes):
    row = next(row for row in claims.claims() if row["id"] == "zeus-cifar-277")
    return row | changes


def test_every_claim_that_counts_is_a_question_that_the_product_takes():
    rows = claims.claims()
    assert len(rows) > 150
    for row in rows:
        question = Question.of(row["cnn"], row["gpu"], int(row["batch_size"]), claims.options_of(row))
        resolved = ResolvedQuestion.of(question)
        assert resolved.local_sizes(question.batch_sizes)
        assert resolved.devices, row["id"]
        assert resolved.tables[0].image_size == int(row["image_size"]), row["id"]


def test_claims_of_low_confidence_do_not_count():
    assert {row["confidence"] for row in claims.claims()} == {"high", "medium"}


def test_a_claim_is_asked_with_what_its_source_states_and_nothing_else():
    stated = claims.options_of(claim_of())
    assert stated == {
        "image_size": 32, "data_set": "cifar100", "samples": 50_000, "n_gpus": 1, "workers": 4,
        "precision": "tf32", "memory_format": "nchw", "framework": "pytorch", "optimizer": "adam",
        "capture": "eager",
    }  # fmt: skip
    assert claims.options_of(claim_of(loader_asked="none"))["loader"] == "none"
    assert claims.options_of(claim_of(autotuned="yes"))["autotune"] is True


def test_a_published_training_is_its_epochs_and_one_start_and_a_rate_is_an_iteration():
    epoch = claims.answered_claims([claim_of(workers="", loader_asked="none", value="100")]).iloc[0]
    training = claim_of(workers="", loader_asked="none", measured="total_s", value="700", epochs="7")
    together = claims.answered_claims([training]).iloc[0]
    assert together["measured"] == 7 * epoch["measured"]
    assert 0 < together["predicted"] - 7 * epoch["predicted"] < 5
    rate = claim_of(workers="", loader_asked="none", measured="images/s", value="500")
    iteration = rate | {"measured": "iteration_ms", "value": str(1000 * 32 / 500)}
    rates = claims.answered_claims([rate, iteration])
    assert rates["measured"].tolist() == pytest.approx([32 / 500] * 2)
    assert rates["predicted"].iloc[0] == rates["predicted"].iloc[1]


def test_the_table_gives_the_mean_of_the_groups_and_the_picture_every_generation(tmp_path):
    rows = pd.DataFrame(
        {
            "group": ["long", "long", "short"], "generation": ["volta", "volta", "ada"], "gpus": "one",
            "images": "loaded", "framework": "pytorch", "measured": [1.0, 1.0, 10.0],
            "predicted": [1.1, 0.9, 13.0], "low": [1.0, 0.5, 9.0], "high": [2.0, 0.95, 20.0],
            "n_images": 100,
        }
    )  # fmt: skip
    lines = claims.table(rows).splitlines()
    assert lines[0].split() == ["mean", "of", "the", "groups", "20.0"]
    assert "all                                16.7  +10.0      67    3" in lines
    claims.draw(rows, tmp_path / "claims.svg")
    assert {"Volta (2)", "Ada (1)"} <= set((tmp_path / "claims.svg").read_text().replace("<", ">").split(">"))


PATH = Path(__file__).parents[3] / "benchmarks" / "score.py"
SPEC = importlib.util.spec_from_file_location("score", PATH)
assert SPEC is not None
assert SPEC.loader is not None
SCORER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCORER)

CLAIMS = {
    "a": {"id": "a", "group": "one", "measured": "iteration_ms", "value": "100", "confidence": "high"},
    "b": {"id": "b", "group": "one", "measured": "images/s", "value": "100", "confidence": "medium"},
    "c": {"id": "c", "group": "two", "measured": "total_s", "value": "100", "confidence": "high"},
    "d": {"id": "d", "group": "two", "measured": "total_s", "value": "100", "confidence": "low"},
}


def test_groups_weigh_alike_rates_are_times_and_rows_of_low_confidence_do_not_count():
    rows = [
        {"id": "a", "predicted": "110", "low": "90", "high": "120"},
        {"id": "b", "predicted": "80", "low": "70", "high": "90"},
        {"id": "c", "predicted": "150", "low": "", "high": ""},
        {"id": "d", "predicted": "900"},
    ]
    assert SCORER.score(CLAIMS, rows).split() == [
        *("33.8", "28.3", "25.0", "67", "%", "50", "%"),
        *("3", "of", "3,", "2", "groups"),
    ]


@pytest.mark.parametrize("ids", [["a", "x"], ["a", "a"]])
def test_an_id_that_is_no_claims_or_stands_twice_is_named(ids):
    with pytest.raises(ValueError, match=f"not so: {ids[1]}"):
        SCORER.score(CLAIMS, [{"id": name, "predicted": "1"} for name in ids])


def test_every_predictor_is_a_line(tmp_path, capsys):
    claims, entry = tmp_path / "claims.csv", tmp_path / "mine.csv"
    with claims.open("w", newline="") as file:
        writer = csv.DictWriter(file, CLAIMS["a"])
        writer.writeheader()
        writer.writerows(CLAIMS.values())
    entry.write_text("id,predicted\na,100\n")
    assert SCORER.main([str(claims), str(entry)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("mine ")
