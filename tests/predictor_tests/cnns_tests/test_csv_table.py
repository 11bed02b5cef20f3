"""The CSV layer table: what goes in comes out, and what is wrong is refused with its line."""

from copy import copy
from dataclasses import fields, replace
from pathlib import Path

import pytest
from case_tables import each_row

from predictor.cnns.layer_csv import LAYER_TABLE_COLUMNS, read_layer_table_csv
from predictor.cnns.layer_table import (
    IMAGE,
    OPTIONAL_COLUMNS,
    Layer,
    LayerTable,
    Step,
    TableWarning,
)
from predictor.errors import DataError, SchemaError

CONV = Layer(
    0, "conv1", "conv2d", None, (IMAGE,), 3, 224, 224, 96, 55, 55, 11, 11, 4, 4, 2, 2, 1, 1, parameters=34944
)  # fmt: skip
RELU = Layer(1, "relu", "activation", "relu", (0,), 96, 55, 55, 96, 55, 55)
ADD = Layer(2, "a, quoted", "add", None, (0, 1), 96, 55, 55, 96, 55, 55)
UNKNOWN = Layer(3, "einsum", "other", out_channels=7)
TABLE = LayerTable("mine", 224, (CONV, RELU, ADD, UNKNOWN), source="csv")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    TABLE.to_csv(path)
    return path


def _changed(path: Path, old: str, new: str) -> Path:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    return path


def test_a_written_table_reads_back_the_same(written):
    assert read_layer_table_csv(written) == TABLE


def test_the_header_has_the_documented_columns(written):
    documented = [name for name in LAYER_TABLE_COLUMNS if name not in OPTIONAL_COLUMNS]
    assert written.read_text(encoding="utf-8").splitlines()[0] == ",".join(documented)


@each_row
def test_optional_columns_are_written_where_they_say_something_and_read(tmp_path, names, changes, of_relu):
    table = replace(TABLE, layers=(replace(CONV, **changes), replace(RELU, **of_relu), *TABLE.layers[2:]))
    table.to_csv(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text(encoding="utf-8").splitlines()[0].endswith("," + ",".join(names))
    assert read_layer_table_csv(tmp_path / "mine.csv").layers == table.layers
    of_relu = replace(TABLE, layers=(CONV, replace(RELU, **of_relu), *TABLE.layers[2:]))
    assert len({TABLE.digest, table.digest, of_relu.digest}) == 2 + (of_relu != TABLE)


def test_equal_tables_hash_alike_and_a_field_of_a_layer_or_the_step_changes_hash_and_digest():
    again = replace(TABLE, layers=tuple(replace(layer) for layer in TABLE.layers))
    assert hash(again) == hash(TABLE)
    assert "_hash" not in vars(copy(TABLE))  # nor in a pickle
    layers = (replace(CONV, **{column.name: 7}) for column in fields(Layer))
    tables = [TABLE, *(replace(TABLE, layers=(layer, *TABLE.layers[1:])) for layer in layers)]
    tables += (replace(TABLE, step=replace(Step(8), **{column.name: 7})) for column in fields(Step))
    assert len({*map(hash, tables)}) == len(tables)
    assert TABLE.digest not in {table.digest for table in tables[1:]}


def test_columns_may_come_in_any_order(written):
    rows = [line.split(",") for line in written.read_text(encoding="utf-8").splitlines()[:3]]
    written.write_text("\n".join(",".join(reversed(row)) for row in rows), encoding="utf-8")
    assert read_layer_table_csv(written).layers == (CONV, RELU)


def test_a_cnn_may_be_named_and_the_mark_that_spreadsheets_put_first_is_no_part_of_a_column(written):
    written.write_bytes(b"\xef\xbb\xbf" + written.read_bytes())
    assert read_layer_table_csv(written) == TABLE
    assert read_layer_table_csv(written, cnn="other").cnn == "other"


def test_a_generator_has_the_size_of_the_image_that_it_makes(tmp_path):
    first = Layer(
        0, "g", "conv_transpose2d", None, (IMAGE,), 100, 1, 1, 512, 4, 4, 4, 4, 1, 1, 0, 0, 1, 1, 819200
    )
    last = Layer(1, "t", "activation", "tanh", (0,), 512, 4, 4, 512, 4, 4)
    LayerTable("generator", 4, (first, last)).to_csv(tmp_path / "g.csv")
    assert read_layer_table_csv(tmp_path / "g.csv").image_size == 4


@each_row
def test_what_is_wrong_is_said_with_its_line(written, old, new, complaint):
    _changed(written, old, new)
    with pytest.raises(SchemaError) as refusal:
        read_layer_table_csv(written)
    assert complaint in str(refusal.value)


def test_a_file_without_layers_is_refused(tmp_path):
    header = ",".join(LAYER_TABLE_COLUMNS).encode()
    for content, error, message in (
        (b"", SchemaError, "is empty"),
        (header, SchemaError, "no layers"),
        (None, DataError, "cannot read the layer table"),
        (bytes(range(256)), SchemaError, "not a CSV file"),
    ):
        path = tmp_path / ("none.csv" if content is None else "some.csv")
        path.write_bytes(content) if content is not None else None
        with pytest.raises(error, match=message):
            read_layer_table_csv(path)


STEP = Step(256, 4, "amp_bf16", "channels_last", "adam")


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    step = replace(STEP, optimizer_states=2.0, optimizer_passes=18.25, optimizer_form="loop", parallel="dp")
    doubts = (TableWarning("operator", "fft_c2c, stft"), TableWarning("cnn", "momentum's update is counted"))
    replace(TABLE, image_size=448, step=step, warnings=doubts).to_csv(tmp_path / "step.csv")
    return tmp_path / "step.csv"


def test_a_recorded_step_is_read_again_with_its_mode_and_its_warnings(recorded):
    table = read_layer_table_csv(recorded)
    also = {"optimizer_states": 2.0, "optimizer_passes": 18.25, "optimizer_form": "loop", "parallel": "dp"}
    assert table.step == replace(STEP, **also)
    assert (table.image_size, [warning.about for warning in table.warnings]) == (
        448,
        ["fft_c2c, stft", "momentum's update is counted"],
    )


@each_row
def test_a_wrong_word_of_a_recorded_step_is_refused(recorded, old, new, complaint):
    text = recorded.read_text(encoding="utf-8")
    recorded.write_text(text.replace(old, new, 1 if "rows before" in complaint else -1), encoding="utf-8")
    with pytest.raises(SchemaError) as refusal:
        read_layer_table_csv(recorded)
    assert complaint in str(refusal.value)
