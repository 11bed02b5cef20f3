"""How answers read on a terminal, as files and as JSON: the title and columns that predict and compare share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from epochcast.notes import guesses
from epochcast.tables import Column, Format, Record, print_records, write_records
from predictor.answers.notes import Reason, co2, duration, energy, number
from predictor.catalogue.devices import short_name
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import is_layer_csv, resolve_cnn
from predictor.table_files import STANDARD


def is_delivered(
    records: Sequence[Record], out: Path | None, output: Format, scope: str, **about: Any
) -> bool:
    """Write an answer with every field to the file of --out, and print it as JSON or CSV; False if a table is left.

    A table is left where --format asks for one, and --out is not the standard output. Errors as of
    `epochcast.tables.write_records`.
    """
    if out is not None:
        write_records(records, out, records[0])
        if str(out) == STANDARD:
            return True
        typer.echo(f"Wrote {out}.", err=True)
    if output is not Format.table:
        print_records(records, output, records[0], **about, covers=scope)
    return output is not Format.table


def title(cnn: str, image_size: int, cnns: Sequence[object]) -> str:
    """Name of a CNN and the sides of its images; `cnns` are those of the question."""
    tables = (resolve_cnn(cnn_) if is_layer_csv(cnn_) else cnn_ for cnn_ in cnns)
    table = next((table for table in tables if isinstance(table, LayerTable) and table.cnn == cnn), None)
    return f"{cnn}, {f'{image_size} x {image_size} px' if table is None else table.image_in_words}"


def columns_of(records: Sequence[Record]) -> dict[str, Column]:
    """Columns that mean the same in all answers, by field; precision and method only show where rows differ."""
    return {
        "gpu": Column("GPU", lambda r: short_name(r["gpu"]), left=True),
        "epoch_time_s": Column("epoch", lambda r: duration(r["epoch_time_s"]), rank=1),
        "cost_usd": Column("US$/epoch", _cost, rank=1),
        "watt_hours": Column("energy/epoch", lambda r: energy(r["watt_hours"]), rank=2),
        "co2_g": Column("CO2/epoch", lambda r: co2(r["co2_g"]), rank=2),
        "precision": _if_it_varies(records, "precision", rank=0),
        "method": _if_it_varies(records, "method", rank=2),
    }


def notes_column(letters: Mapping[Reason, str]) -> Column:
    """The letters of the reasons why a row extrapolates, as `epochcast.notes.legend` explains them."""
    return Column("notes", lambda r: ",".join(letters[reason] for reason in r["extrapolates"]), left=True)


def gpus_in_words(record: Record) -> str:
    """The GPUs that work: ``T4``, or ``4x T4``."""
    several = f"{record['gpus_used']}x " if record["gpus_used"] > 1 else ""
    return f"{several}{short_name(record['gpu'])}"


PACKED = Column("per GPU", lambda r: str(r["per_gpu"]) if r["per_gpu"] > 1 else "", rank=2)
"""Trainings that share a GPU; empty, and so not shown, where a training has one to itself."""


def gpus_column(*, marked: bool) -> Column:
    """The GPUs that work; `marked` with ``~`` where a row extrapolates."""
    return Column("GPU", lambda r: f"{gpus_in_words(r)}{' ~' * (marked and bool(guesses(r)))}", left=True)


def _if_it_varies(records: Sequence[Record], name: str, rank: int) -> Column:
    """A column that is empty, and so never shown, where all rows have the same."""
    if len({record[name] for record in records}) == 1:
        return Column(name, lambda _: "", left=True, rank=1)
    return Column(name, lambda r: str(r[name]), left=True, rank=rank)


def _cost(record: Record) -> str:
    if record["epoch_time_s"] is None:
        return ""
    return "no offer" if record["cost_usd"] is None else number(record["cost_usd"])
