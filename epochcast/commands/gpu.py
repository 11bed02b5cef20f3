"""`epochcast gpu`: the catalogue of GPUs."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, print_as, print_records, print_table, table_columns

app = typer.Typer(help="The catalogue of GPUs.", no_args_is_help=True)


@app.command("list")
@o.with_json
def list_command(
    generation: str | None = o.option("Only one, such as turing or hopper.", "all"),
    output: o.OutputFormat = Format.table,
) -> None:
    """List every GPU that can be predicted."""
    from predictor.catalogue.devices import gpus_of_generation

    records = [asdict(gpu) for gpu in gpus_of_generation(generation)]
    title = f"{len(records)} GPUs; a card with several chips counts as one chip"
    print_as(output, records, table_columns("gpu list"), title)


@app.command("show")
@o.with_json
def show_command(
    name: Annotated[
        str, typer.Argument(help="Any name that people and drivers write.", autocompletion=o.complete_gpu)
    ],
    output: o.OutputFormat = Format.table,
) -> None:
    """Show the specifications and precisions of one GPU."""
    from predictor.catalogue.devices import find_gpu, precisions_of

    gpu = find_gpu(name)
    record = {**asdict(gpu), "precisions": precisions_of(gpu)}
    if output is not Format.table:
        print_records([record], output, record)
        return
    columns = [Column("field", lambda field: field, left=True)]
    print_table(list(record), [*columns, Column("value", lambda field: _text(record[field]), left=True)])


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(str(entry) for entry in value)
    return "not given by the vendor" if value is None else str(value)
