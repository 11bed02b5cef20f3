"""Every table of the zoo is a sound graph of sound rows, and datasets/cnns.csv says what it is."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable, layer_complaint
from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
from predictor.operator_types import ACTIVATION_KINDS, LAYER_TYPES
from predictor.operators.work import cnn_flops

CNNS = Path(__file__).parents[4] / "datasets" / "cnns.csv"
SEVERAL_INPUTS = {"add", "multiply", "concat"}


def tables() -> Iterator[LayerTable]:
    """Each CNN at its usual and at its least image size."""
    for name in zoo_names():
        yield zoo_cnn(name)
        yield zoo_cnn(name, ZOO[name].minimum_image_size)


def offenders(wrong: Callable[[LayerTable, Layer], bool]) -> list[str]:
    return [
        f"{table.cnn}@{table.image_size}: {layer}"
        for table in tables()
        for layer in table
        if wrong(table, layer)
    ]


def reads_wrongly(table: LayerTable, layer: Layer) -> bool:
    """Whether a row reads a row that comes later, or another height or width than that row wrote."""
    read = layer.inputs or ()
    if not read or any(i != IMAGE and i >= layer.index for i in read):
        return True
    if layer.type not in SEVERAL_INPUTS and len(read) != 1:
        return True
    sources = [table.layers[i] for i in read if i != IMAGE]
    sizes = {(source.out_height, source.out_width) for source in sources}
    scaled = {(1, 1)} if layer.type == "multiply" else set()
    return bool(sizes - scaled - {(layer.in_height, layer.in_width)})


def test_no_row_contradicts_itself():
    assert offenders(lambda _table, layer: layer_complaint(layer) is not None) == []


def test_every_row_reads_what_earlier_rows_wrote():
    assert offenders(reads_wrongly) == []


def test_rows_count_from_zero():
    assert [t.cnn for t in tables() if [layer.index for layer in t] != list(range(len(t)))] == []


def test_rows_have_names_of_their_own():
    assert [table.cnn for table in tables() if len({layer.name for layer in table}) != len(table)] == []


def test_types_and_kinds_are_known_words():
    def unknown(_table: LayerTable, layer: Layer) -> bool:
        kinds = ACTIVATION_KINDS if layer.type == "activation" else (None,)
        return layer.type not in LAYER_TYPES or layer.kind not in kinds

    assert offenders(unknown) == []


def test_every_row_but_the_last_is_read():
    unread = [
        table.cnn
        for table in tables()
        if {i for layer in table for i in layer.inputs or ()} != {IMAGE, *range(len(table) - 1)}
    ]
    assert unread == []


def test_the_list_of_cnns_says_what_the_zoo_writes():
    with CNNS.open(newline="", encoding="utf-8") as file:
        listed = {row.pop("cnn"): row for row in csv.DictReader(file)}
    written = {
        name: {
            "image_size": str(ZOO[name].usual_image_size),
            "minimum_image_size": str(ZOO[name].minimum_image_size),
            "layers": str(len(zoo_cnn(name))),
            "parameters": str(zoo_cnn(name).parameters),
            "forward_flops_per_image": str(cnn_flops(zoo_cnn(name), 1, ("forward",))),
            "training_flops_per_image": str(cnn_flops(zoo_cnn(name), 1)),
            "layer_table_digest": zoo_cnn(name).digest,
        }
        for name in zoo_names()
    }
    assert listed == written, "run: epochcast cnn list --format csv > datasets/cnns.csv"
