"""`epochcast compare`: which GPU to rent."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.predict import legend, notes_column, price_dates, reason_letters, table_gpu_name
from epochcast.commands.user_files import cnn_or_layers
from epochcast.tables import Column, Format, Record, duration, number, print_notes, print_records, print_table
from predictor.answers.question import Plan, Question, options_of

if TYPE_CHECKING:
    from predictor.answers.compare import Comparison, ComparisonRow

__all__ = ["compare_command"]


@o.with_options(Question, Plan)
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
    server: o.Server = None,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Rank GPUs for rent by what the training costs or how long it takes."""
    plan = Plan(**{name: options.pop(name) for name in options_of(Plan) if name in options})
    question = Question(cnn_or_layers(cnn, options), gpu or None, batch_size or (), **options)
    _show(_answer(server, question, plan), output, plan)


def _answer(server: str | None, question: Question, plan: Plan) -> "Comparison":
    """The service's answer where one is named, else the local core's."""
    if server is not None:
        from epochcast.remote import compare_remotely
        from epochcast.transport import Service

        return compare_remotely(Service(server), question, plan)
    from predictor.answers.compare import compare

    return compare(question, plan)


def _show(found: "Comparison", output: Format, plan: Plan) -> None:
    from dataclasses import asdict

    records = [asdict(row) for row in found.rows]
    if output is not Format.table:
        print_records(records, output, records[0], covers=found.scope)
        return
    first = found.rows[0]
    epochs = f"{first.epochs:,} epoch{'s' if first.epochs > 1 else ''}"
    title = f"{first.cnn}, {first.image_size} x {first.image_size} px, {epochs}"
    letters = reason_letters([row.extrapolates for row in found.rows])
    print_table(records, _columns(letters), title, strong=lambda r: bool(r["pareto"]))
    print()
    print_notes(_notes(found.rows, letters, found.scope, plan.relative_to))


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
        Column("precision", lambda r: r["precision"], left=True, rank=6),
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
