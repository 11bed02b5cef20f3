"""Tables are read and written by their suffix, cell by cell as text or whole as data frames."""

import gzip
import sys
from datetime import date

import pandas as pd
import pytest

from predictor.errors import BackendUnavailableError, DataError, SchemaError
from predictor.table_files import SUFFIXES, open_table, read_frame, write_frame, writing_table

HEADER = ["cnn", "batch_size", "ms", "fits"]
TYPES = {"batch_size": "int64", "ms": "float64", "fits": "bool"}
ROWS = [["resnet50", "64", "310.5", "True"], ["a, b", "", "", ""]]


def written(path, batches=(ROWS,), types=TYPES):
    with writing_table(path, HEADER, types) as table:
        for rows in batches:
            table.write(rows)
    return path


def broken_batches():
    yield ROWS
    raise SchemaError("line 3 cannot be read")


def read(path):
    with open_table(path) as table:
        return table.header, list(table.rows)


@pytest.fixture(params=SUFFIXES)
def path(request, tmp_path):
    return tmp_path / f"table{request.param}"


def test_what_was_written_is_read(path):
    assert read(written(path)) == (HEADER, ROWS)


def test_batches_follow_each_other(path):
    written(path, [ROWS[:1], [], ROWS[1:], ROWS])
    with open_table(path) as table:
        assert list(table.batches(3)) == [[*ROWS, ROWS[0]], [ROWS[1]]]


def test_a_table_without_rows_keeps_its_header(path):
    assert read(written(path, [])) == (HEADER, [])


def test_an_old_table_stays_where_writing_fails(path):
    before = written(path).read_bytes()
    with pytest.raises(SchemaError, match="line 3"):
        written(path, broken_batches())
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_frame_comes_back(path):
    frame = pd.DataFrame({"cnn": ["a", "b"], "ms": [1.5, 2.0]})
    write_frame(frame, path)
    assert read_frame(path).astype({"ms": float}).equals(frame.astype(read_frame(path).dtypes[["cnn"]]))


def test_parquet_holds_numbers_flags_and_unknown_cells(tmp_path):
    frame = pd.read_parquet(written(tmp_path / "table.parquet"))
    assert [kind.kind for kind in frame.dtypes[["batch_size", "ms"]]] == ["f", "f"]
    assert frame.loc[0].tolist() == ["resnet50", 64, 310.5, True]
    assert frame.loc[1].isna().tolist() == [False, True, True, True]


def test_counts_beside_unknown_ones_are_read_as_whole_numbers(tmp_path):
    pd.DataFrame({"batch_size": [64, None], "ms": [0.1, float("nan")]}).to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[1] == [["64", "0.1"], ["", ""]]


def test_columns_of_other_kinds_are_read_as_text(tmp_path):
    frame = pd.DataFrame({"a": [[1, 2], None], "b": pd.Categorical(["x", "y"]), "c": [date(2026, 1, 2)] * 2})
    frame.to_parquet(tmp_path / "a.parquet")
    assert read(tmp_path / "a.parquet")[1] == [["[1, 2]", "x", "2026-01-02"], ["", "y", "2026-01-02"]]


def test_a_cell_that_does_not_fit_its_column_is_refused(tmp_path):
    with pytest.raises(SchemaError, match=r"table.parquet, column ms: .*'many'"):
        written(tmp_path / "table.parquet", [[["a", "1", "many", ""]]])


def test_a_file_that_is_not_what_its_suffix_says_is_refused(path):
    path.write_bytes(b"\xff\xfe\x00PAR1")
    for reader in (read, read_frame):
        with pytest.raises(DataError, match=str(path)):
            reader(path)


@pytest.mark.parametrize("suffix", [".csv.gz", ".parquet"])
def test_a_torn_file_is_refused(tmp_path, suffix):
    path = written(tmp_path / f"table{suffix}")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(SchemaError, match=str(path)):
        read(path)


def test_a_missing_file_is_named(path):
    with pytest.raises(SchemaError, match=f"{path} cannot be read: No such file"):
        read(path)


def test_without_pyarrow_the_extra_is_named_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (written, read, read_frame):
        (tmp_path / "a.parquet").write_bytes(b"PAR1")
        with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[parquet\]'"):
            use(tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == b"PAR1"


def test_gzipped_tables_are_the_same_bytes_each_time(tmp_path):
    first = written(tmp_path / "a.csv.gz").read_bytes()
    assert written(tmp_path / "b.csv.gz").read_bytes() == first
    assert gzip.decompress(first).decode().splitlines()[1] == "resnet50,64,310.5,True"
