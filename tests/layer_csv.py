"""Writes layer tables as the CSV that people write by hand."""

import csv
from os import PathLike
from pathlib import Path

from predictor.cnns.layer_table import LAYER_TABLE_COLUMNS, LayerTable

PASSES = ("forwards", "input_gradients", "weight_gradients", "recomputed")


def write_layer_table_csv(table: LayerTable, path: str | PathLike[str]) -> None:
    """`repeats` is written only where one is not 1, numbers of passes only where one is known."""
    usual = {"repeats": 1, **dict.fromkeys(PASSES)}
    columns = [
        name
        for name in LAYER_TABLE_COLUMNS
        if name not in usual or any(getattr(layer, name) != usual[name] for layer in table)
    ]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(getattr(layer, name)) for name in columns] for layer in table)


def _text(value: object) -> str:
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
