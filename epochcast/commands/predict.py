"""`epochcast predict`: the time, cost and memory of training CNNs on GPUs."""

from collections.abc import Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.answer_tables import columns_of, notes_column, print_answer, title, write_answer
from epochcast.notes import legend, prediction_notes, price_dates, print_notes_below
from epochcast.tables import Column, Format, Record, counted, number, print_table, span
from predictor.answers.notes import Priority, Reason, notes_of
from predictor.answers.question import Question
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from predictor.answers.answer import Answer

__all__ = ["predict_command"]

_MANY = "Many at once"


@o.with_options(Question)
@o.with_json
def predict_command(
    cnn: Annotated[
        list[str] | None, typer.Argument(help=f"CNNs, each {o.CNN_HELP}.", show_default=False)
    ] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", "-g", help="GPU by any of its names; repeat it, or `all`.")
    ] = None,
    batch_size: o.BatchSizes = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            help="Predict every row of this .csv or .parquet (- is standard input); options fill its empty cells.",
            rich_help_panel=_MANY,
        ),
    ] = None,
    scheduler: o.Scheduler = None,
    device: Annotated[
        str,
        typer.Option(
            help="What computes the answers to --rows: cpu, or cuda, a GPU through CuPy (epochcast\\[cuda13]).",
            rich_help_panel=_MANY,
        ),
    ] = "cpu",
    server: o.Server = None,
    plot: o.Plot = None,
    out: o.Out = None,
    verbose: o.Verbose = False,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Predict how long an iteration and an epoch take, what they cost, and whether they fit in memory."""
    if rows is not None:
        given = {"CNN": cnn, "--gpu": gpu, "--batch-size": batch_size, "--server": server, "--plot": plot}
        options["device"] = device
        _predict_file(rows, out, options, [name for name, value in given.items() if value], output, scheduler)
        return
    for flag, where in (("--scheduler", scheduler), ("--device", None if device == "cpu" else device)):
        if where is not None:
            raise SchemaError(
                f"{flag} answers many rows at once. "
                f"Try: epochcast predict --rows rows.parquet --out predictions.parquet {flag} {where}"
            )
    for name, value in (("CNN", cnn), ("--gpu", gpu)):
        if not value:
            raise SchemaError(
                f"{name} is missing. Try: epochcast predict resnet50 --gpu T4 --dataset imagenet"
            )
    question = Question(o.cnns_or_layers(cnn or (), options), gpu, batch_size or None, **options)
    found = _answer(server, question)
    if plot is not None:
        from epochcast.plots import epoch_times

        o.write_figure(epoch_times(found.frame()), plot)
    if not write_answer(found.records(), out):
        _show(found, output, question, verbose)


def _answer(server: str | None, question: Question) -> "Answer":
    """The answer of the service where one is named, else of the local core."""
    if server is not None:
        from epochcast.client import Client

        return Client(server).answer(question)
    from predictor.answers.answer import answer

    return answer(question)


def _predict_file(
    rows: Path,
    out: Path | None,
    options: dict[str, Any],
    other: list[str],
    output: Format,
    scheduler: str | None,
) -> None:
    from predictor.answers.bulk import predict_rows

    if out is None or other:
        raise SchemaError(
            f"--rows needs --out, and goes without {', '.join(other) or 'CNN, --gpu and --batch-size'}: the file has "
            "those. Try: epochcast predict --rows rows.csv --out predictions.csv"
        )
    if output is Format.json:
        raise SchemaError("--format json has no effect on --rows, whose answers are a table. Leave it out.")
    if scheduler is None:
        failed = predict_rows(rows, out, **options)
    else:
        from epochcast.fleet import Fleet

        with Fleet(scheduler) as fleet:
            failed = predict_rows(rows, out, spread=fleet.answered, **options)
    failures = f" {failed:,} row{'s' * (failed > 1)} failed: see the column error." if failed else ""
    typer.echo(f"Wrote {'the answers' if str(out) == '-' else out}.{failures}", err=True)
    if failed:
        raise typer.Exit(1)


def _show(found: "Answer", output: Format, question: Question, verbose: bool) -> None:
    records = found.records()
    if print_answer(records, output, found.scope):
        return
    letters, reasons = legend(chain.from_iterable(found.columns["extrapolates"]))
    samples = counted(question.samples, "sample") if question.samples else None
    data = question.part_in_words() or question.data_set or samples
    columns = _columns(records, letters if verbose else None, question)
    for i, (_, group) in enumerate(groupby(records, key=lambda r: (r["cnn"], r["image_size"]))):
        if i:
            print()
        some = list(group)
        print_table(some, columns, title(some, data), group="GPU", strong=lambda r: bool(r["best_batch"]))
    notes = [*prediction_notes(records, question), *reasons, *notes_of(Priority.VERBOSE, found.scope)]
    print_notes_below(records, question.framework, _marks(records), notes, verbose)


def _columns(
    records: Sequence[Record], letters: dict[Reason, str] | None, question: Question
) -> list[Column]:
    shared = columns_of(records)
    searched = [Column("", _named, left=True)] if question.batch_sizes is None else []
    return [
        shared["gpu"],
        Column("batch", _marked_batch_size),
        *searched,
        *(_TEAM_COLUMNS if records[0]["gpus_used"] > 1 else ()),
        Column("iter. ms", lambda r: number(r["iteration_time_ms"])),
        Column("90 % ms", lambda r: f"{number(r['low_ms'])}-{number(r['high_ms'])}", rank=4),
        shared["epoch_time_s"],
        Column("90 %", lambda r: span(r["epoch_low_s"], r["epoch_high_s"], r["epoch_time_s"]), rank=1),
        shared["cost_usd"],
        Column("GiB", lambda r: f"{r['peak_memory_gib']:.1f}", rank=3),
        shared["precision"],
        Column("workers needed", lambda r: str(r["workers_needed"] or ""), rank=2),
        *([shared["watt_hours"], shared["method"]] if letters is not None else []),
        notes_column(letters),
    ]


def _named(record: Record) -> str:
    """Which of the batch sizes that were searched this is."""
    words = ["fastest"] if record["best_batch"] else []
    words += ["largest that fits"] if record["batch_size"] == record["largest_batch_size"] else []
    return ", ".join(words) or "common"


_TEAM_COLUMNS = (
    Column("of one", lambda r: str(r["local_batch_size"]), rank=2),
    Column("efficiency", lambda r: f"{100 * r['scaling_efficiency']:.0f} %", rank=2),
)
"""Of GPUs that train together: the batch size of one, and the throughput over that of so many single GPUs."""


def _marked_batch_size(record: Record) -> str:
    mark = "*" if record["best_batch"] else " " if record["fits_in_memory"] else "!"
    return f"{record['batch_size']}{mark}"


def _marks(records: Sequence[Record]) -> list[str]:
    """When prices are of, and what the marks of batch sizes mean."""
    priced = any(row["cost_usd"] is not None for row in records)
    return [
        *([price_dates(records)] if priced else []),
        *(
            ["*: the smallest batch within 5 % of the fastest"]
            if any(row["best_batch"] for row in records)
            else []
        ),
        *([] if all(row["fits_in_memory"] for row in records) else ["!: does not fit in the GPU's memory"]),
    ]
