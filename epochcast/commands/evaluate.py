"""`epochcast evaluate`: how far predictions lie from measurements that the fit never saw."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_records


class Scaling(StrEnum):
    """What differs from the training rows."""

    problem = "problem"
    hardware = "hardware"
    both = "both"


@o.with_json
def evaluate_command(
    measurements: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Measurement tables, .csv, .csv.gz or .parquet.", show_default="published measurements"
        ),
    ] = None,
    published: Annotated[
        Path | None,
        typer.Option(help="Folder of published measurements.", show_default="$EPOCHCAST_PUBLISHED_DATA"),
    ] = None,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Scenario; repeat it.", show_default="all that apply")
    ] = None,
    scaling: Annotated[
        list[Scaling] | None,
        typer.Option(
            help="The study's question: another batch size, another GPU, both; repeat it. Instead of --scenario.",
            show_default=False,
        ),
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
    from epochcast.measured import evaluation
    from predictor.evaluation.report import scenario_text, write_report
    from predictor.evaluation.scenarios import SCALINGS

    scenarios = [*(scenario or ()), *(SCALINGS[word] for word in scaling or ())]
    result = evaluation(measurements or None, published, scenarios or None, predictor or None, seed, jobs)
    if output is Format.table:
        typer.echo("\n\n".join(scenario_text(result, name) for name in result.scenarios()))
    else:
        table = result.table()
        print_records(table.to_dict("records"), output, table.columns, seed=seed)
    if out is not None:
        written = write_report(result, out, plots)
        typer.echo(f"Wrote {len(written)} files to {out}.", err=True)
