"""`epochcast table`: measurements joined with specifications of GPUs and counts of layers, as one table."""

from pathlib import Path

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_records


@o.with_json
def table_command(
    measurements: list[Path] | None = o.argument(
        "Measurement tables, .csv, .csv.gz or .parquet.", "the project's proxies and CNNs"
    ),
    out: Path | None = o.option("File to write, .csv, .csv.gz or .parquet."),
    columns: bool = o.option("Print the columns, their units and meaning.", default=False, flag="--columns"),
    output: o.OutputFormat = Format.csv,
) -> None:
    """Join measured iterations with the GPUs' specifications and counts of layers, as regressions see them."""
    from epochcast.measured import feature_table
    from predictor.measurements.features import DESCRIBING_COLUMNS, MEASURED_COLUMNS
    from predictor.measurements.schema import column

    if columns:
        described = filter(None, [*map(column, MEASURED_COLUMNS), *DESCRIBING_COLUMNS])
        records = [{"column": entry.name, "unit": entry.unit, "meaning": entry.about} for entry in described]
        print_records(records, output, ("column", "unit", "meaning"))
        return
    table = feature_table(measurements or None)
    if out is None:
        print_records([dict(row) for _, row in table.iterrows()], output, table.columns)
        return
    from predictor.table_files import write_frame

    write_frame(table, out)
    typer.echo(f"Wrote {len(table):,} rows of {table.shape[1]} columns to {out}.", err=True)
