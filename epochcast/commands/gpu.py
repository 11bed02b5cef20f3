"""`epochcast gpu`: the catalogue of GPUs."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, print_as, print_records, print_table
from predictor.answers.notes import number

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
    columns = [
        Column("GPU", lambda r: r["name"], left=True),
        Column("generation", lambda r: r["generation"], left=True),
        Column("chip", lambda r: r["chip"], left=True, rank=3),
        Column("SMs", lambda r: str(r["sm_count"]), rank=2),
        Column("GHz", lambda r: f"{r['boost_clock_ghz']:.3f}", rank=2),
        Column("fp32 TFLOP/s", lambda r: number(r["peak_fp32_tflop_per_s"])),
        Column("fp16 tensor", lambda r: number(r["peak_fp16_tensor_tflop_per_s"]), rank=1),
        Column("GB/s", lambda r: number(r["memory_bandwidth_gb_per_s"])),
        Column("GiB", lambda r: number(r["memory_gib"])),
        Column("released", lambda r: r["released"], left=True, rank=4),
    ]
    print_as(output, records, columns, f"{len(records)} GPUs; a card with several chips counts as one chip")


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
