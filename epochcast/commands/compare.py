"""`epochcast compare`: which GPU to rent."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from epochcast import notes as below
from epochcast.commands import options as o
from epochcast.commands.answer_tables import PACKED, columns_of, gpus_column, is_delivered, notes_column
from epochcast.tables import Column, Format, Record, counted, print_notes, print_table
from predictor.answers.notes import (
    Priority,
    Reason,
    co2,
    duration,
    duration_estimate,
    energy,
    estimate,
    notes_of,
    number,
    percent,
    rounded_duration,
)
from predictor.answers.options import options_of
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import NOT_COUNTED, short_offer

if TYPE_CHECKING:
    from predictor.answers.compare import Comparison

_MOST_ROWS = 12  # without --verbose, of GPUs that were not named


@o.with_options(Question, Plan, answer="compare")
def compare_command(
    cnn: o.Cnn,
    gpu: Annotated[list[str] | None, o.gpu_option("every GPU on offer")] = None,
    batch_size: list[str] | None = o.BATCH_SIZES,
    plot: Path | None = o.PLOT,
    out: Path | None = o.OUT,
    verbose: bool = o.VERBOSE,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Say which GPU to rent: time and cost of a training on each GPU, ranked, and a verdict."""
    from predictor.answers.compare import compare

    plan = Plan(**{name: options.pop(name) for name in options_of(Plan) if name in options})
    question = Question(o.cnn_or_layers(cnn, options), gpu or None, batch_size or None, **options)
    comparison = compare(question, plan)
    if plot is not None:
        from epochcast.plots import cost_against_time

        o.write_figure(cost_against_time(comparison.frame(), plan.budget_usd, plan.deadline_h), plot)
    if not is_delivered(comparison.records(), out, output, comparison.scope, verdict=comparison.verdict):
        show_comparison(comparison, plan, question, verbose)


def show_comparison(comparison: "Comparison", plan: Plan, question: Question, verbose: bool | None) -> None:
    """Print the verdict, the ranking, and notes; `verbose` as of `epochcast.notes.print_notes_below`."""
    records = comparison.records()
    verdict = comparison.verdict
    changes = " ".join(note.text for note in verdict.hints if note.priority is Priority.CHANGE)
    print_notes(filter(None, (verdict.sentence, changes)), style="bold")
    print()
    shown = records if verbose or question.gpus is not None else records[:_MOST_ROWS]
    letters, reasons = below.legend(reason for record in shown for reason in record["extrapolates"])
    columns = _columns(shown, letters) if verbose else short_columns(shown)
    print_table(shown, columns, strong=lambda r: bool(r["pareto"]))
    if len(shown) < len(records):
        print_notes(
            [f"... and {len(records) - len(shown)} more{': --verbose shows all' * (verbose is False)}."]
        )
    hints = [note for note in verdict.hints if note.priority is not Priority.CHANGE]
    uncounted = NOT_COUNTED if question.spot and plan.interruptions_per_day is None else ""
    notes = [
        *hints,
        *below.comparison_notes(shown, question),
        *reasons,
        *notes_of(Priority.DETAIL, uncounted),
        *notes_of(Priority.VERBOSE, comparison.scope, f"{below.price_dates(records).capitalize()}."),
    ]
    below.print_notes_below(shown, _training(records, question), question, notes, verbose)


def _training(records: Sequence[Record], question: Question) -> list[str]:
    """Words on the training for the line below the table."""
    from predictor.answers.resolved import ResolvedQuestion

    best = records[0]
    is_named = _has_one_batch_size(records) and not best["common_batch_size"]  # else the verdict names it
    return [
        best["cnn"],
        *filter(None, [ResolvedQuestion.of(question).epoch_in_words]),
        f"all {best['trials']:,} trainings of " * (best["trials"] > 1) + counted(best["epochs"], "epoch"),
        *([f"batch {best['batch_size']:,}"] * is_named),
    ]


def _has_one_batch_size(records: Sequence[Record]) -> bool:
    return len({record["batch_size"] for record in records}) == 1


def short_columns(records: Sequence[Record]) -> list[Column]:
    """What decides between the rows, within 100 columns."""
    shared = columns_of(records)
    return [
        gpus_column(marked=True),
        Column("offer", lambda r: f"{_nodes(r)}{short_offer(r['offer'])}", left=True, rank=2),
        *([Column("batch", lambda r: f"{r['batch_size']:,}")] * (not _has_one_batch_size(records))),
        *([replace(shared["epoch_time_s"], rank=4)] * any(map(below.start_matters, records))),
        *_time_and_cost(lambda r: _cost(r).partition(" ")[0]),
        replace(shared["precision"], rank=5),
        Column("", _limits, left=True, rank=1),
    ]


def _columns(records: Sequence[Record], letters: dict[Reason, str]) -> list[Column]:
    """All that --verbose shows."""
    shared = columns_of(records)
    best = records[0]
    by_epoch = best["epochs"] > 1 or best["trials"] > 1 or any(map(below.start_matters, records))
    return [
        Column("", lambda r: f"{r['rank'] or ''}"),
        shared["gpu"],
        *([] if _has_one_batch_size(records) else [Column("batch", lambda r: str(r["batch_size"]), rank=3)]),
        Column("offer", _offer, left=True),
        Column("US$/h", lambda r: number(r["usd_per_hour"]), rank=4),
        *([shared["epoch_time_s"], _USD_OF_EPOCH] if by_epoch else []),
        *_time_and_cost(_cost),
        shared["precision"],
        Column("AMP", _with_amp, left=True, rank=2),
        Column("energy", lambda r: energy(r["total_watt_hours"]), rank=2),
        Column("CO2", lambda r: co2(r["total_co2_g"]), rank=2),
        *([] if best["interruption_h"] is None else [_INTERRUPTED]),
        Column("priced on", lambda r: r["priced_on"] or "", left=True, rank=5),
        shared["method"],
        Column("but", _limits, left=True, rank=1),
        notes_column(letters),
    ]


def _offer(record: Record) -> str:
    """The offer, and how many of its GPUs work where it has several."""
    count = record["offer_gpu_count"]
    if count in (None, 1):
        return str(record["offer"])
    total = int(count) * record["nodes"]
    used = f"{record['gpus_used']}" if record["gpus_used"] == total else f"{record['gpus_used']} of {total}"
    return f"{_nodes(record)}{record['offer']} ({used} GPUs)"


def _nodes(record: Record) -> str:
    return f"{record['nodes']} x " if record["nodes"] > 1 else ""


def _cost(record: Record) -> str:
    values = [record[f"total_{end}_usd"] for end in ("cost", "low", "high")]
    return "" if None in values else estimate(*values)


def _cost_of_epoch(record: Record) -> str:
    """The bill of an epoch of one training: its share of the machine, where several train at once."""
    if record["cost_usd"] is None:
        return "no offer"
    gpus = record["batch_size"] // record["local_batch_size"]
    at_once = min(record["trials"], record["per_gpu"] * record["gpus_used"] // gpus)
    return number(record["cost_usd"] / at_once)


def _chance(record: Record) -> str:
    chance = "" if record["chance"] is None else percent(record["chance"])
    return chance.replace("over ", ">").replace("under ", "<")


def _with_amp(record: Record) -> str:
    """Time in the fastest common mode, and whether image loading limits that."""
    if record["fast_time_h"] is None:
        return ""
    return rounded_duration(3600.0 * record["fast_time_h"]) + ", loading-bound" * below.amp_waits(record)


def _limits(record: Record) -> str:
    """What limits a row, or speaks against it."""
    if not record["fits_in_memory"]:
        most = record["largest_batch_size"]
        return f"out of memory (holds {most})" if most else "out of memory"
    common = record["common_batch_size"]
    words = [f"holds no batch {common}"] if common and record["batch_size"] < common else []
    words += ["over budget"] if record["within_budget"] is False else []
    words += ["too late"] if record["within_deadline"] is False else []
    return ", ".join([*words, *below.limited_by(record)])


def _time_and_cost(cost: Callable[[Record], str]) -> tuple[Column, ...]:
    """What decides between rows; empty columns, such as those beside a GPU to compare with, are not shown."""
    hours = ("total_time_h", "total_low_h", "total_high_h")
    return (
        PACKED,
        Column("time", lambda r: duration_estimate(*(3600.0 * r[name] for name in hours)), left=True),
        Column("US$", cost, left=True),
        Column("within", _chance, rank=1),
        Column("x speed", lambda r: number(r["speedup"]), rank=1),
        Column("x cost", lambda r: number(r["cost_ratio"]), rank=1),
    )


_USD_OF_EPOCH = Column("US$/epoch", _cost_of_epoch, rank=1)

_INTERRUPTED = Column("lost", lambda r: duration(3600 * r["interruption_h"]), rank=1)
"""Time lost to interruptions."""
