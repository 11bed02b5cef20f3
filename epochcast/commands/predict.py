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
from predictor.answers.question import Question

if TYPE_CHECKING:
    from predictor.answers.predict import Answer

__all__ = ["legend", "notes_column", "predict_command", "price_dates", "reason_letters", "table_gpu_name"]

_HOST_BOUND = "H"


@o.with_options(Question)
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
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Predict every row of this CSV instead; options hold for rows that leave them empty.",
            rich_help_panel="Many at once",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="CSV that the answers to --rows go to.", rich_help_panel="Many at once"),
    ] = None,
    server: o.Server = None,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Predict how long an iteration and an epoch take, what they cost, and whether they fit in memory."""
    if rows is not None or out is not None:
        given = {"CNN": cnn, "--gpu": gpu, "--batch-size": batch_size, "--server": server}
        _predict_file(rows, out, options, [name for name, value in given.items() if value], output)
        return
    from predictor.errors import SchemaError

    for name, value in (("CNN", cnn), ("--gpu", gpu), ("--batch-size", batch_size)):
        if not value:
            raise SchemaError(
                f"{name} is missing. "
                "Try: epochcast predict resnet50 --gpu T4 --batch-size 64 --dataset imagenet"
            )
    question = Question(cnns_or_layers(cnn, options), gpu, batch_size, **options)
    _show(_answer(server, question), output, question)


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


def _answer(server: str | None, question: Question) -> "Answer":
    """The service's answer where one is named, else the local core's."""
    if server is not None:
        from epochcast.remote import predict_remotely
        from epochcast.transport import Service

        return predict_remotely(Service(server), question)
    from predictor.answers.predict import answer

    return answer(question)


def _letter(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else f"{chr(ord('a') + i // 26 - 1)}{chr(ord('a') + i % 26)}"


def _predict_file(
    rows: Path | None, out: Path | None, options: dict[str, Any], other: list[str], output: Format
) -> None:
    from predictor.answers.bulk import predict_rows
    from predictor.errors import SchemaError

    if rows is None or out is None or other:
        raise SchemaError(
            f"--rows and --out go together, without {', '.join(other) or 'CNN, --gpu and --batch-size'}: the file has "
            "them. Try: epochcast predict --rows rows.csv --out predictions.csv"
        )
    if output not in (Format.table, Format.csv):
        raise SchemaError(
            f"--format {output.value} has no effect on --rows, whose answers are CSV. Leave it out."
        )
    failed = predict_rows(rows, out, **options)
    typer.echo(
        f"Wrote {out}." + (f" {failed} rows failed: see its column error." if failed else ""), err=True
    )
    if failed:
        raise typer.Exit(1)


def _show(found: "Answer", output: Format, question: Question) -> None:
    records = found.records()
    if output is not Format.table:
        print_records(records, output, records[0], covers=found.scope)
        return
    letters = reason_letters(found.columns["extrapolates"])
    several = {name for name in ("method", "precision") if len(set(found.columns[name])) > 1}
    data = question.data_set or (f"{question.samples:,} samples" if question.samples else None)
    for (cnn, image_size), group in groupby(records, key=lambda r: (r["cnn"], r["image_size"])):
        some = list(group)
        title = f"{cnn}, {image_size} x {image_size} px" + (f", {data}" if data else "")
        print_table(
            some,
            _columns(letters, several),
            title,
            (),
            group="GPU",
            strong=lambda r: bool(r["best_batch"]),
        )
        print()
    print_notes(_notes(records, letters, question, found.scope))


def _columns(letters: dict[str, str], several: set[str]) -> list[Column]:
    return [
        Column("GPU", lambda r: table_gpu_name(r["gpu"]), left=True),
        Column("batch", _marked_batch_size),
        Column("iter. ms", lambda r: number(r["iteration_time_ms"])),
        Column("90 % ms", lambda r: f"{number(r['low_ms'])}-{number(r['high_ms'])}", rank=4),
        Column("epoch", lambda r: duration(r["epoch_time_s"]), rank=1),
        Column("90 %", lambda r: span(r["epoch_low_s"], r["epoch_high_s"], r["epoch_time_s"]), rank=1),
        Column("US$/epoch", _cost, rank=1),
        Column("GiB", lambda r: f"{r['peak_memory_gib']:.1f}", rank=3),
        Column("precision", lambda r: r["precision"] if "precision" in several else "", left=True, rank=1),
        Column("method", lambda r: r["method"] if "method" in several else "", left=True, rank=2),
        notes_column(letters),
    ]


def _marked_batch_size(record: Record) -> str:
    mark = "*" if record["best_batch"] else " " if record["fits_in_memory"] else "!"
    return f"{record['batch_size']}{mark}"


def _cost(record: Record) -> str:
    if record["epoch_time_s"] is None:
        return ""
    return "no offer" if record["cost_usd"] is None else number(record["cost_usd"])


def _notes(found: Sequence[Record], letters: dict[str, str], question: Question, scope: str) -> list[str]:
    methods = ", ".join(sorted({row["method"] for row in found}))
    notes = [f"Method: {methods}; intervals are meant to hold the truth nine times out of ten."]
    notes += legend(letters)
    if any(_is_host_bound(row) for row in found):
        notes.append(
            f"({_HOST_BOUND}) host-bound: the host takes longer to enqueue the kernels than the GPU to run "
            "them. A larger batch, a captured graph (--capture graph) or a faster host helps; a faster GPU does not."
        )
    if any(row["best_batch"] for row in found):
        notes.append("* the smallest batch size within 5 % of that GPU's best epoch time")
    if not all(row["fits_in_memory"] for row in found):
        notes.append("! more memory than the GPU has, by the estimate")
    if any(row["cost_usd"] is not None for row in found):
        notes.append(
            "Cost: the whole instance of the cheapest offer with that GPU (one GPU used), "
            f"{price_dates([row['priced_on'] for row in found])}; `epochcast compare` names the offers."
        )
    crowds = {
        table_gpu_name(r["gpu"]): r["offer_gpu_count"] for r in found if (r["offer_gpu_count"] or 1) > 1
    }
    if crowds:
        several = ", ".join(f"{gpu} ({count:g})" for gpu, count in crowds.items())
        notes.append(f"Rented only with several GPUs, all of which are paid for: {several}.")
    if question.precision is None and any(row["precision"] == "tf32" for row in found):
        notes.append(
            "tf32 is PyTorch's default on Ampere and newer GPUs; --precision amp_bf16 with --memory-format "
            "channels_last is usually faster there."
        )
    return [*notes, scope]
