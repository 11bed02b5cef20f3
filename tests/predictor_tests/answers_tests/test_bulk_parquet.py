"""Bulk prediction from Parquet to Parquet: the numbers of the answer, column by column and batch by batch."""

import array_api_strict
import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers import bulk
from predictor.answers.answer import answer
from predictor.answers.bulk import ADDED_COLUMNS, NUMBERS, WORDS, predict_rows
from predictor.answers.question import Question
from predictor.errors import SchemaError
from predictor.models import served
from predictor.models.roofline.arrays import Arrays

CNNS, GPUS, SIZES = ["alexnet", "resnet18"], ["Tesla T4", "NVIDIA H200", "Tesla K80"], [8, 32, 100]


@pytest.fixture
def predicted(tmp_path):
    """The answers to the rows of a data frame."""

    def ask(frame, **defaults):
        questions, answered = tmp_path / "rows.parquet", tmp_path / "predictions.parquet"
        frame.to_parquet(questions)
        ask.failed = predict_rows(questions, answered, **defaults)
        return pd.read_parquet(answered)

    return ask


def grid():
    """Every CNN on every GPU at every batch size, in no order."""
    index = pd.MultiIndex.from_product([CNNS, GPUS, SIZES], names=["cnn", "gpu", "batch_size"])
    return index.to_frame(index=False).sample(frac=1, random_state=0, ignore_index=True)


@each_row
def test_every_column_is_that_of_the_answer(predicted, more):
    options = ({} if "data_set" in more else {"samples": 50_000}) | more
    answers = predicted(grid(), **options)
    single = answer(Question(CNNS, GPUS, SIZES, **options)).frame()
    both = answers.merge(single, on=["cnn", "gpu", "batch_size"], suffixes=("", "_single"))
    assert len(both) == len(CNNS) * len(GPUS) * len(SIZES)
    for name in NUMBERS:
        wanted = both[f"{name}_single"].astype(float).to_numpy()
        assert both[name].to_numpy() == pytest.approx(wanted, rel=1e-9, nan_ok=True), name
    assert (both["fits_in_memory"] == both["fits_in_memory_single"]).all()
    for name in ("method", "energy_basis"):
        assert (both[name].astype(str) == both[f"{name}_single"].astype(str)).all()
    reasons = both["extrapolates"].astype(object).where(both["extrapolates"].notna(), "")
    expected = ["; ".join(map(str, reasons)) for reasons in both["extrapolates_single"]]
    assert reasons.tolist() == expected


def test_the_rows_stay_as_they_are(predicted, fake_model):
    questions = grid().assign(mine=range(18), note=pd.Categorical(["a", "b"] * 9))
    answers = predicted(questions, model=fake_model)
    pd.testing.assert_frame_equal(answers[list(questions)], questions)
    assert list(answers) == [*questions, *ADDED_COLUMNS]


def test_batches_of_rows_give_the_table_of_one_batch(predicted, fake_model, monkeypatch):
    in_one_batch = predicted(grid(), model=fake_model)
    monkeypatch.setattr(bulk, "_ROWS_OF_ARROW", 5)
    pd.testing.assert_frame_equal(predicted(grid(), model=fake_model), in_one_batch)


def test_what_a_batch_asked_is_known_to_the_next(predicted, fake_model, monkeypatch):
    monkeypatch.setattr(bulk, "_ROWS_OF_ARROW", 18)
    predicted(pd.concat([grid()] * 3, ignore_index=True), model=fake_model)
    assert len(fake_model.calls) == len(CNNS) * len(GPUS)


def test_csv_and_parquet_give_the_same_answers(predicted, fake_model, tmp_path):
    questions = grid().assign(samples=1000)
    answers = predicted(questions, model=fake_model)
    questions.to_csv(tmp_path / "rows.csv", index=False)
    predict_rows(tmp_path / "rows.csv", tmp_path / "out.csv", model=fake_model)
    expected = answers.astype(dict.fromkeys(WORDS, object))
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out.csv"), expected, check_dtype=False)


def test_a_gap_in_a_column_of_counts_is_an_empty_cell(predicted, fake_model):
    counts = {"batch_size": [8.0, 16.0], "samples": [100.0, None]}
    answers = predicted(pd.DataFrame({"cnn": "alexnet", "gpu": "T4"} | counts), model=fake_model)
    assert answers["epoch_time_s"].notna().tolist() == [True, False]
    assert (answers["iteration_time_ms"] > 0).all()


def test_a_gpu_that_nobody_knows_fails_alone(predicted, fake_model):
    questions = pd.DataFrame({"cnn": "alexnet", "gpu": ["T4", "H2O", "K80", None], "batch_size": 8})
    answers = predicted(questions, model=fake_model)
    assert answers["iteration_time_ms"].notna().tolist() == [True, False, True, False]
    assert answers["fits_in_memory"].notna().tolist() == [True, False, True, False]
    assert "no GPU is called 'H2O'" in answers["error"][1]
    assert predicted.failed == 2


def test_a_table_without_rows_is_answered_by_one_without_rows(predicted, fake_model):
    questions = pd.DataFrame({"cnn": ["alexnet"], "gpu": ["T4"], "batch_size": [8]})
    assert len(predicted(questions.head(0), model=fake_model)) == 0


@pytest.mark.parametrize("content", [b"", b"cnn,gpu\n", b"PAR1 and no more PAR1"])
def test_what_is_no_parquet_is_refused(content, tmp_path, fake_model):
    (tmp_path / "rows.parquet").write_bytes(content)
    with pytest.raises(SchemaError, match="is not a Parquet file"):
        predict_rows(tmp_path / "rows.parquet", tmp_path / "out.parquet", model=fake_model)
    assert not (tmp_path / "out.parquet").exists()


def test_a_gpu_s_library_computes_the_times_of_a_bulk_and_gives_the_same_rows(predicted, monkeypatch):
    on_cpu, questions = predicted(grid(), samples=50_000), []

    def strict(device):
        questions.append(device)
        return Arrays(array_api_strict, np.asarray)

    monkeypatch.setattr(served, "arrays_on", strict)
    pd.testing.assert_frame_equal(predicted(grid(), samples=50_000, device="cuda"), on_cpu, rtol=1e-12)
    assert questions == ["cuda"]


def test_an_unknown_device_writes_nothing(predicted, tmp_path):
    with pytest.raises(SchemaError, match="no device is called 'gpu'"):
        predicted(grid(), device="gpu")
    assert not (tmp_path / "predictions.parquet").exists()
