"""Wherever a command reads or writes a table, its suffix says in which form."""

import csv
import io
import json
import sys

import pandas as pd
import pytest
from command_tree import commands

import epochcast as face

QUESTION = ("resnet18", "-g", "T4", "-b", "8,16")


@pytest.fixture(params=[".csv", ".csv.gz", ".parquet"])
def suffix(request):
    return request.param


def table(path):
    return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path)


def measured(path):
    rows = [("T4", "lenet5", 32, size, "fp32", 1.0 + size) for size in (8, 16, 32)]
    frame = pd.DataFrame(
        rows, columns=["gpu", "cnn", "image_size", "batch_size", "precision", "iteration_time_ms"]
    )
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


def test_rows_are_predicted_from_any_form_to_any(epochcast, tmp_path, suffix):
    rows, answered = tmp_path / "rows.parquet", tmp_path / f"out{suffix}"
    pd.DataFrame({"mine": [1.5], "cnn": ["resnet18"], "gpu": ["T4"], "batch_size": [8]}).to_parquet(rows)
    assert epochcast("predict", "--rows", rows, "--out", answered).code == 0
    [row] = table(answered).to_dict("records")
    single = face.predict("resnet18", "T4", 8)
    assert (row["mine"], row["batch_size"]) == (1.5, 8)
    assert row["iteration_time_ms"] == single["iteration_time_ms"][0]
    assert row["fits_in_memory"]


@pytest.mark.parametrize("command", [("predict",), ("compare", "--dataset", "cifar10")])
def test_an_answer_is_written_too(epochcast, tmp_path, suffix, command):
    out = tmp_path / f"out{suffix}"
    run = epochcast(*command, *QUESTION, "--out", out)
    rows = json.loads(epochcast(*command, *QUESTION, "--json").out)["rows"]
    assert f"Wrote {out}." in run.err
    assert "T4" in run.out
    assert list(table(out).columns) == list(rows[0])
    assert table(out)["iteration_time_ms"].tolist() == [row["iteration_time_ms"] for row in rows]


@pytest.mark.parametrize("command", [("predict",), ("compare", "--dataset", "cifar10")])
def test_a_dash_prints_csv_alone(epochcast, monkeypatch, command):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    monkeypatch.setattr(sys, "stdout", stream)
    epochcast(*command, *QUESTION, "--out", "-")
    rows = list(csv.DictReader(stream.buffer.getvalue().decode().splitlines()))
    assert {row["gpu"] for row in rows} == {"Tesla T4"}


def test_a_measurement_table_comes_in_any_form_and_from_standard_input(epochcast, tmp_path, monkeypatch):
    first, *paths = [measured(tmp_path / f"x{suffix}") for suffix in (".csv", ".csv.gz", ".parquet")]
    words = ("predict", "lenet5", "-g", "T4", "-b", "64", "--json", "--measurements")
    for command in (("data", "show", "--json"), ("explain", "--format", "csv"), words):
        run = epochcast(*command, first)
        assert run.code == 0
        assert [epochcast(*command, path).out for path in paths] == [run.out] * 2
    path = measured(tmp_path / "x.csv")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert "3 measurements" in epochcast("data", "show", "-").out


def test_a_profile_is_written_and_continued_as_parquet_and_a_bad_row_is_named_by_its_number(
    epochcast, tmp_path, fake_framework
):
    frame = pd.read_parquet(measured(tmp_path / "bad.parquet"))
    frame.loc[1, "batch_size"] = 0
    frame.to_parquet(tmp_path / "bad.parquet")
    assert "bad.parquet, row 2" in epochcast("data", "show", tmp_path / "bad.parquet").err
    words = ("profile", "--preset", "cnn:lenet5", "--device", "cpu", "--allow-noise")
    for n in (3, 5):
        run = epochcast(*words, "--out", tmp_path / "x.parquet", "--limit", n)
        assert run.code == 0, run.err
    assert "5 measurements, 2 of them new." in run.out
    assert len(face.load_measurements(tmp_path / "x.parquet")) == 5


def test_parquet_without_pyarrow_is_refused_before_anything_is_measured(epochcast, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    run = epochcast("profile", "--device", "cpu", "--out", tmp_path / "x.parquet")
    assert "pip install 'epochcast[parquet]'" in run.err
    assert list(tmp_path.iterdir()) == []


def test_every_command_that_has_a_format_has_json_beside_it_which_is_format_json(epochcast):
    flags = {
        words: {flag for option in command.params for flag in option.opts} for words, command in commands()
    }
    without = [words for words in flags if "--format" in flags[words] and "--json" not in flags[words]]
    assert without == []
    assert epochcast("gpu", "list", "--json").out == epochcast("gpu", "list", "--format", "json").out
