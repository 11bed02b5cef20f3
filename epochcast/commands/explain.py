"""`epochcast explain`: what the time of an iteration is made of, predicted for a CNN or measured in a table."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.explain_tables import show_explanations
from epochcast.commands.user_files import cnns_or_layers
from epochcast.tables import Format, print_records

if TYPE_CHECKING:
    from epochcast.transport import Service
    from predictor.answers.explain import Explanation

__all__ = ["explain_command"]

_TRAINING = "How it is trained"
_BATCH_SIZES = "1,2,4,8,16,32,64,128,256,512"


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
    image_size: o.ImageSize = None,
    dataset: o.DataSet = None,
    samples: o.Samples = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="fp32, tf32, fp16, amp_fp16 or amp_bf16.",
            show_default="fp32; a table's",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    memory_format: Annotated[
        str | None,
        typer.Option(
            help="nchw or channels_last.", show_default="nchw; a table's", rich_help_panel=_TRAINING
        ),
    ] = None,
    framework: Annotated[
        str | None,
        typer.Option(
            help="pytorch, tensorflow or chainer.",
            show_default="pytorch; a table's",
            rich_help_panel=_TRAINING,
        ),
    ] = None,
    autotune: o.Autotune = False,
    capture: Annotated[
        str | None,
        typer.Option(
            help="eager, graph or static_graph.", show_default="eager; a table's", rich_help_panel=_TRAINING
        ),
    ] = None,
    optimizer: o.Optimizer = "momentum",
    host: o.Host = None,
    measurements: o.OwnMeasurements = None,
    method: o.Method = "auto",
    model: o.ModelFile = None,
    server: o.Server = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw shares and times into this .png or .svg; needs matplotlib.")
    ] = None,
    output: o.OutputFormat = Format.table,
) -> None:
    """Show what the time of an iteration is made of, what bounds it, and what another mode would give."""
    from epochcast.explaining import Wanted, explained
    from predictor.errors import SchemaError

    if not what:
        raise SchemaError(
            "neither a CNN nor a measurement table is given. Try: epochcast explain resnet50 --gpu H200"
        )
    mode = {
        "precision": precision,
        "memory_format": memory_format,
        "framework": framework,
        "capture": capture,
    }
    options = {
        "autotune": autotune,
        "optimizer": optimizer,
        "host": host,
        "measurements": measurements,
        "method": method,
        "model": model,
    }
    from predictor.answers.explain_measured import is_measurement_table

    of_table = any(is_measurement_table(each) for each in what)  # then CNNs are names in it
    asked = what if of_table else cnns_or_layers(what, image_size, dataset)
    wanted = Wanted(asked, gpu, batch_size or None, image_size, samples, dataset, mode, options)
    found, covers = explained(wanted, _service(server))
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
