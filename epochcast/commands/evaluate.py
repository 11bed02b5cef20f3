"""`epochcast evaluate`: how far predictions lie from measurements that the fit never saw."""

from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_records


@o.with_json
def evaluate_command(
    measurements: Annotated[
        Path | None,
        typer.Argument(
            help="A measurement table, .csv, .csv.gz or .parquet.", show_default="published measurements"
        ),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(help="Folder of published measurements.", show_default="$EPOCHCAST_PUBLISHED_DATA"),
    ] = None,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Scenario; repeat it.", show_default="all that apply")
    ] = None,
    predictor: Annotated[
        list[str] | None, typer.Option(help="Predictor; repeat it.", show_default="all that apply")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of what is drawn at random.")] = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Folder for CSV files and plots.")] = None,
    plots: Annotated[bool, typer.Option(help="Draw plots into --out; needs matplotlib.")] = True,
    output: o.OutputFormat = Format.table,
) -> None:
    """Judge every predictor on measurements that its fit never saw, scenario by scenario."""
    from epochcast.api import evaluation
    from predictor.evaluation.report import scenario_text, write_report

    result = evaluation(measurements, published, scenario or None, predictor or None, seed, jobs)
    if output is Format.table:
        typer.echo("\n\n".join(scenario_text(result, name) for name in result.scenarios()))
    else:
        table = result.table()
        print_records(table.to_dict("records"), output, table.columns, seed=seed)
    if out is not None:
        written = write_report(result, out, plots)
        typer.echo(f"Wrote {len(written)} files to {out}.", err=True)
