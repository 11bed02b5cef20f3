"""`epochcast evaluate`: how far predictions lie from measurements that the fit never saw."""

from enum import StrEnum
from pathlib import Path

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_records


class Scaling(StrEnum):
    """Axis on which tested rows differ from the training rows."""

    problem = "problem"
    hardware = "hardware"
    both = "both"


@o.with_json
def evaluate_command(
    measurements: list[Path] | None = o.argument(
        "Measurement tables, .csv, .csv.gz or .parquet.", "published measurements"
    ),
    published: Path | None = o.option("Folder of published measurements.", "$EPOCHCAST_PUBLISHED_DATA"),
    scenario: list[str] | None = o.option("Scenario; repeat it.", "all that apply"),
    scaling: list[Scaling] | None = o.option(
        "The study's question: another batch size, another GPU, both; repeat it. Instead of --scenario."
    ),
    predictor: list[str] | None = o.option("Predictor; repeat it.", "all that apply"),
    seed: int = o.option("Seed of what is drawn at random.", default=0),
    jobs: int = o.option("Number of processes.", default=1),
    out: Path | None = o.option("Folder for CSV files and plots."),
    plots: bool = o.option("Draw plots into --out; needs matplotlib.", default=True),
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
