"""How answers read on a terminal: the title, columns and notes that predict, compare and explain share."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from epochcast.tables import (
    Column,
    Format,
    Record,
    duration,
    number,
    print_notes,
    print_records,
    span,
    write_records,
)
from predictor.answers.notes import Note, Priority, Reason, remedy_of
from predictor.answers.quantities import energy
from predictor.models.forecast import Kind
from predictor.table_files import STANDARD

if TYPE_CHECKING:
    from predictor.answers.question import Question

__all__ = [
    "beware_notes",
    "columns_of",
    "energy_note",
    "gpu_name",
    "host_bound_note",
    "is_loading_bound",
    "legend",
    "loading_bound_note",
    "methods",
    "notes_column",
    "price_dates",
    "print_answer",
    "print_answer_notes",
    "print_caption",
    "reason_letters",
    "remedy_note",
    "start_note",
    "title",
    "write_answer",
]

_HOST_BOUND, _LOADING_BOUND, _GUESSED = "H", "L", "~"
_MOST_NOTES = 3
_BEWARE: dict[Kind, str] = {"anchor": "Beware: the anchor is {}.", "cnn": "Beware: {}.", "method": "{}."}


def print_answer(records: Sequence[Record], output: Format, scope: str, **about: Any) -> bool:
    """Print an answer as JSON or CSV with every field; False where a table is wanted instead."""
    if output is not Format.table:
        print_records(records, output, records[0], **about, covers=scope)
    return output is not Format.table


def write_answer(records: Sequence[Record], out: Path | None) -> bool:
    """Write an answer with every field to the file of --out; whether it went to standard output, and nothing else may.

    Raises
    ------
    SchemaError, BackendUnavailableError
        As `epochcast.tables.write_records`.
    """
    if out is None:
        return False
    write_records(records, out, records[0])
    if str(out) == STANDARD:
        return True
    typer.echo(f"Wrote {out}.", err=True)
    return False


def title(records: Sequence[Record], *more: str | None) -> str:
    """CNN, image size, what else is given, and the precision where all rows have the same."""
    first = records[0]
    precision = None if _varies(records, "precision") else first["precision"]
    words = [first["cnn"], f"{first['image_size']} x {first['image_size']} px", *more, precision]
    return ", ".join(word for word in words if word)


def columns_of(records: Sequence[Record]) -> dict[str, Column]:
    """Columns that mean the same in all answers, by field; precision and method only show where rows differ."""
    return {
        "gpu": Column("GPU", lambda r: gpu_name(r["gpu"]), left=True),
        "epoch_time_s": Column("epoch", lambda r: duration(r["epoch_time_s"]), rank=1),
        "cost_usd": Column("US$/epoch", _cost, rank=1),
        "watt_hours": Column("energy/epoch", lambda r: energy(r["watt_hours"]), rank=2),
        "precision": _if_it_varies(records, "precision", rank=0),
        "method": _if_it_varies(records, "method", rank=2),
    }


def gpu_name(name: str) -> str:
    """Shorten a GPU's name by its vendor, which every GPU here shares; `--gpu` takes the short form, too."""
    return name.removeprefix("NVIDIA ")


def reason_letters(reasons_by_row: Iterable[tuple[Reason, ...]]) -> dict[Reason, str]:
    """Give each distinct reason why rows extrapolate a letter, for a narrow column with a legend."""
    distinct = dict.fromkeys(reason for reasons in reasons_by_row for reason in reasons)
    return {reason: _letter(i) for i, reason in enumerate(distinct)}


def legend(letters: dict[Reason, str]) -> list[str]:
    """Explain `reason_letters` in notes."""
    return [f"({letter}) {reason}" for reason, letter in letters.items()]


def notes_column(letters: dict[Reason, str] | None = None) -> Column:
    """What marks a row, `~` or the letters of its reasons, `H` and `L`; a narrow terminal keeps this column."""

    def marks(record: Record) -> str:
        guessed = (
            [_GUESSED] * bool(_guesses(record))
            if letters is None
            else [letters[reason] for reason in record["extrapolates"]]
        )
        waits = _LOADING_BOUND * is_loading_bound(record) + _HOST_BOUND * _is_host_bound(record)
        return ",".join([*guessed, *([waits] if waits else [])])

    return Column("notes", marks, left=True)


def beware_notes(records: Iterable[Record]) -> list[Note]:
    """Reasons in full that say what may be wrong: the CNN's own layers, a far anchor, a method that was named."""
    distinct = dict.fromkeys(reason for record in records for reason in record["extrapolates"])
    return [
        Note(Priority.BEWARE, _BEWARE[reason.kind].format(reason.text))
        for reason in distinct
        if reason.kind in _BEWARE
    ]


def remedy_note(records: Iterable[Record]) -> list[Note]:
    """What would narrow most of the intervals."""
    remedies = Counter(filter(None, (remedy_of(record["extrapolates"]) for record in records)))
    return [Note(Priority.REMEDY, f"To narrow the interval: {text}.") for text, _ in remedies.most_common(1)]


def energy_note(records: Sequence[Record]) -> list[Note]:
    """What the energy of an epoch rests on; nothing without epochs."""
    if all(record["watt_hours"] is None for record in records):
        return []
    from predictor.models.ratios import ratios_of

    power = ratios_of("power")
    factor = math.exp(math.hypot(power.spread, power.elsewhere))
    words = {
        "measured": "from power measured on {}",
        "estimated": f"estimated from the power limit of {{}}, within a factor of {factor:.1f}",
        "unknown": "unknown for {}",
    }
    gpus: dict[str, dict[str, None]] = {}
    for record in records:
        gpus.setdefault(record["energy_basis"].kind, {})[gpu_name(record["gpu"])] = None
    parts = [
        words[kind].format(", ".join(names) if len(names) < 4 else f"{len(names)} GPUs")
        for kind, names in gpus.items()
    ]
    text = "Energy is that of the GPUs only, without host, cooling and the start of the first epoch"
    return [Note(Priority.VERBOSE, f"{'; '.join([text, *parts])}.")]


def _guesses(record: Record) -> list[Reason]:
    """Reasons why a row extrapolates; the error of a method that was named is none."""
    return [reason for reason in record["extrapolates"] if reason.kind != "method"]


def host_bound_note(records: Iterable[Record]) -> list[Note]:
    """What helps where the host limits a row."""
    bound = [record for record in records if _is_host_bound(record)]
    if not bound:
        return []
    graph = "" if bound[0].get("framework") == "chainer" else " or --capture graph"  # Chainer captures none
    return [
        Note(
            Priority.LIMIT,
            f"{_HOST_BOUND}: the host takes longer to enqueue the kernels than the GPU to run them"
            f"{_beside_workers(bound)}. A larger batch{graph} helps; a faster GPU does not.",
        )
    ]


def _beside_workers(bound: Iterable[Record]) -> str:
    """How much longer the host takes beside workers, where that makes an iteration longer."""
    from predictor.models.input_pipeline import host_beside_workers

    if all(record["iteration_time_ms"] == record["training_time_ms"] for record in bound):
        return ""
    return f", {host_beside_workers():g} times as long beside workers as without"


def loading_bound_note(
    records: Iterable[Record], question: "Question", priority: Priority = Priority.LIMIT
) -> list[Note]:
    """What helps where loading limits a row."""
    bound = [record for record in records if is_loading_bound(record)]
    if not bound:
        return []
    if question.workers == 0:
        text = (
            "with 0 workers the GPUs wait while the training process loads each mini-batch. --workers helps most, a "
            "faster loader too; a faster GPU does not."
        )
    elif all(record["bottleneck"] == "reading" for record in bound):
        text = "the source gives images slower than the GPUs train on them: copy them nearer."
    else:
        text = (
            "images are decoded slower than the GPUs train on them. More vCPUs and workers, or a faster loader "
            "(--loader dali) help; a faster GPU does not. Measure yours: epochcast profile input."
        )
    return [Note(priority, f"{_LOADING_BOUND}: {text}")]


def start_note(
    records: Sequence[Record], question: "Question", where: str, priority: Priority = Priority.DETAIL
) -> list[Note]:
    """What a training pays once: seconds, the least and the most of the rows, with their interval, or why not known."""
    known = [record for record in records if record["start_s"] is not None]
    if not known:
        if not any(record["epoch_time_s"] for record in records):
            return []
        matters = question.capture == "compile" or any(record["loading_time_ms"] for record in records)
        text = f"The start of the first epoch is not counted: {_no_start(question)}."
        return [Note(priority if matters else Priority.VERBOSE, text)]
    few, many = (duration(pick(record["start_s"] for record in known)) for pick in (min, max))
    seconds = few if few == many else f"{few} to {many}"
    low, high = (
        min(record["start_low_s"] for record in known),
        max(record["start_high_s"] for record in known),
    )
    waits = "" if question.workers == 0 else "the GPU waits for the first mini-batch, and "
    return [
        Note(
            priority,
            f"The first epoch takes {seconds} longer ({span(low, high, low)}), {where}: {waits}PyTorch chooses a "
            "kernel for each layer, or compiles it (grouped convolutions in channels-last or fp16).",
        )
    ]


def _no_start(question: "Question") -> str:
    """Why no start is known."""
    if question.framework != "pytorch":
        return f"not measured with --framework {question.framework}"
    if question.capture == "compile":
        from predictor.answers.scope import compiling_in_words

        return f"not measured with --capture compile; compiling takes {compiling_in_words(question)}"
    if question.capture != "eager":
        return f"not measured with --capture {question.capture}"
    if question.autotune:
        return "not measured with --autotune"
    return "it is known only where loading is counted (--workers)"


def is_loading_bound(record: Record) -> bool:
    """Whether an iteration waits for images."""
    return record.get("bottleneck") in ("loading", "reading")


def print_caption(records: Sequence[Record], framework: str, marks: Iterable[str], verbose: bool) -> None:
    """Print below a table what its times include and what its marks mean, in one line."""
    first = records[0]
    words = [framework, *dict.fromkeys(record["precision"] for record in records), first["memory_format"]]
    counted = [record["loading_time_ms"] is not None for record in records]
    loading = "with" if any(counted) else "without"
    where = " where the offer's vCPUs are known" if any(counted) and not all(counted) else ""
    scope = f"Training {loading} image loading{where} ({', '.join(words)}), 90 % intervals"
    more = "" if verbose else " More: --verbose"
    print_notes([f"{'; '.join([scope, *marks, *_marks(records, verbose)])}.{more}"])


def _marks(records: Sequence[Record], verbose: bool) -> list[str]:
    """What the marks of the notes' column mean, but for the letters of `legend`."""
    kinds = dict.fromkeys(reason.kind.replace("_", " ") for record in records for reason in _guesses(record))
    return [
        *([f"{_GUESSED}: extrapolates ({', '.join(kinds)})"] if kinds and not verbose else []),
        *([f"{_HOST_BOUND}: limited by the host"] if any(map(_is_host_bound, records)) else []),
        *([f"{_LOADING_BOUND}: limited by image loading"] if any(map(is_loading_bound, records)) else []),
    ]


def print_answer_notes(notes: Iterable[Note], verbose: bool) -> None:
    """The three most important notes; all where asked for."""
    ordered = sorted(notes, key=lambda note: note.priority)
    if not verbose:
        ordered = [note for note in ordered if note.priority < Priority.VERBOSE][:_MOST_NOTES]
    if ordered:
        print()
    print_notes(note.text for note in ordered)


def methods(records: Iterable[Record]) -> str:
    """The methods that answered."""
    return f"Method: {', '.join(sorted({record['method'] for record in records}))}"


def price_dates(dates: Iterable[str | None]) -> str:
    """When prices were retrieved: ``prices of 2026-06-11 to 2026-07-20``."""
    known = sorted({day for day in dates if day})
    if not known:
        return "prices without a date"
    return f"prices of {known[0]}" + (f" to {known[-1]}" if known[-1] != known[0] else "")


def _if_it_varies(records: Sequence[Record], name: str, rank: int) -> Column:
    """A column that is empty, and so never shown, where all rows have the same."""
    if not _varies(records, name):
        return Column(name, lambda _: "", left=True, rank=1)
    return Column(name, lambda r: str(r[name]), left=True, rank=rank)


def _varies(records: Sequence[Record], name: str) -> bool:
    return len({record[name] for record in records}) > 1


def _cost(record: Record) -> str:
    if record["epoch_time_s"] is None:
        return ""
    return "no offer" if record["cost_usd"] is None else number(record["cost_usd"])


def _is_host_bound(record: Any) -> bool:
    """Whether the host takes as long to enqueue an iteration as the GPU to run it; unknown counts as no."""
    return bool(record.get("bottleneck") == "host")


def _letter(i: int) -> str:
    return chr(ord("a") + i) if i < 26 else f"{chr(ord('a') + i // 26 - 1)}{chr(ord('a') + i % 26)}"
