"""Published trainings: what is asked of each, and how answers are held against them."""

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
