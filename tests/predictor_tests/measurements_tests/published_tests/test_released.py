"""The manifest of published tables: every one that importers read, and what a folder has of them."""

import gzip
import json
import subprocess
import sys

import pytest

from predictor.errors import DataError
from predictor.measurements.published import reader
from predictor.measurements.published.reader import released_tables
from predictor.measurements.published.sources import DATA_SETS

TABLES = {table.table: table for table in released_tables()}
TIMM = TABLES["timm_training_rtx3090.csv.gz"]


def test_every_table_that_importers_read_is_in_the_manifest():
    assert {data_set.table for data_set in DATA_SETS.values()} <= set(TABLES)
    assert {table.data_set for table in TABLES.values()} == set(DATA_SETS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"gpu\none\n", "has 1 rows; the released figures come from 1,672"),
        (b"gpu\n" + b"one\n" * TIMM.rows, f"the released figures come from {TIMM.sha256}"),
        (b"\x1f\x8b and no more", "is a damaged gzip file"),
        (gzip.compress(b"a" * 100_000), "unzips to more than 50,000 bytes"),
    ],
)
def test_another_a_damaged_and_a_table_that_is_too_long_are_refused(content, words, monkeypatch):
    monkeypatch.setattr(reader, "_MOST_BYTES", 50_000)
    with pytest.raises(DataError, match=words):
        TIMM.check(content)


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
    states = {table.table: table.state(real_tables) for table in TABLES.values()}
    assert states == dict.fromkeys(TABLES, "there")
