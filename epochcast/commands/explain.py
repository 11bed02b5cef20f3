"""`epochcast explain`: what the time of an iteration is made of, predicted for a CNN or measured in a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.explain_tables import show_explanations
from epochcast.commands.user_files import cnns_or_layers
from epochcast.tables import Format, print_records
from predictor.answers.question import Question

if TYPE_CHECKING:
    from epochcast.transport import Service
    from predictor.answers.explain import Explanation

__all__ = ["explain_command"]

_BATCH_SIZES = "1,2,4,8,16,32,64,128,256,512"
_OF_TABLE = {
    "precision": "the framework's; a table's",
    "memory_format": "nchw; a table's",
    "framework": "pytorch; a table's",
    "capture": "eager; a table's",
}


@o.with_options(Question, without=("validation_samples", "offers", "spot"), usual=_OF_TABLE)
def explain_command(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TABLE|CNN...",
            help="CNNs as of predict, or measurement tables (.csv, .csv.gz); with both, those CNNs of the tables.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU by any of its names; repeat it.", show_default="a table's"),
    ] = None,
    batch_size: Annotated[
        list[str] | None,
        typer.Option(
            "--batch-size",
            "-b",
            help="Mini-batch size; repeat it, or write 32,64.",
            metavar="N",
            show_default=f"{_BATCH_SIZES}; a table's",
        ),
    ] = None,
    server: o.Server = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw shares and times into this .png or .svg; needs matplotlib.")
    ] = None,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Show what the time of an iteration is made of, what bounds it, and what another mode would give."""
    from epochcast.explaining import ExplainRequest, explained
    from predictor.errors import SchemaError

    if not what:
        raise SchemaError(
            "neither a CNN nor a measurement table is given. Try: epochcast explain resnet50 --gpu H200"
        )
    from predictor.answers.explain_measured import is_measurement_table

    of_table = any(is_measurement_table(each) for each in what)  # then CNNs are names in it
    subject = what if of_table else cnns_or_layers(what, options)
    found, covers = explained(ExplainRequest(subject, gpu, batch_size or None, options), _service(server))
    if plot is not None:
        from predictor.answers.plots import write_plot

        write_plot(found, plot)
    _print(found, output, covers)
    if plot is not None:
        typer.echo(f"Wrote {plot}.", err=True)


def _service(url: str | None) -> "Service | None":
    if url is None:
        return None
    from epochcast.transport import Service

    return Service(url)


def _print(found: "Sequence[Explanation]", output: Format, covers: str) -> None:
    from dataclasses import asdict

    from predictor.answers.explain import explanation_rows, row_columns

    if output is Format.table:
        show_explanations(found, covers)
    elif output is Format.json:
        records: list[dict[str, Any]] = [asdict(each) for each in found]
        print_records(records, output, records[0], covers=covers)
    else:
        rows = [row for each in found for row in explanation_rows(each)]
        print_records(rows, output, row_columns(found))
