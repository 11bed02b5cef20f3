"""`epochcast compare`: which GPU to rent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.predict import legend, notes_column, price_dates, reason_letters, table_gpu_name
from epochcast.commands.user_files import cnn_or_layers
from epochcast.tables import Column, Format, Record, duration, number, print_notes, print_records, print_table

if TYPE_CHECKING:
    from predictor.answers.compare import ComparisonRow

__all__ = ["compare_command"]

_WISHES = "Wishes"


def compare_command(
    cnn: Annotated[
        str,
        typer.Argument(
            help="A zoo name, a layer-table CSV, an ONNX file, or FILE.py:make_model, which is run.",
            show_default=False,
        ),
    ],
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", "-g", help="GPU by any of its names.", show_default="every GPU on offer"),
    ] = None,
    batch_size: o.BatchSizes = None,
    image_size: o.ImageSize = None,
    dataset: o.DataSet = None,
    samples: o.Samples = None,
    validation_samples: o.ValidationSamples = 0,
    epochs: Annotated[int, typer.Option(help="Epochs to train.", rich_help_panel=_WISHES)] = 1,
    budget: Annotated[
        float | None, typer.Option(help="US$ that the training may cost.", rich_help_panel=_WISHES)
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Hours that it may take.", rich_help_panel=_WISHES)
    ] = None,
    setup_minutes: Annotated[
        float, typer.Option(help="Paid minutes before training starts.", rich_help_panel=_WISHES)
    ] = 0.0,
    relative_to: Annotated[
        str | None, typer.Option(help="GPU to compare the others with.", rich_help_panel=_WISHES)
    ] = None,
    rank_by: Annotated[str, typer.Option(help="cost or time.", rich_help_panel=_WISHES)] = "cost",
    all_offers: Annotated[
        bool, typer.Option("--all-offers", help="Every offer, not the cheapest of each GPU.")
    ] = False,
    precision: o.Precision = "fp32",
    memory_format: o.MemoryFormat = "nchw",
    framework: o.Framework = "pytorch",
    autotune: o.Autotune = False,
    capture: o.Capture = "eager",
    optimizer: o.Optimizer = "momentum",
    host: o.Host = None,
    offers: o.Offers = None,
    spot: o.AllowSpot = False,
    anchor_gpu: o.AnchorGpu = None,
    anchor_batch_size: o.AnchorBatchSize = None,
    anchor_iteration_time_ms: o.AnchorIterationTime = None,
    anchor_epoch_time_s: o.AnchorEpochTime = None,
    anchor_samples: o.AnchorSamples = None,
    anchor_throughput: o.AnchorThroughput = None,
    method: o.Method = "auto",
    model: o.ModelFile = None,
    server: o.Server = None,
    output: o.OutputFormat = Format.table,
) -> None:
    """Rank GPUs for rent by what the training costs or how long it takes."""
    question: dict[str, Any] = {
        "image_size": image_size,
        "samples": samples,
        "data_set": dataset,
        "validation_samples": validation_samples,
        "precision": precision,
        "memory_format": memory_format,
        "framework": framework,
        "autotune": autotune,
        "capture": capture,
        "optimizer": optimizer,
        "anchors": o.anchors_from(
            anchor_gpu,
            anchor_batch_size,
            anchor_iteration_time_ms,
            anchor_epoch_time_s,
            anchor_samples,
            anchor_throughput,
        ),
        "method": method,
        "host": host,
        "model": model,
    }
    wishes: dict[str, Any] = {
        "epochs": epochs,
        "budget_usd": budget,
        "deadline_h": deadline,
        "setup_minutes": setup_minutes,
        "relative_to": relative_to,
        "rank_by": rank_by,
        "all_offers": all_offers,
        "offers": offers,
        "spot": spot,
    }
    found, covers = _answer(
        server, cnn_or_layers(cnn, image_size, dataset), gpu or None, batch_size or (), question, wishes
    )
    _show(found, output, covers, relative_to)


def _answer(
    server: str | None,
    cnn: object,
    gpu: object,
    batch_size: Sequence[str],
    question: dict[str, Any],
    wishes: dict[str, Any],
) -> "tuple[list[ComparisonRow], str]":
    """The rows, and what they cover: the service's where one is named, else the local core's."""
    if server is not None:
        from epochcast.remote import compare_remotely
        from epochcast.transport import Service

        return compare_remotely(Service(server), cnn, batch_size, gpu, **question, **wishes)
    from predictor.answers.compare import compare
    from predictor.answers.question import load_model
    from predictor.answers.scope import coverage_of

    question = question | {"model": load_model(question["model"])}
    found = compare(cnn, batch_size, gpu, **wishes, **question)
    return found, coverage_of(found[0].host, trained_on=[row.trained_on for row in found], **question)


def _show(found: "list[ComparisonRow]", output: Format, covers: str, relative_to: str | None) -> None:
    from dataclasses import asdict

    records = [asdict(row) for row in found]
    if output is not Format.table:
        print_records(records, output, records[0], covers=covers)
        return
    first = found[0]
    epochs = f"{first.epochs:,} epoch{'s' if first.epochs > 1 else ''}"
    title = f"{first.cnn}, {first.image_size} x {first.image_size} px, {epochs}"
    letters = reason_letters([row.extrapolates for row in found])
    print_table(records, _columns(letters), title, strong=lambda r: bool(r["pareto"]))
    print()
    print_notes(_notes(found, letters, covers, relative_to))


def _columns(letters: dict[str, str]) -> list[Column]:
    return [
        Column("", lambda r: f"{r['rank'] or ''}"),
        Column("GPU", lambda r: table_gpu_name(r["gpu"]), left=True),
        Column("batch", lambda r: str(r["batch_size"]), rank=3),
        Column("offer", lambda r: r["offer"], left=True),
        Column("GPUs used", _used, rank=4),
        Column("US$/h", lambda r: number(r["usd_per_hour"]), rank=4),
        Column("epoch", lambda r: duration(r["epoch_time_s"]), rank=2),
        Column("US$/epoch", lambda r: number(r["cost_usd"]), rank=3),
        Column("time", lambda r: duration(3600.0 * r["total_time_h"])),
        Column("US$", lambda r: number(r["total_cost_usd"])),
        Column("x speed", lambda r: number(r["speedup"]), rank=1),
        Column("x cost", lambda r: number(r["cost_ratio"]), rank=1),
        Column("verdict", _verdict, left=True),
        Column("priced on", lambda r: r["priced_on"] or "", left=True, rank=5),
        Column("method", lambda r: r["method"], left=True, rank=6),
        notes_column(letters),
    ]


def _used(record: Record) -> str:
    count = record["offer_gpu_count"]
    return "" if count is None else f"{record['gpus_used']} of {count:g}"


def _verdict(record: Record) -> str:
    words = ["Pareto"] if record["pareto"] else []
    if not record["fits_in_memory"]:
        words.append("out of memory")
    if record["within_budget"] is False:
        words.append("over budget")
    if record["within_deadline"] is False:
        words.append("too late")
    return ", ".join(words)


def _notes(
    found: "list[ComparisonRow]", letters: dict[str, str], covers: str, relative_to: str | None
) -> list[str]:
    notes = [
        "Pareto: nothing else is as fast and as cheap, and better in one. "
        "Cost: the whole instance x time; one GPU used."
    ]
    if any(row.usd_per_hour is not None for row in found):
        dates = price_dates([row.priced_on for row in found])
        notes.append(f"{dates[0].upper()}{dates[1:]}.")
    if relative_to:
        notes.append(f"x speed, x cost: compared with {relative_to}; 2 is twice as fast, or twice as dear.")
    if not all(row.fits_in_memory for row in found):
        notes.append("Out of memory: by the estimate; such rows are not ranked.")
    return [*notes, *legend(letters), covers]
