"""Every table of the zoo is a sound graph of sound rows, and the shipped CSVs are those tables."""

from pathlib import Path

import pytest

from predictor.cnns.layer_table import (
    ACTIVATION_KINDS,
    IMAGE,
    LAYER_TYPES,
    Layer,
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


@pytest.mark.parametrize("name", zoo_names())
def test_every_row_is_consistent_and_reads_what_earlier_rows_wrote(name: str) -> None:
    for table in (zoo_cnn(name), zoo_cnn(name, minimum_image_size(name))):
        before: dict[int, Layer] = {}
        for layer in table:
            assert layer_complaint(layer) is None
            assert not unsound(layer, before), layer
            before[layer.index] = layer


@pytest.mark.parametrize("name", zoo_names())
def test_rows_count_from_zero_under_names_of_their_own(name: str) -> None:
    table = zoo_cnn(name)
    assert [layer.index for layer in table] == list(range(len(table)))
    assert len({layer.name for layer in table}) == len(table)


@pytest.mark.parametrize("name", zoo_names())
def test_types_and_kinds_are_known_words(name: str) -> None:
    for layer in zoo_cnn(name):
        assert layer.type in LAYER_TYPES
        assert layer.kind in ACTIVATION_KINDS if layer.type == "activation" else layer.kind is None


@pytest.mark.parametrize("name", zoo_names())
def test_every_row_but_the_last_is_read(name: str) -> None:
    table = zoo_cnn(name)
    read = {i for layer in table for i in layer.inputs or ()}
    assert read == {IMAGE, *range(len(table) - 1)}


@pytest.mark.parametrize("name", zoo_names())
def test_the_shipped_table_is_what_the_zoo_writes(name: str, tmp_path: Path) -> None:
    write_layer_table_csv(zoo_cnn(name), tmp_path / "written.csv")
    written, shipped = (tmp_path / "written.csv").read_bytes(), (SHIPPED / f"{name}.csv").read_bytes()
    assert written == shipped, "the zoo's table changed"


def test_every_cnn_is_shipped_and_nothing_else() -> None:
    assert sorted(path.name for path in SHIPPED.iterdir()) == sorted(f"{name}.csv" for name in zoo_names())


@pytest.mark.parametrize("name", zoo_names())
def test_a_shipped_table_reads_back_as_the_zoos(name: str) -> None:
    read = read_layer_table_csv(SHIPPED / f"{name}.csv")
    assert (read.cnn, read.image_size, read.layers) == (name, zoo_cnn(name).image_size, zoo_cnn(name).layers)
