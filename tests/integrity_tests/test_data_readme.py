"""datasets/README.md names every column and every field of the data that comes with epochcast."""

import csv
import json
from pathlib import Path

import pytest
from case_tables import each_row

from predictor.cnns.layer_csv import LAYER_TABLE_COLUMNS

DATASETS = Path(__file__).parents[2] / "datasets"
SECTIONS = {
    section.split("\n", 1)[0]: section
    for section in (DATASETS / "README.md").read_text(encoding="utf-8").split("\n## ")
}
MODEL = json.loads((DATASETS / "models" / "default.json").read_text(encoding="utf-8"))


def columns_of(name):
    with (DATASETS / name).open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file))


def missing(names, section):
    return [name for name in names if f"`{name}`" not in SECTIONS[section]]


TABLES = (
    "gpus.csv", "offers.csv", "hosts.csv", "claims.csv", "cnns.csv", "measurement_columns.csv", "data_sets.csv",
    "loaders.csv", "scenarios.csv", "sources.csv", "providers.csv", "grids.csv",
)  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_every_column_of_a_table_is_described(name):
    assert missing(columns_of(name), name) == []


@each_row
def test_every_column_of_the_lists_of_published_tables_is_described(name):
    assert missing(columns_of(name), "published_tables.csv and published_files.csv") == []


def test_every_column_of_a_layer_table_is_described():
    assert missing(LAYER_TABLE_COLUMNS, "Layer tables") == []


def test_every_field_of_the_model_is_described():
    ranges = [f".{name}" for name in MODEL["ranges"]]
    text = SECTIONS["models/"].replace("`ranges.", "`.")
    assert missing([*MODEL, *MODEL["card"]], "models/") == []
    assert [name for name in ranges if f"`{name}`" not in text] == []
