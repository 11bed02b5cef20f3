"""`epochcast compare`: which GPU to rent."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.answer_tables import columns_of, notes_column, print_answer, title, write_answer
from epochcast.notes import (
    amp_waits,
    comparison_notes,
    legend,
    price_dates,
    print_notes_below,
    start_matters,
)
from epochcast.tables import Column, Format, Record, duration, number, print_notes, print_table, span
from predictor.answers.notes import Priority, Reason, notes_of
from predictor.answers.options import options_of
from predictor.answers.quantities import energy, percent
from predictor.answers.question import Plan, Question

if TYPE_CHECKING:
    from predictor.answers.compare import Comparison

__all__ = ["compare_command"]

_MOST_ROWS = 12  # without --verbose, of GPUs that were not named


@o.with_options(Question, Plan)
@o.with_json
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
    plot: o.Plot = None,
    out: o.Out = None,
    verbose: o.Verbose = False,
    sky: Annotated[
        bool, typer.Option("--sky", help="Print the choice as the resources of a SkyPilot task, alone.")
    ] = False,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Say which GPU to rent: time and cost of a training on each, ranked, and a verdict."""
    plan = Plan(**{name: options.pop(name) for name in options_of(Plan) if name in options})
    question = Question(o.cnn_or_layers(cnn, options), gpu or None, batch_size or None, **options)
    found = _answer(server, question, plan)
    if plot is not None:
        from epochcast.plots import cost_against_time

        o.write_figure(cost_against_time(found.frame(), plan.budget_usd, plan.deadline_h), plot)
    if sky:
        from epochcast.sky import resources_yaml

        typer.echo(resources_yaml(found.frame(), spot=question.spot), nl=False)
        return
    if write_answer(found.records(), out):
        return
    _show(found, output, plan, question, verbose)


def _answer(server: str | None, question: Question, plan: Plan) -> "Comparison":
    """The answer of the service where one is named, else of the local core."""
    if server is not None:
        from epochcast.client import Client

        return Client(server).comparison(question, plan)
    from predictor.answers.compare import compare

    return compare(question, plan)


def _show(found: "Comparison", output: Format, plan: Plan, question: Question, verbose: bool) -> None:
    records = found.records()
    if print_answer(records, output, found.scope, verdict=found.verdict):
        return
    verdict = found.verdict
    changes = " ".join(note.text for note in verdict.hints if note.priority is Priority.CHANGE)
    print_notes(filter(None, (verdict.sentence, changes)), style="bold")
    print()
    shown = records if verbose or question.gpus is not None else records[:_MOST_ROWS]
    letters, reasons = legend(reason for record in shown for reason in record["extrapolates"])
    print_table(
        shown,
        _columns(shown, plan, letters if verbose else None),
        _title(records, plan, question),
        strong=lambda r: bool(r["pareto"]),
    )
    if len(shown) < len(records):
        print_notes([f"... and {len(records) - len(shown)} more: --verbose shows all."])
    others = [note for note in verdict.hints if note.priority is not Priority.CHANGE]
    notes = [
        *others,
        *comparison_notes(shown, plan, question),
        *reasons,
        *notes_of(Priority.VERBOSE, found.scope),
    ]
    print_notes_below(shown, shown[0]["framework"], [price_dates(records), *_amp(shown)], notes, verbose)


def _title(records: Sequence[Record], plan: Plan, question: Question) -> str:
    training = f"{plan.epochs:,} epochs" if plan.epochs > 1 else "1 epoch"
    trials = f"{plan.trials:,} trainings" if plan.trials > 1 else None
    sizes = {record["batch_size"] for record in records}
    return title(
        records,
        trials,
        training,
        question.part_in_words(),
        f"batch {sizes.pop()}" if len(sizes) == 1 else None,
    )


def _columns(records: Sequence[Record], plan: Plan, letters: dict[Reason, str] | None) -> list[Column]:
    shared = columns_of(records)
    several = letters is not None and (plan.epochs > 1 or plan.trials > 1)
    by_epoch = (
        [shared["epoch_time_s"], shared["cost_usd"]] if several or any(map(start_matters, records)) else []
    )
    details = [
        Column("energy", lambda r: energy(r["total_watt_hours"]), rank=2),
        Column("priced on", lambda r: r["priced_on"] or "", left=True, rank=5),
        shared["method"],
    ]
    one_batch = len({record["batch_size"] for record in records}) == 1
    return [
        Column("", lambda r: f"{r['rank'] or ''}"),
        shared["gpu"],
        *([] if one_batch else [Column("batch", lambda r: str(r["batch_size"]), rank=3)]),
        Column("offer", _offer, left=True),
        Column("US$/h", lambda r: number(r["usd_per_hour"]), rank=4),
        *by_epoch,
        Column("time", lambda r: duration(3600.0 * r["total_time_h"])),
        Column("90 %", _time_span, rank=1),
        Column("US$", lambda r: number(r["total_cost_usd"])),
        Column("90 % US$", _cost_span, rank=1),
        Column("AMP", _fast_ratio, rank=2),
        Column("likely", lambda r: "" if r["chance"] is None else percent(r["chance"]), rank=1),
        Column("x speed", lambda r: number(r["speedup"]), rank=1),
        Column("x cost", lambda r: number(r["cost_ratio"]), rank=1),
        Column("but", _but, left=True, rank=1),
        shared["precision"],
        *(details if letters is not None else []),
        notes_column(letters),
    ]


def _offer(record: Record) -> str:
    """The offer, and how many of its GPUs work where it has several."""
    count = record["offer_gpu_count"]
    if count in (None, 1):
        return str(record["offer"])
    nodes = f"{record['nodes']} x " if record["nodes"] > 1 else ""
    every = record["gpus_used"] == int(count) * record["nodes"]
    used = f"{record['gpus_used']}" if every else f"{record['gpus_used']} of {int(count) * record['nodes']}"
    return f"{nodes}{record['offer']} ({used} GPUs)"


def _fast_ratio(record: Record) -> str:
    """Time in the fastest common mode as a multiple, marked where loading limits that."""
    if record["fast_ratio"] is None:
        return ""
    return f"x {record['fast_ratio']:.2f}{' L' * amp_waits(record)}"


def _time_span(record: Record) -> str:
    return span(*(3600.0 * record[f"total_{end}_h"] for end in ("low", "high", "time")))


def _cost_span(record: Record) -> str:
    low, high = record["total_low_usd"], record["total_high_usd"]
    return "" if low is None else f"{number(low)}-{number(high)}"


def _but(record: Record) -> str:
    """What speaks against a row."""
    if not record["fits_in_memory"]:
        most = record["largest_batch_size"]
        return f"out of memory (holds {most})" if most else "out of memory"
    common = record["common_batch_size"]
    words = [f"holds no batch {common}"] if common and record["batch_size"] < common else []
    words += ["over budget"] if record["within_budget"] is False else []
    return ", ".join([*words, *(["too late"] if record["within_deadline"] is False else [])])


def _amp(records: Sequence[Record]) -> list[str]:
    """What the column AMP means."""
    modes = {
        f"{row['fast_precision']}{', channels_last' if row['fast_memory_format'] == 'channels_last' else ''}": None
        for row in records
        if row["fast_ratio"] is not None
    }
    return [f"AMP: x the time in {' or '.join(modes)}"] if modes else []
