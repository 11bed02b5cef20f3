"""What is uploaded is checked whole before a row of it is stored, and a refusal names line, column and value."""

import json

import pytest

from api.store.uploads import csv_table, json_table, rows_of, table_of_rows
from predictor.errors import EpochcastError, SchemaError

HEADER = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
GOOD = "Tesla T4,resnet50,224,32,fp32,310.5"
FORMULAS = (" =1+1", "\u00a0=1+1", "  @x", " +1", " -1", "＝1+1", "＋1", "－1", "＠x", "﹦1", " ﹢1")
ROW = dict(zip(HEADER.split(","), GOOD.split(","), strict=True))


def refused(body):
    with pytest.raises(EpochcastError) as error:
        rows_of(csv_table(body if isinstance(body, bytes) else body.encode()))
    return str(error.value)


def refused_json(document):
    with pytest.raises(EpochcastError) as error:
        rows_of(json_table(document.encode() if isinstance(document, str) else json.dumps(document).encode()))
    return str(error.value)


def test_csv_and_json_of_the_same_row_are_the_same_row():
    from_csv = rows_of(csv_table(f"{HEADER}\n{GOOD}\n".encode()))[1]
    number = {key: float(value) if value[0].isdigit() else value for key, value in ROW.items()}
    assert from_csv == rows_of(json_table(json.dumps({"rows": [ROW]}).encode()))[1]
    assert from_csv == rows_of(json_table(json.dumps([number]).encode()))[1]


def test_the_content_is_canonical_json_of_what_is_known():
    row = rows_of(csv_table(f"{HEADER},notes\n{GOOD},\n".encode()))[1][0]
    assert json.loads(row.content) == {
        "batch_size": 32,
        "cnn": "resnet50",
        "device_kind": "gpu",
        "format_version": 2,
        "gpu": "Tesla T4",
        "image_size": 224,
        "iteration_time_ms": 310.5,
        "precision": "fp32",
    }


@pytest.mark.parametrize(
    ("column", "cell", "words"),
    [
        ("batch_size", "0", "'0'. Valid: a whole number of at least 1"),
        ("batch_size", "32.5", "'32.5'. Valid: a whole number"),
        ("batch_size", "1e300", "at most 9,007,199,254,740,992"),
        ("batch_size", "65537", "'65537'. Valid: at most 65,536"),
        ("image_size", "99999", "'99999'. Valid: at most 16,384"),
        ("precision", "fp99", "'fp99'. Valid: fp32, tf32"),
        ("iteration_time_ms", "nan", "'nan'. Valid: a number above 0"),
        ("iteration_time_ms", "inf", "'inf'. Valid: a number above 0"),
        ("iteration_time_ms", "-1", "'-1'. Valid: a number above 0"),
        ("iteration_time_ms", "1e308", "at most 86,400,000 ms, a day"),
        ("iteration_time_ms", "", "missing. Valid: a number above 0"),
        ("iteration_time_ms", "1e-320", "at least 1e-06 ms"),
        ("iteration_time_ms", "9e-7", "at least 1e-06 ms"),
        ("iteration_time_ms", "0.31", "the time of 0.31 ms is impossible: resnet50 at batch 32"),
        ("cnn", "=cmd|' /C calc'!A0", "which spreadsheets execute"),
        *(("cnn", cell, "which spreadsheets execute") for cell in FORMULAS),
        ("cnn", "x" * 301, "at most 300 characters"),
        ("cnn", "a\x00b", "'a\\x00b'. Valid: text without control characters"),
        ("cnn", '"a\nb"', "'a\\nb'. Valid: text without control characters"),
        ("gpu", "H2O0", "Nearest: 'NVIDIA H200'"),
    ],
)
def test_a_wrong_cell_is_refused_by_line_column_and_value(column, cell, words):
    message = refused(f"{HEADER}\n{GOOD}\n{','.join((ROW | {column: cell}).values())}\n")
    assert "line 3" in message or "line 4" in message  # a cell with a line break ends on line 4
    assert column in message or "impossible" in message
    assert words in message


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no measurement"),
        (HEADER.encode(), "no measurement"),
        (b"\x80\x04\x95\x10pickle", "not UTF-8"),
        (b"\x1f\x8b\x08\x00", "not UTF-8"),
        (f"{HEADER}\n{GOOD},1\n".encode(), "line 2 has 7 cells, the header 6"),
        (f"{HEADER}\n{GOOD}\nTesla T4,resn".encode(), "line 3 has 2 cells"),
        (f'{HEADER}\n"Tesla T4,resnet50'.encode(), "line 2 is not CSV"),
        (f"{HEADER}\n{'x' * 200_000}".encode(), "line 2 is not CSV: field larger"),
        (f"{HEADER},gpu\n{GOOD},T4\n".encode(), "column 'gpu' twice"),
        (f"{HEADER},batchsize\n{GOOD},3\n".encode(), "'batchsize'.*Nearest: 'batch_size'"),
        (b"gpu,cnn\nT4,resnet50\n", "lacks the column 'image_size'"),
        (b"gpu,,cnn\n", "column ''"),
        (b"c," * 999_999, "first line has 999,999 commas"),
    ],
)
def test_a_body_that_is_no_measurement_table_is_refused(body, message):
    with pytest.raises(SchemaError, match=message):
        rows_of(csv_table(body))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply|not JSON"),
        (json.dumps([{f"k{i}": 1 for i in range(1001)}]), "an object of 1,001 keys"),
        ('{"rows": 3}', "not a list of rows"),
        ('"text"', "not a list of rows"),
        ("[1]", "row 1 is 1, not an object"),
        ('[{"gpu": NaN}]', "holds NaN"),
        ('[{"gpu": 1, "gpu": 2}]', "key 'gpu' twice"),
        ('[{"gpu": {"a": 1}}]', "row 1: gpu is .*not nested"),
        ('[{"batch_size": ' + "9" * 5000 + "}]", "not JSON: Exceeds the limit"),
        ('[{"__class__": "x"}]', "column '__class__'"),
    ],
)
def test_json_that_is_no_list_of_rows_is_refused(body, message):
    with pytest.raises(SchemaError, match=message):
        rows_of(json_table(body.encode()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": True}, "row 1: batch_size is 'true'"),
        ({"batch_size": 10**30}, "batch_size is '1000000000000000000000000000000'. Valid: at most 9,007"),
        ({"iteration_time_ms": 1e308}, "row 1: iteration_time_ms is '1e\\+308'"),
        ({"cnn": "\ud800"}, "row 1: cnn is '.ud800'. Valid: text without control"),
    ],
)
def test_a_wrong_json_value_is_refused_by_row_column_and_value(change, message):
    with pytest.raises(SchemaError, match=message):
        rows_of(json_table(json.dumps([ROW | change]).encode()))


def test_too_many_rows_are_refused_before_they_are_read():
    with pytest.raises(SchemaError, match=r"more than 2 rows .see line 4.*several parts"):
        csv_table(f"{HEADER}\n{GOOD}\n{GOOD}\n{GOOD}\n".encode(), max_rows=2)


def test_empty_lines_and_a_byte_order_mark_are_no_rows():
    table = csv_table(b"\xef\xbb\xbf" + f"{HEADER}\n\n{GOOD}\n,,,,,\n".encode())
    assert table.numbers == [3]


def test_text_in_other_scripts_is_kept():
    row = rows_of(csv_table(f"{HEADER},notes\n{GOOD},研究室の\u3000計測\n".encode()))[1][0]
    assert json.loads(row.content)["notes"] == "研究室の\u3000計測"


def test_a_spread_may_be_smaller_than_any_time():
    """Repeats of a GPU's time differ by less than a picosecond now and then."""
    spread = {"iteration_time_ms_iqr": "8.99937e-07"}
    row = ROW | spread
    kept = rows_of(table_of_rows([row]))[1][0]
    assert json.loads(kept.content)["iteration_time_ms_iqr"] == 8.99937e-07
