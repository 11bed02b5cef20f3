"""The manifest of published tables: every one that importers read, and what a folder has of them."""

import gzip
import json
import subprocess
import sys

import pytest

from predictor.errors import DataError
from predictor.measurements.published import released
from predictor.measurements.published.released import released_tables
from predictor.measurements.published.sources import DATA_SETS

TABLES = {table.table: table for table in released_tables()}
TIMM = TABLES["timm_training_rtx3090.csv.gz"]


def test_every_table_that_importers_read_is_in_the_manifest():
    assert {data_set.table for data_set in DATA_SETS.values()} <= set(TABLES)
    assert {table.data_set for table in TABLES.values()} == set(DATA_SETS)


def test_a_table_of_other_rows_is_refused_with_both_numbers():
    with pytest.raises(DataError, match="has 1 rows; the released figures come from 1,672"):
        TIMM.check(b"gpu\none\n")


def test_a_table_of_other_text_is_refused_with_both_checksums():
    with pytest.raises(DataError, match=f"the released figures come from {TIMM.sha256}"):
        TIMM.check(b"gpu\n" + b"one\n" * TIMM.rows)


def test_a_damaged_table_and_one_that_is_too_long_are_refused(monkeypatch):
    with pytest.raises(DataError, match="is a damaged gzip file"):
        TIMM.check(b"\x1f\x8b and no more")
    monkeypatch.setattr(released, "_MOST_BYTES", 10)
    with pytest.raises(DataError, match="unzips to more than 10 bytes"):
        TIMM.check(gzip.compress(b"a" * 100))


def test_a_folder_is_told_apart_by_what_it_has(tmp_path):
    assert TIMM.state(tmp_path) == "missing"
    (tmp_path / TIMM.table).write_bytes(b"something else")
    assert TIMM.state(tmp_path) == "differs"


def test_the_list_says_whose_tables_they_are_and_whether_the_folder_has_them(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "epochcast", "data", "list", "--to", str(tmp_path), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = json.loads(done.stdout)["rows"]
    assert {row["state"] for row in rows} == {"missing"}
    assert all(row["repository"].startswith("https://github.com/") for row in rows)


def test_the_tables_of_the_released_figures_are_those_of_the_manifest(real_tables):
    assert {table.table: table.state(real_tables) for table in TABLES.values()} == dict.fromkeys(
        TABLES, "there"
    )
