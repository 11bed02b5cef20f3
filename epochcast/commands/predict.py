"""`epochcast predict`: the time, cost and memory of training CNNs on GPUs."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import answer_tables as tables
from epochcast.commands import options as o
from epochcast.notes import legend, limited_by, prediction_notes, price_dates, print_notes_below
from epochcast.tables import Column, Format, Record, counted, print_notes, print_table
from predictor.answers.notes import Priority, Reason, duration_estimate, estimate, notes_of
from predictor.answers.question import Question
from predictor.catalogue.devices import device_of
from predictor.checks import as_list
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from predictor.answers.answer import Answer

_MANY = "Many at once"
_EPOCH = ("epoch_time_s", "epoch_low_s", "epoch_high_s")


@o.with_options(Question, answer="predict")
def predict_command(
    context: typer.Context,
    cnn: list[str] | None = o.argument(f"CNNs, each {o.CNN_HELP}.", autocompletion=o.complete_cnn),
    gpu: Annotated[list[str] | None, o.gpu_option(more="; repeat it, or `all`")] = None,
    batch_size: list[str] | None = o.BATCH_SIZES,
    rows: Path | None = o.option(
        "Predict every row of this .csv or .parquet (- is standard input); options fill its empty cells.",
        rich_help_panel=_MANY,
    ),
    scheduler: str | None = o.SCHEDULER,
    device: str = o.option(
        "What computes the answers to --rows: cpu, or cuda, a GPU through CuPy (epochcast\\[cuda13]).",
        default="cpu",
        rich_help_panel=_MANY,
    ),
    plot: Path | None = o.PLOT,
    out: Path | None = o.OUT,
    verbose: bool = o.VERBOSE,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Predict how long an iteration and an epoch take, what they cost, and whether they fit in memory."""
    if rows is not None:
        if output is Format.json:
            message = "--format json has no effect on --rows, whose answers are a table. Leave it out."
            raise SchemaError(message)
        values = {"CNN": cnn, "--gpu": gpu, "--batch-size": batch_size, "--plot": plot}
        flags = [name for name, value in values.items() if value]
        project = [name for name in options if str(context.get_parameter_source(name)).endswith("DEFAULT")]
        _predict_file(rows, out, options | {"device": device, "of_project": project}, flags, scheduler)
        return
    for flag, where in (("--scheduler", scheduler), ("--device", None if device == "cpu" else device)):
        if where is not None:
            raise SchemaError(
                f"{flag} answers many rows at once. "
                f"Try: epochcast predict --rows rows.parquet --out predictions.parquet {flag} {where}"
            )
    for name, value in (("CNN", cnn), ("--gpu", gpu)):
        if not value:
            message = f"{name} is missing. Try: epochcast predict resnet50 --gpu T4 --dataset imagenet"
            raise SchemaError(message)
    from predictor.answers.answer import answer

    cnns = [o.cnn_or_layers(name, options) for name in cnn or ()]
    question = Question(cnns, gpu, batch_size or None, **options)
    prediction = answer(question)
    if plot is not None:
        from epochcast.plots import epoch_times

        o.write_figure(epoch_times(prediction.frame()), plot)
    if not tables.is_delivered(prediction.records(), out, output, prediction.scope):
        show_prediction(prediction, question, verbose)


def _predict_file(
    rows: Path, out: Path | None, options: dict[str, Any], flags: list[str], scheduler: str | None
) -> None:
    from predictor.answers.bulk import predict_rows

    if out is None or flags:
        raise SchemaError(
            f"--rows needs --out, and goes without {', '.join(flags) or 'CNN, --gpu and --batch-size'}: the file has "
            "those. Try: epochcast predict --rows rows.csv --out predictions.csv"
        )
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


def show_prediction(prediction: "Answer", question: Question, verbose: bool | None) -> None:
    """Print the sentence of each CNN, its table, and notes; `verbose` as of `epochcast.notes.print_notes_below`."""
    from predictor.answers.resolved import ResolvedQuestion

    records = prediction.records()
    letters, reasons = legend(chain.from_iterable(prediction.columns["extrapolates"]))
    samples = counted(question.samples, "sample") if question.samples else None
    data = ResolvedQuestion.of(question).epoch_in_words or samples
    several = len({(r["cnn"], r["image_size"]) for r in records}) > 1
    for i, (some_cnn, group) in enumerate(groupby(records, key=lambda r: (r["cnn"], r["image_size"]))):
        if i:
            print()
        rows = list(group)
        print_notes([f"{some_cnn[0]}: " * several + sentence_of(rows, question)], style="bold")
        print()
        name = tables.title(*some_cnn, as_list(question.cnn)) if several else None
        columns = prediction_columns(rows, letters if verbose else None, question)
        print_table(rows, columns, name, group="GPU", strong=lambda r: bool(r["best_batch"]))
    notes = [*prediction_notes(records, question), *reasons]
    notes += notes_of(Priority.VERBOSE, prediction.scope, f"{price_dates(records).capitalize()}.")
    about = [tables.title(*some_cnn, as_list(question.cnn))] if len({r["cnn"] for r in records}) == 1 else []
    about += [data] if data else []
    print_notes_below(records, about, question, notes, verbose)


def sentence_of(records: Sequence[Record], question: Question) -> str:
    """What fits and is cheapest, or fastest where nothing has a price; else what would fit."""
    fitting = [record for record in records if record["fits_in_memory"]]
    if not fitting:
        return _what_fits(records, question)

    def rank(record: Record) -> tuple[float, ...]:
        cost = math.inf if record["cost_usd"] is None else record["cost_usd"]
        return cost, record["iteration_time_ms"] / record["batch_size"]

    best = min((r for r in fitting if r["best_batch"]), default=fitting[0], key=rank)
    several = len({record["gpu"] for record in records}) > 1
    role = ("Fastest GPU: " if best["cost_usd"] is None else "Cheapest GPU: ") if several else ""
    return f"{role}{tables.gpus_in_words(best)} at batch {best['batch_size']:,}: {_time_and_cost(best)}."


def _what_fits(records: Sequence[Record], question: Question) -> str:
    """Sentence on the memory that is missing, and the time at the largest batch size that fits on any of the GPUs."""
    first = min(records, key=lambda r: r["batch_size"])
    shared = f" for {first['per_gpu']} trainings on each GPU" * (first["per_gpu"] > 1)
    text = (
        f"Does not fit: batch {first['batch_size']:,} needs {first['peak_memory_gib']:.1f} GiB{shared}, more than nine "
        f"tenths of what a {tables.gpus_in_words(first)} has: {device_of(first['gpu']).memory_in_words}."
    )
    roomiest = max(records, key=lambda r: r["largest_batch_size"] or 0)
    size = roomiest["largest_batch_size"]
    if not size:
        return f"{text} Not one image fits."
    smaller = replace(question, gpus=roomiest["gpu"], batch_sizes=size * question.n_gpus)
    from predictor.answers.answer import answer

    [row] = (r for r in answer(smaller).records() if r["cnn"] == roomiest["cnn"])
    on_gpu = "" if row["gpu"] == first["gpu"] else f" on a {tables.gpus_in_words(row)}"
    return f"{text} Batch {row['batch_size']:,} fits{on_gpu}: {_time_and_cost(row)}."


def _time_and_cost(record: Record) -> str:
    factor = 1 / record["scaling_efficiency"]
    slower = f", {factor:.2g} x as long as by itself on the GPU" * (record["per_gpu"] > 1)
    if record["epoch_time_s"] is None:
        return f"{_iteration(record)} ms an iteration{slower}"
    cost = "" if record["cost_usd"] is None else f", US$ {_cost(record)}"
    return f"{_epoch(record)} an epoch{slower}{cost}{_of_all(record)}"


def _of_all(record: Record) -> str:
    """That a cost or memory is of all trainings that share the GPU; empty of one."""
    return f" for all {record['per_gpu']}" if record["per_gpu"] > 1 else ""


def prediction_columns(
    records: Sequence[Record], letters: dict[Reason, str] | None, question: Question
) -> list[Column]:
    """Columns of predictions; `letters` mark notes, and ask for all that --verbose shows."""
    shared = tables.columns_of(records)
    more = [shared["watt_hours"], shared["co2_g"], shared["method"]] if letters is not None else []
    more += [] if letters is None else [tables.notes_column(letters)]
    return [
        tables.gpus_column(marked=letters is None),
        Column("batch", lambda r: f"{r['batch_size']:,}"),
        *(
            [Column("", _roles_of_sizes(records, question), left=True)]
            if question.batch_sizes is None
            else ()
        ),
        *(_TEAM_COLUMNS if records[0]["gpus_used"] > 1 else ()),
        tables.PACKED,
        Column("iteration, ms", _iteration, left=True),
        *([] if records[0]["epoch_time_s"] is None else [Column("epoch", _epoch, left=True)]),
        Column(f"US$/epoch{_of_all(records[0])}", _cost, left=True, rank=1),
        Column(f"GiB{_of_all(records[0])}", lambda r: f"{r['peak_memory_gib']:.1f}", rank=3),
        shared["precision"],
        Column("workers needed", lambda r: str(r["workers_needed"] or ""), rank=2),
        Column("", _limits, left=True, rank=1),
        *more,
    ]


def _iteration(record: Record) -> str:
    return estimate(record["iteration_time_ms"], record["low_ms"], record["high_ms"])


def _epoch(record: Record) -> str:
    return "" if record["epoch_time_s"] is None else duration_estimate(*(record[name] for name in _EPOCH))


def _cost(record: Record) -> str:
    if record["epoch_time_s"] is None:
        return ""
    if record["cost_usd"] is None:
        return "no offer"
    per_second = record["cost_usd"] / record["epoch_time_s"]
    return estimate(*(per_second * record[name] for name in _EPOCH))


def _limits(record: Record) -> str:
    """What limits a row, or that it does not fit."""
    if not record["fits_in_memory"]:
        most = record["largest_batch_size"]
        return f"out of memory (holds {most:,})" if most else "out of memory"
    return ", ".join(limited_by(record))


def _roles_of_sizes(records: Sequence[Record], question: Question) -> Callable[[Record], str]:
    """Which of the batch sizes that were searched a row has; epochs decide, without samples the time of an image."""

    def pace(record: Record) -> float:
        of_images = not record["epoch_time_s"] or question.epoch_of_loop
        return float(
            record["iteration_time_ms"] / record["batch_size"] if of_images else record["epoch_time_s"]
        )

    fastest: dict[str, Record] = {}
    for record in records:
        if record["fits_in_memory"]:
            fastest[record["gpu"]] = min(fastest.get(record["gpu"], record), record, key=pace)

    def named(record: Record) -> str:
        words = ["fastest"] if record is fastest.get(record["gpu"]) else []
        words += ["smallest within 5 %"] if record["best_batch"] and not words else []
        words += ["largest that fits"] if record["batch_size"] == record["largest_batch_size"] else []
        return ", ".join(words) or "common"

    return named


_TEAM_COLUMNS = (
    Column("of one", lambda r: str(r["local_batch_size"]), rank=2),
    Column("efficiency", lambda r: f"{100 * r['scaling_efficiency']:.0f} %", rank=2),
)
"""Of GPUs that train together: the batch size of one, and the throughput over that of as many single GPUs."""
