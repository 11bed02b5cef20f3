"""What is uploaded is checked whole before a row of it is stored, and a refusal names line, column and value."""

import json

import pytest

from api.store.uploads import csv_table, json_table, rows_of, table_of_rows
from predictor.errors import EpochcastError, SchemaError, UnknownGpuError

HEADER = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
GOOD = "Tesla T4,resnet50,224,32,fp32,310.5"
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
    ("line", "column", "value", "valid"),
    [
        ("Tesla T4,resnet50,224,0,fp32,310.5", "batch_size", "'0'", "at least 1"),
        ("Tesla T4,resnet50,224,32.5,fp32,310.5", "batch_size", "'32.5'", "whole number"),
        ("Tesla T4,resnet50,224,1e300,fp32,310.5", "batch_size", "'1e300'", "at most 9,007,199,254,740,992"),
        ("Tesla T4,resnet50,224,65537,fp32,310.5", "batch_size", "'65537'", "at most 65,536"),
        ("Tesla T4,resnet50,99999,32,fp32,310.5", "image_size", "'99999'", "at most 16,384"),
        ("Tesla T4,resnet50,224,32,fp99,310.5", "precision", "'fp99'", "fp32, tf32"),
        ("Tesla T4,resnet50,224,32,fp32,nan", "iteration_time_ms", "'nan'", "above 0"),
        ("Tesla T4,resnet50,224,32,fp32,inf", "iteration_time_ms", "'inf'", "above 0"),
        ("Tesla T4,resnet50,224,32,fp32,-1", "iteration_time_ms", "'-1'", "above 0"),
        (
            "Tesla T4,resnet50,224,32,fp32,1e308",
            "iteration_time_ms",
            "'1e308'",
            "at most 86,400,000 ms, a day",
        ),
        ("Tesla T4,resnet50,224,32,fp32,", "iteration_time_ms", "missing", "above 0"),
        ("Tesla T4,=cmd|' /C calc'!A0,224,32,fp32,1", "cnn", "=cmd", "spreadsheets"),
        (f"Tesla T4,{'x' * 301},224,32,fp32,1", "cnn", "xxx", "at most 300 characters"),
        ("Tesla T4,a\x00b,224,32,fp32,1", "cnn", "'a\\x00b'", "control characters"),
        ('Tesla T4,"a\nb",224,32,fp32,1', "cnn", "'a\\nb'", "control characters"),
    ],
)
def test_a_wrong_cell_is_refused_by_line_column_and_value(line, column, value, valid):
    message = refused(f"{HEADER}\n{GOOD}\n{line}\n")
    assert "line 3" in message or "line 4" in message  # a cell with a line break ends on line 4
    assert column in message
    assert value in message
    assert valid in message


def test_an_unknown_gpu_is_refused_with_the_nearest():
    with pytest.raises(UnknownGpuError, match=r"line 2.*H2O0.*Nearest.*H200"):
        rows_of(csv_table(f"{HEADER}\n{GOOD.replace('Tesla T4', 'H2O0')}\n".encode()))


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


GOOD_LINES = ("gpu,cnn,image_size,batch_size,precision,iteration_time_ms", "T4,resnet50,224,32,fp32,310.5")


@pytest.mark.parametrize(
    "cell", [" =1+1", "\u00a0=1+1", "  @x", " +1", " -1", "＝1+1", "＋1", "－1", "＠x", "﹦1", " ﹢1"]
)
def test_a_formula_behind_spaces_or_in_wide_signs_is_one_still(cell):
    row = dict(zip(*(line.split(",") for line in GOOD_LINES), strict=True)) | {"notes": cell}
    with pytest.raises(SchemaError, match="which spreadsheets execute"):
        rows_of(table_of_rows([row]))


@pytest.mark.parametrize("time", ["1e-320", "1e-7", "9e-7"])
def test_a_time_that_nothing_takes_is_refused(time):
    row = dict(zip(*(line.split(",") for line in GOOD_LINES), strict=True)) | {"iteration_time_ms": time}
    with pytest.raises(SchemaError, match=r"iteration_time_ms is .*at least 1e-06 ms"):
        rows_of(table_of_rows([row]))


def test_a_time_that_no_gpu_reaches_is_refused():
    message = refused(f"{HEADER}\n{GOOD}\n{GOOD.replace('310.5', '0.31')}\n")
    assert "the upload, line 3: the time of 0.31 ms is impossible: resnet50 at batch 32" in message


def test_a_spread_may_be_smaller_than_any_time():
    """Repeats of a GPU's time differ by less than a picosecond now and then."""
    spread = {"iteration_time_ms_iqr": "8.99937e-07"}
    row = dict(zip(*(line.split(",") for line in GOOD_LINES), strict=True)) | spread
    kept = rows_of(table_of_rows([row]))[1][0]
    assert json.loads(kept.content)["iteration_time_ms_iqr"] == 8.99937e-07
