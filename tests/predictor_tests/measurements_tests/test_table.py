"""Measurement tables: what is filled in, what is normalised, and how bad input is refused."""

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from predictor.errors import DataError, SchemaError, UnknownGpuError
from predictor.measurements.schema import (
    CHECKS,
    COLUMNS,
    FORMAT_VERSION,
    RowNames,
    missing_column,
    text_column,
)
from predictor.measurements.table import (
    REQUIRED,
    check_measurements,
    disturbed_rows,
    noise_by_batch_size,
    read_measurements,
    summary,
    write_measurements,
)

ROW = {
    "gpu": "Tesla T4", "cnn": "resnet50", "image_size": 224, "batch_size": 32, "precision": "fp32",
    "iteration_time_ms": 310.5,
}  # fmt: skip

CASES = json.loads(Path(__file__).with_name("cases.json").read_text("utf-8"))
"""Words of others, and what is refused with words of the refusal: replacements in a file, changes of a row."""


def table(**changes: object) -> pd.DataFrame:
    """Two rows, the second with these changes."""
    return pd.DataFrame([ROW, {**ROW, **changes}])


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    table(batch_size=64).to_csv(path, index=False)
    return path


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


class TestATableOfOnesOwn:
    def test_needs_six_columns_and_gets_every_other_one_as_unknown(self, csv):
        read = read_measurements(csv)
        assert read["iteration_time_ms"].tolist() == [310.5, 310.5]
        assert list(read.columns) == [entry.name for entry in COLUMNS]
        filled = {"format_version", "device_kind", *REQUIRED}
        assert read[[name for name in read.columns if name not in filled]].isna().all(axis=None)

    @pytest.mark.parametrize(
        "changes",
        [
            # an adaptive pool that widens, whose stride rounds down to nothing
            {"kind": "operator", "type": "avg_pool", "kernel_height": 1, "stride_height": 0},
            {"weather": "rain"},  # a column that we do not know
        ],
    )
    def test_keeps_what_it_says(self, changes):
        checked = check_measurements(table(**changes), "mine")
        assert {name: checked[name].tolist()[1] for name in changes} == changes

    def test_may_end_in_empty_lines(self, csv):
        assert len(read_measurements(write(csv, csv.read_text() + "\n\n"))) == 2

    def test_comes_back_unchanged_after_writing(self, tmp_path):
        first = check_measurements(table(xla=True, n_repeats=9, framework="pytorch", notes="a, b"), "mine")
        write_measurements(first, tmp_path / "copy.csv")
        pd.testing.assert_frame_equal(read_measurements(tmp_path / "copy.csv"), first)


class TestWordsAreNormalised:
    @pytest.mark.parametrize(("column", "theirs", "ours"), CASES["words"])
    def test_to_ours(self, column, theirs, ours):
        assert check_measurements(table(**{column: theirs}), "mine")[column].tolist()[1] == ours

    def test_flags_become_true_false_or_unknown(self):
        rows = pd.DataFrame([{**ROW, "xla": x} for x in ("true", "0", "")])
        flags = check_measurements(rows, "mine")["xla"]
        assert flags.tolist()[:2] == [True, False]
        assert flags.isna().tolist() == [False, False, True]

    def test_a_cpu_keeps_its_name(self):
        checked = check_measurements(table(gpu="cpu:Xeon 8480"), "mine")
        assert checked["gpu"].tolist()[1] == "cpu:Xeon 8480"
        assert checked["device_kind"].tolist() == ["gpu", "cpu"]


class TestBadInputIsRefused:
    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match=r"there is no measurement table at .*none\.csv"):
            read_measurements(tmp_path / "none.csv")

    @pytest.mark.parametrize(("old", "new", "words"), CASES["bad files"])
    def test_a_file_by_its_line(self, csv, old, new, words):
        text, n = re.subn(old, new, csv.read_text())
        assert n
        with pytest.raises((DataError, SchemaError, UnknownGpuError), match=words):
            read_measurements(write(csv, text))

    def test_a_damaged_gzip(self, tmp_path):
        path = tmp_path / "mine.csv.gz"
        table().to_csv(path, index=False)
        assert len(read_measurements(path)) == 2
        path.write_bytes(path.read_bytes()[:-12])
        with pytest.raises(DataError, match="cannot be read as CSV"):
            read_measurements(path)

    @pytest.mark.parametrize(("changes", "words"), CASES["bad cells"])
    def test_a_cell_or_a_column_of_a_frame(self, changes, words):
        with pytest.raises((SchemaError, UnknownGpuError), match=words):
            check_measurements(table(**changes), "mine")

    @pytest.mark.parametrize(
        ("frame", "words"),
        [
            (table().drop(columns="batch_size"), r"lacks the column 'batch_size'\. Needed: gpu, cnn"),
            (pd.DataFrame([{**ROW, "iteration_time_ms": 0}] * 3), "as in 2 more rows"),
        ],
    )
    def test_a_frame_that_lacks_a_column_or_shares_a_fault(self, frame, words):
        with pytest.raises(SchemaError, match=words):
            check_measurements(frame, "mine")


def test_the_written_table_names_its_version(tmp_path):
    write_measurements(table(), tmp_path / "a.csv")
    assert pd.read_csv(tmp_path / "a.csv")["format_version"].tolist() == [FORMAT_VERSION] * 2


def test_the_summary_counts_measurements_and_ranges():
    summed = summary(check_measurements(table(batch_size=64, cnn="vgg16"), "mine"))
    first = summed.iloc[0]
    assert (len(summed), first["measurements"], first["cnns"]) == (1, 2, 2)
    assert (first["smallest_batch_size"], first["largest_batch_size"]) == (32, 64)


def test_every_column_is_described_and_named_once():
    assert all(entry.about for entry in COLUMNS)
    assert len({entry.name for entry in COLUMNS}) == len(COLUMNS)
    assert [entry.name for entry in COLUMNS if (entry.form == "word") != bool(entry.words)] == []
    assert COLUMNS[0].about.endswith(str(FORMAT_VERSION))


def test_a_column_that_is_not_there_is_as_one_without_values():
    for entry in (entry for entry in COLUMNS if not entry.required):
        checked = CHECKS[entry.form](text_column([None, None]), entry, RowNames("a table", "row", [0, 1]))
        pd.testing.assert_series_equal(missing_column(entry, 2), checked, check_names=False, obj=entry.name)


class TestNoise:
    def test_stands_in_columns(self):
        checked = check_measurements(table(median_precision=0.31, disturbed="true", batch_size=64), "mine")
        assert disturbed_rows(checked) == 1
        assert noise_by_batch_size(checked) == {
            64: (
                "1 of 2 measurements were disturbed by other work",
                "1 of 2 measured times are uncertain by more than 10 %, at worst by 31 %",
            )
        }

    def test_of_an_old_table_is_read_from_its_notes(self):
        notes = (
            "disturbed: other processes used 51 %; host time's median known to 80.0 % (95 % interval); "
            "GPU time's median known to 1.3 % (95 % interval); wall time's median known to 3.1 % (95 % interval)"
        )
        checked = check_measurements(table(notes=notes), "mine")
        assert checked["median_precision"].tolist()[1] == pytest.approx(0.031)
        assert checked["disturbed"].tolist()[1] is True
        assert checked[["median_precision", "disturbed"]].iloc[0].isna().all()

    def test_that_columns_give_outweighs_notes(self):
        notes = "disturbed: a little; wall time's median known to 31 % (95 % interval)"
        checked = check_measurements(table(notes=notes, median_precision=0.02, disturbed=False), "mine")
        assert (checked["median_precision"][1], checked["disturbed"][1]) == (0.02, False)

    def test_of_the_project_s_own_tables_is_known(self):
        folder = Path(__file__).parents[3] / "datasets" / "measurements"
        checked = read_measurements(folder / "cpu_pytorch_cnns.csv.gz")
        assert checked["median_precision"].notna().all()
