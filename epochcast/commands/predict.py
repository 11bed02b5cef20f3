"""`epochcast predict`: the time, cost and memory of training CNNs on GPUs."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.user_files import cnns_or_layers
from epochcast.tables import (
    Column,
    Format,
    Record,
    duration,
    number,
    print_notes,
    print_records,
    print_table,
    span,
)

if TYPE_CHECKING:
    from predictor.answers.predict import PredictionRow

__all__ = ["legend", "notes_column", "predict_command", "price_dates", "reason_letters", "table_gpu_name"]

_HOST_BOUND = "H"


def predict_command(
    cnn: Annotated[
        list[str] | None,
        typer.Argument(
            help="Zoo names (epochcast cnn list), layer-table CSVs, ONNX files, or FILE.py:make_model, which is run.",
            show_default=False,
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", "-g", help="GPU by any of its names; repeat it, or `all`.")
    ] = None,
    batch_size: o.BatchSizes = None,
    image_size: o.ImageSize = None,
    dataset: o.DataSet = None,
    samples: o.Samples = None,
    validation_samples: o.ValidationSamples = 0,
    rows: Annotated[
        Path | None,
        typer.Option(help="Predict every row of this CSV instead.", rich_help_panel="Many at once"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the answers to --rows go.", rich_help_panel="Many at once")
    ] = None,
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
    measurements: o.OwnMeasurements = None,
    method: o.Method = "auto",
    model: o.ModelFile = None,
    server: o.Server = None,
    output: o.OutputFormat = Format.table,
) -> None:
    """Predict how long an iteration and an epoch take, what they cost, and whether they fit in memory."""
    if rows is not None or out is not None:
        _predict_file(rows, out, model, bool(cnn or gpu or batch_size or server))
        return
    from predictor.errors import SchemaError

    for name, given in (("CNN", cnn), ("--gpu", gpu), ("--batch-size", batch_size)):
        if not given:
            raise SchemaError(
                f"{name} is missing. "
                "Try: epochcast predict resnet50 --gpu T4 --batch-size 64 --dataset imagenet"
            )
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
        "measurements": measurements,
        "method": method,
        "host": host,
        "offers": offers,
        "spot": spot,
        "model": model,
    }
    cnns = cnns_or_layers(cnn, image_size, dataset)
    found, covers = _answer(server, cnns, gpu, batch_size or (), question)
    _show(found, output, covers, dataset or (f"{samples:,} samples" if samples else None))


def reason_letters(reasons_by_row: Sequence[tuple[str, ...]]) -> dict[str, str]:
    """Give each distinct reason why rows extrapolate a letter, for a narrow column with a legend."""
    distinct = dict.fromkeys(reason for reasons in reasons_by_row for reason in reasons)
    return {reason: _letter(i) for i, reason in enumerate(distinct)}


def legend(letters: dict[str, str]) -> list[str]:
    """Explain `reason_letters` in notes."""
    return [f"({letter}) extrapolates: {reason}" for reason, letter in letters.items()]


def notes_column(letters: dict[str, str]) -> Column:
    """Reasons why a row extrapolates, as letters, and `H` where it is host-bound.

    A narrow terminal keeps it, since a legend follows.
    """
    return Column(
        "notes",
        lambda r: ",".join(
            [letters[reason] for reason in r["extrapolates"]] + [_HOST_BOUND] * _is_host_bound(r)
        ),
        left=True,
    )


def table_gpu_name(name: str) -> str:
    """Shorten a GPU's name by its vendor, which every GPU here shares; `--gpu` takes the short form, too."""
    return name.removeprefix("NVIDIA ")


def price_dates(dates: Sequence[str | None]) -> str:
    """Say when prices were taken: ``prices of 2026-06-11 to 2026-07-20``."""
    known = sorted({day for day in dates if day})
    if not known:
        return "prices without a date"
    return f"prices of {known[0]}" + (f" to {known[-1]}" if known[-1] != known[0] else "")


def _is_host_bound(record: Record) -> bool:
    """Whether the host takes as long to enqueue an iteration as the GPU to run it; unknown counts as no."""
    host_ms, gpu_ms = record.get("host_time_ms"), record.get("gpu_time_ms")
    return host_ms is not None and gpu_ms is not None and bool(host_ms >= gpu_ms)


def _answer(
    server: str | None, cnn: object, gpu: object, batch_size: Sequence[str], question: dict[str, Any]
) -> "tuple[list[PredictionRow], str]":
    """The rows, and what they cover: the service's where one is named, else the local core's."""
    if server is not None:
        from epochcast.remote import predict_remotely
        from epochcast.transport import Service

        return predict_remotely(Service(server), cnn, gpu, batch_size, **question)
    from predictor.answers.predict import predict
    from predictor.answers.question import load_model
    from predictor.answers.scope import coverage_of

    question = question | {"model": load_model(question["model"])}
    found = predict(cnn, gpu, batch_size, **question)
    return found, coverage_of(found[0].host, trained_on=[row.trained_on for row in found], **question)


def _letter(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else f"{chr(ord('a') + i // 26 - 1)}{chr(ord('a') + i % 26)}"


def _predict_file(rows: Path | None, out: Path | None, model: Path | None, other: bool) -> None:
    from predictor.answers.bulk import predict_rows
    from predictor.answers.question import load_model
    from predictor.errors import SchemaError

    if rows is None or out is None or other:
        raise SchemaError(
            "--rows and --out go together, without CNN, --gpu, --batch-size and --server: the file has them. "
            "Try: epochcast predict --rows rows.csv --out predictions.csv"
        )
    failed = predict_rows(rows, out, load_model(model))
    typer.echo(
        f"Wrote {out}." + (f" {failed} rows failed: see its column error." if failed else ""), err=True
    )
    if failed:
        raise typer.Exit(1)


def _show(found: "list[PredictionRow]", output: Format, covers: str, data: str | None) -> None:
    from dataclasses import asdict

    records = [asdict(row) for row in found]
    if output is not Format.table:
        print_records(records, output, records[0], covers=covers)
        return
    letters = reason_letters([row.extrapolates for row in found])
    methods = {row.method for row in found}
    for (cnn, image_size), group in groupby(records, key=lambda r: (r["cnn"], r["image_size"])):
        some = list(group)
        title = f"{cnn}, {image_size} x {image_size} px" + (f", {data}" if data else "")
        print_table(
            some,
            _columns(letters, len(methods) > 1),
            title,
            (),
            group="GPU",
            strong=lambda r: bool(r["best_batch"]),
        )
        print()
    print_notes(_notes(found, letters, methods, covers))


def _columns(letters: dict[str, str], several_methods: bool) -> list[Column]:
    return [
        Column("GPU", lambda r: table_gpu_name(r["gpu"]), left=True),
        Column("batch", _marked_batch_size),
        Column("iter. ms", lambda r: number(r["iteration_time_ms"])),
        Column("90 % ms", lambda r: f"{number(r['low_ms'])}-{number(r['high_ms'])}", rank=4),
        Column("epoch", lambda r: duration(r["epoch_time_s"]), rank=1),
        Column("90 %", lambda r: span(r["epoch_low_s"], r["epoch_high_s"], r["epoch_time_s"]), rank=1),
        Column("US$/epoch", _cost, rank=1),
        Column("GiB", lambda r: f"{r['peak_memory_gib']:.1f}", rank=3),
        Column("method", lambda r: r["method"] if several_methods else "", left=True, rank=2),
        notes_column(letters),
    ]


def _marked_batch_size(record: Record) -> str:
    mark = "*" if record["best_batch"] else " " if record["fits_in_memory"] else "!"
    return f"{record['batch_size']}{mark}"


def _cost(record: Record) -> str:
    if record["epoch_time_s"] is None:
        return ""
    return "no offer" if record["cost_usd"] is None else number(record["cost_usd"])


def _notes(
    found: "list[PredictionRow]", letters: dict[str, str], methods: set[str], covers: str
) -> list[str]:
    notes = [
        f"Method: {', '.join(sorted(methods))}; intervals are meant to hold the truth nine times out of ten."
    ]
    notes += legend(letters)
    if any(row.host_time_ms >= row.gpu_time_ms for row in found):
        notes.append(
            f"({_HOST_BOUND}) host-bound: the host takes longer to enqueue the kernels than the GPU to run "
            "them. A larger batch, a captured graph (--capture graph) or a faster host helps; a faster GPU does not."
        )
    if any(row.best_batch for row in found):
        notes.append("* the smallest batch size within 5 % of that GPU's best epoch time")
    if not all(row.fits_in_memory for row in found):
        notes.append("! more memory than the GPU has, by the estimate")
    if any(row.cost_usd is not None for row in found):
        notes.append(
            "Cost: the whole instance of the cheapest offer with that GPU (one GPU used), "
            f"{price_dates([row.priced_on for row in found])}; `epochcast compare` names the offers."
        )
    crowds = {table_gpu_name(r.gpu): r.offer_gpu_count for r in found if (r.offer_gpu_count or 1) > 1}
    if crowds:
        several = ", ".join(f"{gpu} ({count:g})" for gpu, count in crowds.items())
        notes.append(f"Rented only with several GPUs, all of which are paid for: {several}.")
    if any(_could_use_tf32(row) for row in found):
        notes.append(
            "On Ampere and newer GPUs PyTorch computes convolutions in tf32 unless told otherwise: "
            "--precision tf32 predicts that; amp_bf16 with --memory-format channels_last is usually faster."
        )
    return [*notes, covers]


def _could_use_tf32(row: "PredictionRow") -> bool:
    from predictor.catalogue.devices import find_gpu, is_cpu, precisions_of

    plain = row.precision == "fp32" and row.framework == "pytorch" and not is_cpu(row.gpu)
    return plain and "tf32" in precisions_of(find_gpu(row.gpu))
