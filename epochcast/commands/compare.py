"""`epochcast compare`: which GPU to rent."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.answer_tables import (
    columns_of,
    host_bound_note,
    legend,
    methods,
    notes_column,
    price_dates,
    print_answer,
    reason_letters,
    title,
)
from epochcast.tables import Column, Format, Record, duration, number, print_notes, print_table
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question

if TYPE_CHECKING:
    from predictor.answers.compare import Comparison

__all__ = ["compare_command"]


@o.with_options(Question, Plan)
def compare_command(
    cnn: Annotated[str, typer.Argument(help=f"The CNN: {o.CNN_HELP}.", show_default=False)],
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu", "-g", help="GPU by any of its names; repeat it.", show_default="every GPU on offer"
        ),
    ] = None,
    batch_size: o.BatchSizes = None,
    server: o.Server = None,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Rank GPUs for rent by what the training costs or how long it takes."""
    plan = Plan(**{name: options.pop(name) for name in options_of(Plan) if name in options})
    question = Question(o.cnn_or_layers(cnn, options), gpu or None, batch_size or (), **options)
    _show(_answer(server, question, plan), output, plan)


def _answer(server: str | None, question: Question, plan: Plan) -> "Comparison":
    """The answer of the service where one is named, else of the local core."""
    if server is not None:
        from epochcast.client import Client

        return Client(server).comparison(question, plan)
    from predictor.answers.compare import compare

    return compare(question, plan)


def _show(found: "Comparison", output: Format, plan: Plan) -> None:
    records = [asdict(row) for row in found.rows]
    if print_answer(records, output, found.scope):
        return
    letters = reason_letters(record["extrapolates"] for record in records)
    epochs = f"{plan.epochs:,} epoch{'s' * (plan.epochs > 1)}"
    print_table(
        records, _columns(records, letters), title(records, epochs), strong=lambda r: bool(r["pareto"])
    )
    print()
    print_notes(_notes(records, letters, found.scope, plan))


def _columns(records: Sequence[Record], letters: dict[str, str]) -> list[Column]:
    shared = columns_of(records)
    return [
        Column("", lambda r: f"{r['rank'] or ''}"),
        shared["gpu"],
        Column("batch", lambda r: str(r["batch_size"]), rank=3),
        Column("offer", lambda r: r["offer"], left=True),
        Column("GPUs used", _used, rank=4),
        Column("US$/h", lambda r: number(r["usd_per_hour"]), rank=4),
        shared["epoch_time_s"],
        shared["cost_usd"],
        Column("time", lambda r: duration(3600.0 * r["total_time_h"])),
        Column("US$", lambda r: number(r["total_cost_usd"])),
        Column("x speed", lambda r: number(r["speedup"]), rank=1),
        Column("x cost", lambda r: number(r["cost_ratio"]), rank=1),
        Column("verdict", _verdict, left=True),
        Column("priced on", lambda r: r["priced_on"] or "", left=True, rank=5),
        shared["precision"],
        shared["method"],
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


def _working(record: Record) -> str:
    """How many GPUs of an offer work."""
    each = record["gpus_used"] // record["nodes"]
    on = "it" if record["nodes"] == 1 else f"each of {record['nodes']}"
    return f"one GPU of {on} works" if each == 1 else f"{each} GPUs of {on} work"


def _notes(found: Sequence[Record], letters: dict[str, str], scope: str, plan: Plan) -> list[str]:
    notes = [
        "Pareto: no other row is both as fast and as cheap, and better in one of the two.",
        f"Cost: the whole instance x time; {_working(found[0])}.",
    ]
    if any(row["usd_per_hour"] is not None for row in found):
        dates = price_dates(row["priced_on"] for row in found)
        notes[-1] += f" {dates[0].upper()}{dates[1:]}."
    if plan.relative_to:
        notes.append(
            f"x speed, x cost: compared with {plan.relative_to}; 2 is twice as fast, or twice as expensive."
        )
    if not all(row["fits_in_memory"] for row in found):
        notes.append("Out of memory: by the estimate; such rows are not ranked.")
    return [*notes, f"{methods(found)}.", *legend(letters), *host_bound_note(found), scope]
