"""Every table of the zoo is a sound graph of sound rows, and the shipped CSVs are those tables."""

from collections import Counter
from pathlib import Path

import pytest

from predictor.cnns.layer_table import (
    ACTIVATION_KINDS,
    IMAGE,
    LAYER_TYPES,
    Layer,
    LayerTable,
    layer_complaint,
    read_layer_table_csv,
    write_layer_table_csv,
)
from predictor.cnns.zoo import minimum_image_size, zoo_cnn, zoo_names

SHIPPED = Path(__file__).parents[4] / "datasets" / "cnns"
ONE_INPUT = set(LAYER_TYPES) - {"add", "multiply", "concat"}


def unsound(layer: Layer, before: dict[int, Layer]) -> bool:
    """Whether a row reads a row that comes later, or another height or width than that row wrote."""
    read = layer.inputs or ()
    if not read or any(i != IMAGE and i not in before for i in read):
        return True
    if layer.type in ONE_INPUT and len(read) != 1:
        return True
    sizes = {(before[i].out_height, before[i].out_width) for i in read if i != IMAGE}
    scaled = {(1, 1)} if layer.type == "multiply" else set()
    return bool(sizes - scaled - {(layer.in_height, layer.in_width)})


@pytest.fixture(scope="module")
def zoo() -> dict[str, LayerTable]:
    """Every table at its usual image size."""
    return {name: zoo_cnn(name) for name in zoo_names()}


def complaints(table: LayerTable) -> list[str]:
    found = []
    before: dict[int, Layer] = {}
    for layer in table:
        complaint = layer_complaint(layer)
        if complaint is not None or unsound(layer, before):
            found.append(f"{table.cnn} at {table.image_size}: {complaint or 'inputs'}: {layer}")
        before[layer.index] = layer
    return found


def test_every_row_is_consistent_and_reads_what_earlier_rows_wrote(zoo: dict[str, LayerTable]) -> None:
    smallest = [zoo_cnn(name, minimum_image_size(name)) for name in zoo]
    assert [line for table in (*zoo.values(), *smallest) for line in complaints(table)] == []


def test_rows_count_from_zero_under_names_of_their_own(zoo: dict[str, LayerTable]) -> None:
    rows = {name: [layer.index for layer in table] for name, table in zoo.items()}
    assert {name: found for name, found in rows.items() if found != list(range(len(found)))} == {}
    names = {name: Counter(layer.name for layer in table) for name, table in zoo.items()}
    assert {name: found for name, found in names.items() if max(found.values()) > 1} == {}


def test_types_and_kinds_are_known_words(zoo: dict[str, LayerTable]) -> None:
    words = {(name, layer.type, layer.kind) for name, table in zoo.items() for layer in table}
    known = {(type_, None) for type_ in LAYER_TYPES if type_ != "activation"}
    known |= {("activation", kind) for kind in ACTIVATION_KINDS}
    assert {word for word in words if word[1:] not in known} == set()


def test_every_row_but_the_last_is_read(zoo: dict[str, LayerTable]) -> None:
    unread = {
        name: {IMAGE, *range(len(table) - 1)} ^ {i for layer in table for i in layer.inputs or ()}
        for name, table in zoo.items()
    }
    assert {name: rows for name, rows in unread.items() if rows} == {}


def test_the_shipped_tables_are_what_the_zoo_writes(zoo: dict[str, LayerTable], tmp_path: Path) -> None:
    for name, table in zoo.items():
        write_layer_table_csv(table, tmp_path / f"{name}.csv")
    changed = [
        name
        for name in zoo
        if (tmp_path / f"{name}.csv").read_bytes() != (SHIPPED / f"{name}.csv").read_bytes()
    ]
    assert changed == []


def test_every_cnn_is_shipped_and_nothing_else() -> None:
    assert sorted(path.name for path in SHIPPED.iterdir()) == sorted(f"{name}.csv" for name in zoo_names())


def test_a_shipped_table_reads_back_as_the_zoos(zoo: dict[str, LayerTable]) -> None:
    def contents(table: LayerTable) -> tuple[object, ...]:
        return table.cnn, table.image_size, table.layers

    read = {name: read_layer_table_csv(SHIPPED / f"{name}.csv") for name in zoo}
    assert [name for name, table in zoo.items() if contents(read[name]) != contents(table)] == []
