"""What is uploaded is checked whole before a row of it is stored, and a refusal names line, column and value."""

import json
from pathlib import Path

import pytest
from case_tables import each_row

from api.store import uploads
from api.store.uploads import csv_table, json_table, rows_of
from predictor.errors import EpochcastError, SchemaError

HEADER = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
GOOD = "Tesla T4,resnet50,224,32,fp32,310.5"
ROW = dict(zip(HEADER.split(","), GOOD.split(","), strict=True))
WRONG = json.loads(Path(__file__).with_name("wrong_uploads.json").read_text(encoding="utf-8"))
"""Cells, and bodies in CSV and JSON, that are refused, with words of the refusal; `[text, n]` is a text n times."""

READERS = {"csv": csv_table, "json": json_table}
BODIES = [(form, row["body"], row["words"]) for form in READERS for row in WRONG[form]]
BODIES += [
    ("csv", f"{HEADER}\n{'x' * 200_000}", "line 2 is not CSV: field larger"),
    ("json", json.dumps([{f"k{i}": 1 for i in range(1001)}]), "an object of 1,001 keys"),
    ("json", '[{"batch_size": ' + "9" * 5000 + "}]", "not JSON: Exceeds the limit"),
]


def repeated(text):
    return text[0] * text[1] if isinstance(text, list) else text


@pytest.mark.parametrize(
    "wrong", WRONG["cells"], ids=lambda wrong: f"{wrong['column']} {wrong['cell']!r:.20}"
)
def test_a_wrong_cell_is_refused_by_line_column_and_value(wrong):
    column, cell, words = wrong["column"], repeated(wrong["cell"]), wrong["words"]
    if "row 1" in words or not isinstance(cell, str):
        table, lines = json_table(json.dumps([ROW | {column: cell}]).encode()), ("row 1",)
    else:  # a cell with a line break ends on line 4
        text = f"{HEADER}\n{GOOD}\n{','.join((ROW | {column: cell}).values())}\n"
        table, lines = csv_table(text.encode()), ("line 3", "line 4")
    with pytest.raises(EpochcastError) as error:
        rows_of(table)
    assert any(line in str(error.value) for line in lines)
    assert column in str(error.value) or "impossible" in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(("form", "body", "words"), BODIES, ids=lambda value: str(value)[:30])
def test_a_body_that_is_no_measurement_table_is_refused(form, body, words):
    with pytest.raises(SchemaError, match=words):
        rows_of(READERS[form](repeated(body).encode("latin-1")))


def test_csv_and_json_of_the_same_row_are_the_same_row():
    from_csv = rows_of(csv_table(f"{HEADER}\n{GOOD}\n".encode()))[1]
    number = {key: float(value) if value[0].isdigit() else value for key, value in ROW.items()}
    assert from_csv == rows_of(json_table(json.dumps({"rows": [ROW]}).encode()))[1]
    assert from_csv == rows_of(json_table(json.dumps([number]).encode()))[1]


def test_the_content_is_canonical_json_of_what_is_known():
    row = rows_of(csv_table(f"{HEADER},notes\n{GOOD},\n".encode()))[1][0]
    numbers = {"image_size": 224, "batch_size": 32, "iteration_time_ms": 310.5}
    assert json.loads(row.content) == ROW | numbers | {"device_kind": "gpu", "format_version": 2}


@each_row
def test_text_in_other_scripts_and_a_small_spread_are_kept(column, cell, value):
    table = csv_table(f"{HEADER},{column}\n{GOOD},{cell}\n".encode())
    assert json.loads(rows_of(table)[1][0].content)[column] == value


def test_too_many_rows_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr(uploads, "MAX_ROWS", 2)
    with pytest.raises(SchemaError, match=r"more than 2 rows .see line 4.*several parts"):
        csv_table(f"{HEADER}\n{GOOD}\n{GOOD}\n{GOOD}\n".encode())


def test_empty_lines_and_a_byte_order_mark_are_no_rows():
    table = csv_table(b"\xef\xbb\xbf" + f"{HEADER}\n\n{GOOD}\n,,,,,\n".encode())
    assert table.numbers == [3]
