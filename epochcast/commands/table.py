"""`epochcast table`: measurements joined with specifications of GPUs and counts of layers, as one table."""

from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_records


@o.with_json
def table_command(
    measurements: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Measurement tables, .csv, .csv.gz or .parquet.",
            show_default="the project's proxies and CNNs",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="File to write, .csv, .csv.gz or .parquet.", show_default=False)
    ] = None,
    columns: Annotated[
        bool, typer.Option("--columns", help="Print the columns, their units and meaning.")
    ] = False,
    output: o.OutputFormat = Format.csv,
) -> None:
    """Join measured iterations with the GPUs' specifications and counts of layers, as regressions see them."""
    from epochcast.measured import feature_table

    if columns:
        _print_columns(output)
        return
    table = feature_table(measurements or None)
    if out is None:
        print_records([dict(row) for _, row in table.iterrows()], output, table.columns)
        return
    from predictor.table_files import write_frame

    write_frame(table, out)
    typer.echo(f"Wrote {len(table):,} rows of {table.shape[1]} columns to {out}.", err=True)


def _print_columns(output: Format) -> None:
    from predictor.measurements.features import DESCRIBING_COLUMNS, MEASURED_COLUMNS
    from predictor.measurements.schema import column

    columns = [*(column(name) for name in MEASURED_COLUMNS), *DESCRIBING_COLUMNS]
    records = [
        {"column": described.name, "unit": described.unit, "meaning": described.about}
        for described in columns
        if described
    ]
    print_records(records, output, ("column", "unit", "meaning"))
