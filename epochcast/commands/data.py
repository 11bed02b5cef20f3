"""`epochcast data`: lists and imports published measurements, and shows and uploads measurement tables."""

import os
from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, counted, print_as, print_records, table_columns

app = typer.Typer(
    help="Measurement tables: import published ones, show what one holds, upload it.", no_args_is_help=True
)

_FOLDER = "Folder of published tables; $EPOCHCAST_PUBLISHED_DATA if not given."
_To = Annotated[Path | None, typer.Option(help=_FOLDER, show_default=False)]


@app.command("list")
@o.with_json
def list_command(to: _To = None, output: o.OutputFormat = Format.table) -> None:
    """List the published tables, whose they are, and whether the folder has the released one."""
    from predictor.measurements.published.reader import released_tables
    from predictor.measurements.published.sources import DATA_SETS

    named = to or os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    folder = Path(named) if named else None
    records = [
        {
            "data_set": table.data_set,
            "table": table.table,
            "rows": table.rows,
            "licence": DATA_SETS[table.data_set].provenance.licence,
            "repository": DATA_SETS[table.data_set].provenance.repository,
            "sha256": table.sha256,
            "state": table.state(folder) if folder else None,
        }
        for table in released_tables()
    ]
    columns = table_columns("data list")[: None if folder else -1]
    print_as(output, records, columns, str(folder) if folder else None)


@app.command("import")
@o.with_json
def import_command(
    name: Annotated[str, typer.Argument(help="As `data list` names it, such as profet or timm.")],
    path: Annotated[Path, typer.Argument(help="The published table, or the folder that holds it.")],
    out: Path | None = o.option("Table to write, .csv, .csv.gz or .parquet."),
    output: o.OutputFormat = Format.table,
) -> None:
    """Turn published measurements into a measurement table, and report the rows rejected and why."""
    from predictor.measurements.published import import_measurements
    from predictor.measurements.table import write_measurements

    frame, report = import_measurements(name, path)
    if out is not None:
        write_measurements(frame, out)
    if output is Format.table:
        typer.echo(str(report) + (f"\nWrote {out}." if out else "\nNothing written: pass --out FILE."))
        return
    rejected = [{"line": line, "reason": reason} for line, reason in report.rejected]
    counts = {"read": report.n_read, "kept": report.n_kept, "measurements": report.n_measurements}
    about = {"source": report.source, **counts, "oddities": report.oddities}
    print_records(rejected, output, ("line", "reason"), **about)


@app.command("push")
def push_command(
    path: Annotated[Path, typer.Argument(help="A measurement table, .csv, .csv.gz or .parquet.")],
    url: Annotated[str, typer.Argument(help="Address of the service.")],
) -> None:
    """Upload a measurement table to a service, with the key in $EPOCHCAST_API_KEY; each row is stored once."""
    push_table(path, url)


def push_table(path: Path, url: str) -> None:
    """Upload a table and report on stderr how many of its rows were new; errors as of `upload`."""
    from epochcast.pushing import upload

    receipt = upload(path, url)
    typer.echo(
        f"{url}: {receipt.stored:,} of {len(receipt.ids):,} measurements stored, {receipt.duplicates:,} there already.",
        err=True,
    )


@app.command("show")
@o.with_json
def show_command(
    path: Annotated[Path, typer.Argument(help="A measurement table, .csv, .csv.gz or .parquet.")],
    output: o.OutputFormat = Format.table,
) -> None:
    """Check a measurement table and summarise it."""
    from predictor.measurements.table import read_measurements, summary

    table = summary(read_measurements(path))
    table = table.astype(object).where(table.notna(), None)
    records = [{str(key): value for key, value in row.items()} for row in table.to_dict("records")]
    title = f"{path.name}: {counted(sum(r['measurements'] for r in records), 'measurement')}"
    print_as(output, records, table_columns("data show"), title, [str(name) for name in table.columns])
