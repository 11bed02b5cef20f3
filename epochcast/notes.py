"""What is said below a table of answers: what its marks mean, and notes by how much they matter."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from epochcast.tables import Record, print_notes
from predictor.answers.notes import (
    Note,
    Priority,
    Reason,
    duration_estimate,
    notes_of,
    remedy_of,
    rounded_duration,
)
from predictor.catalogue.devices import short_name
from predictor.catalogue.modes import COMPILED, mode_in_words
from predictor.catalogue.providers import all_providers

if TYPE_CHECKING:
    from predictor.answers.question import Question
    from predictor.models.forecast import Kind

Records = Sequence[Record]

_MOST_NOTES = 3
_NOTEWORTHY_LOADING = 1.05
"""Least ratio of loading time to training time that a note mentions."""
_NOTEWORTHY_START = 0.02
"""Least share of a training that a note on its start mentions."""
_COST = "Cost: the price of the whole instance x time."
_PARETO = "Bold: on the Pareto front, where no other row is both as fast and as cheap."
_BEWARE: "dict[Kind, str]" = {
    "anchor": "Beware: the anchor is {}.",
    "classes": "Beware, classes: {}.",
    "cnn": "Beware: {}.",
    "frozen": "Beware: {}.",
    "edges": "Beware: {}.",
    "noise": "Beware, noise: {}.",
    "second_derivatives": "Beware: {}.",
    "method": "{}.",
}


def print_notes_below(
    records: Records, about: Iterable[str], question: "Question", notes: Iterable[Note], verbose: bool | None
) -> None:
    """Print what is trained (`about`) in which mode, a table's marks, and the three notes that matter most; or all.

    `verbose`: all; False names the flag for it, None does not.
    """
    from predictor.answers.resolved import ResolvedQuestion

    first = records[0]
    modes = [first["framework"]] if first["framework"] != "pytorch" else []
    modes += [" or ".join({mode_in_words(row["precision"], row["memory_format"]): None for row in records})]
    modes += ResolvedQuestion.of(question).habits.in_words
    loading = [] if any(row["loading_time_ms"] is not None for row in records) else ["without image loading"]
    is_dated = any(row["priced_on"] for row in records) or all(row["cost_usd"] is None for row in records)
    dates = [] if is_dated else [price_dates(records)]
    line = f"90 % intervals; {', '.join([*about, *modes, *loading, *dates])}."
    print_notes(
        [" ".join([line, *_meanings(records, verbose), *(["More: --verbose"] if verbose is False else [])])]
    )
    texts = most_important(notes, verbose)
    if texts:
        print()
    print_notes(texts)


def limited_by(record: Record) -> list[str]:
    """Words for what limits a row beside its GPU: loading, the host."""
    return ["loading-bound"] * _waits(record) + ["host-bound"] * (record["bottleneck"] == "host")


def most_important(notes: Iterable[Note], verbose: bool | None) -> list[str]:
    """The texts of the three notes that matter most; of all if `verbose`."""
    ordered = sorted(notes, key=lambda note: note.priority)
    shown = [note for note in ordered if note.priority < Priority.VERBOSE][:_MOST_NOTES]
    return [note.text for note in (ordered if verbose else shown)]


def legend(reasons: Iterable[Reason]) -> tuple[dict[Reason, str], list[Note]]:
    """A letter for each distinct reason, and the notes that explain them."""
    alphabet = [chr(ord("a") + i) for i in range(26)]
    alphabet += [first + second for first in alphabet for second in alphabet]
    letters = dict(zip(dict.fromkeys(reasons), alphabet, strict=False))
    return letters, [Note(Priority.VERBOSE, f"({letter}) {reason}") for reason, letter in letters.items()]


def beware(reasons: Iterable[Reason]) -> list[Note]:
    """Reasons in full that say what may be wrong: with the CNN's layers, an anchor, measurements, a method."""
    worrying = (reason for reason in dict.fromkeys(reasons) if reason.kind in _BEWARE)
    return notes_of(Priority.BEWARE, *(_BEWARE[reason.kind].format(reason.text) for reason in worrying))


def prediction_notes(records: Records, question: "Question") -> list[Note]:
    """Notes on predictions."""
    return [
        *_shared_notes(records, question, "once in a training"),
        *notes_of(Priority.LIMIT, _loading(records, question), _loading_left_out(records, question)),
        *notes_of(Priority.REMEDY, _remedy(records)),
        *notes_of(Priority.DETAIL, _default_precision(records, question), _idle(records)),
        *notes_of(Priority.VERBOSE, _COST, _energy(records)),
    ]


def comparison_notes(records: Records, question: "Question") -> list[Note]:
    """Notes on a comparison beside its verdict's, which say what limits the best row and would narrow its interval."""
    return [
        *_shared_notes(records, question, "which each time holds once"),
        *_bills(records),
        *notes_of(Priority.DETAIL, _idle(records)),
        *notes_of(Priority.VERBOSE, _loading(records, question), _COST, _PARETO, _energy(records)),
    ]


def _shared_notes(records: Records, question: "Question", start_is: str) -> list[Note]:
    """What may be wrong, that the host limits rows, and their start."""
    from predictor.answers.resolved import ResolvedQuestion

    # An unknown start is missed of compiled trainings, and where loading is counted.
    is_missed = question.capture in COMPILED or any(row["loading_time_ms"] for row in records)
    is_missed &= all(row["start_s"] is None for row in records)
    priority = Priority.DETAIL if any(map(start_matters, records)) or is_missed else Priority.VERBOSE
    return [
        *beware(reason for row in records for reason in row["extrapolates"]),
        *notes_of(Priority.BEWARE, *ResolvedQuestion.of(question).other_forms),
        *notes_of(Priority.LIMIT, _host(records, question)),
        *notes_of(priority, _start(records, question, start_is)),
    ]


def price_dates(records: Records) -> str:
    """When prices were retrieved: ``prices of 2026-06-11 to 2026-07-20``."""
    days = sorted({row["priced_on"] for row in records if row["priced_on"]})
    if not days:
        return "prices without a date"
    return f"prices of {days[0]}" + (f" to {days[-1]}" if days[-1] != days[0] else "")


def amp_waits(record: Record) -> bool:
    """Whether loading limits a row's fastest common mode, but not the mode asked for."""
    return record["fast_bottleneck"] in _OF_LOADING and not _waits(record)


def start_matters(record: Record) -> bool:
    """Whether the start of a row, one of a prediction, takes more than `_NOTEWORTHY_START` of its epochs' time."""
    epochs_s = record.get("epochs", 1) * (record["epoch_time_s"] or math.inf)
    return bool((record["start_s"] or 0.0) > _NOTEWORTHY_START * epochs_s)


_OF_LOADING = ("loading", "reading")


def _waits(record: Record) -> bool:
    return record["bottleneck"] in _OF_LOADING


def guesses(record: Record) -> list[Reason]:
    """The reasons why a row extrapolates; the error of a method that was named is none."""
    return [reason for reason in record["extrapolates"] if reason.kind != "method"]


def _meanings(records: Records, verbose: bool | None) -> list[str]:
    """What the mark ~ means, or with `verbose` the column of the fastest mode."""
    if not verbose:
        return ["~ unmeasured."] * any(guesses(row) for row in records)
    faster = (row for row in records if row.get("fast_precision"))
    fast = dict.fromkeys(mode_in_words(row["fast_precision"], row["fast_memory_format"]) for row in faster)
    return [f"AMP: {' or '.join(word.removeprefix('AMP ') for word in fast)}."] if fast else []


def unmeasured(reasons: Iterable[Reason], verbose: bool | None) -> list[str]:
    """What was not measured of rows with the mark ~, where letters do not say it."""
    kinds = dict.fromkeys(reason.kind.replace("_", " ") for reason in reasons)
    return [f"~: {', '.join(kinds)} not measured."] if kinds and not verbose else []


def _remedy(records: Records) -> str:
    """What would narrow most of the intervals."""
    remedies = Counter(filter(None, (remedy_of(row["extrapolates"]) for row in records)))
    return f"To narrow the interval: {remedies.most_common(1)[0][0]}." if remedies else ""


def _host(records: Records, question: "Question") -> str:
    bound = [row for row in records if row["bottleneck"] == "host"]
    if not bound:
        return ""
    from predictor.models.input_pipeline import host_beside_workers

    beside = any(row["iteration_time_ms"] != row["training_time_ms"] for row in bound)
    workers = f", {host_beside_workers():g} times as long beside workers as without" if beside else ""
    captures_none = bound[0]["framework"] == "chainer" or question.detect_anomaly
    graph = "" if captures_none else " or --capture graph"
    return (
        f"Host-bound: the host takes longer to enqueue the kernels than the GPU to run them{workers}. "
        f"A larger batch{graph} helps; a faster GPU does not."
    )


def _loading(records: Records, question: "Question") -> str:
    bound = [row for row in records if _waits(row)]
    if not bound:
        return ""
    if question.workers == 0:
        return (
            "Loading-bound: with 0 workers the GPUs wait while the training process loads each mini-batch. --workers "
            "helps most, a faster loader too; a faster GPU does not."
        )
    if all(row["bottleneck"] == "reading" for row in bound):
        return "Loading-bound: the source gives images slower than the GPUs train on them: copy them nearer."
    return (
        "Loading-bound: images are decoded slower than the GPUs train on them. More vCPUs and workers, or a "
        "faster loader (--loader dali) help; a faster GPU does not. Measure yours: epochcast profile input."
    )


def _loading_left_out(records: Records, question: "Question") -> str:
    """That loading, which is not counted, would be slower than training on the vCPUs of an offer."""
    from predictor.answers.loading import loading_left_out
    from predictor.answers.resolved import ResolvedQuestion

    resolved = ResolvedQuestion.of(question)
    slow: dict[str, float] = {}
    cheapest = resolved.cheapest_of({row["gpu"] for row in records})
    for row in records:
        offer = cheapest.get(row["gpu"])
        if offer is None or row["offer"] != f"{offer.provider} {offer.instance}" or not row["fits_in_memory"]:
            continue  # a service may have other offers
        size, time_ms = row["local_batch_size"], row["training_time_ms"]
        times = loading_left_out(resolved, row["image_size"], offer, size, time_ms)
        if times > _NOTEWORTHY_LOADING:
            slow[row["gpu"]] = max(slow.get(row["gpu"], 0.0), times)
    if not slow:
        return ""
    one_gpu = len({row["gpu"] for row in records}) == 1
    whose = "the offer's vCPUs" if one_gpu else f"the vCPUs rented with {', '.join(map(short_name, slow))}"
    most = "up to " if len(records) > 1 else ""
    return (
        f"On {whose} loading would take {most}{max(slow.values()):.1f} times as long as training: add --workers to "
        "count it, or --loader torchvision to count it by these vCPUs."
    )


def _start(records: Records, question: "Question", where: str) -> str:
    """Note on a training's start: its seconds, their range over the rows and interval, or why no time is known."""
    started = [row for row in records if row["start_s"] is not None]
    if not started:
        causes = (
            (question.framework != "pytorch", f"with --framework {question.framework}"),
            (question.capture not in ("eager", *COMPILED), f"with --capture {question.capture}"),
            (question.autotune, "with --autotune"),
            (True, "on CPUs"),
        )
        why = next(words for holds, words in causes if holds)
        epochs = any(row["epoch_time_s"] for row in records)
        return f"The start of the first epoch is not counted: not measured {why}." if epochs else ""
    least, most = (pick(row["start_s"] for row in started) for pick in (min, max))
    start = "" if least == most else f"{rounded_duration(least)} to "
    low, high = min(row["start_low_s"] for row in started), max(row["start_high_s"] for row in started)
    longer = f"{start}{duration_estimate(most, low, high)} longer"
    if question.capture in COMPILED:
        why = "it is compiled, again for a smaller last mini-batch"
    elif any(row["memory_format"] == "channels_last" or "fp16" in row["precision"] for row in started):
        why = "PyTorch loads its kernels, and cuDNN compiles those of depthwise convolutions"
    else:
        why = "PyTorch loads its kernels and takes its memory"
    return f"The first epoch takes {longer}, {where}: {why}."


def _default_precision(records: Records, question: "Question") -> str:
    """What the default precision is, where it is not that of every GPU."""
    if question.precision is not None or all(row["precision"] != "tf32" for row in records):
        return ""
    return (
        "tf32 is PyTorch's default for convolutions on Ampere and newer GPUs; --precision amp_bf16 --memory-format "
        "channels_last is usually faster there."
    )


def _idle(records: Records) -> str:
    """Which GPUs are rented only with more than work."""
    idle = [row for row in records if (row["offer_gpu_count"] or 1) * row["nodes"] >= row["gpus_used"] + 1]
    gpus = ", ".join(dict.fromkeys(f"{short_name(row['gpu'])} ({row['offer_gpu_count']:g})" for row in idle))
    return f"Rented only with more GPUs than work, all of which are paid for: {gpus}." if idle else ""


def _bills(records: Records) -> list[Note]:
    """How providers bill, which matters where a rental is billed for longer than its training."""
    rows = {row["offer"].partition(" ")[0]: row for row in records if row["usd_per_hour"]}
    words = []
    for name in filter(all_providers().get, rows):
        least_s, usd = all_providers()[name].least_billed_s, all_providers()[name].egress_usd_per_gb
        out = "" if usd is None else f" and US$ {usd:g} a GB to the internet, not counted"
        words.append(
            f"{name} {'has published no shortest' if least_s is None else f'at least {least_s:g} s'}{out}"
        )
    times = (row["total_cost_usd"] / row["usd_per_hour"] / row["total_time_h"] for row in rows.values())
    priority = Priority.DETAIL if max(times, default=1.0) > 1.01 else Priority.VERBOSE
    return notes_of(priority, f"Bills: {'; '.join(words)}." if words else "")


def _energy(records: Records) -> str:
    """What the energy of an epoch rests on; nothing without epochs."""
    if all(row["watt_hours"] is None for row in records):
        return ""
    from predictor.models.ratios import ratios_of

    power = ratios_of("power")
    factor = math.exp(math.hypot(power.spread, power.elsewhere))
    words = {
        "measured": "from power measured on {}",
        "estimated": f"estimated from the power limit of {{}}, within a factor of {factor:.1f}",
        "unknown": "unknown for {}",
    }
    gpus: dict[str, dict[str, None]] = {}
    for row in records:
        gpus.setdefault(row["energy_basis"].kind, {})[short_name(row["gpu"])] = None
    listed = {
        kind: ", ".join(names) if len(names) < 4 else f"{len(names)} GPUs" for kind, names in gpus.items()
    }
    parts = [words[kind].format(names) for kind, names in listed.items()]
    text = "Energy is that of the GPUs only, without host, cooling and the start of the first epoch"
    co2 = "CO2 is that of this energy, by the grid's mean of a year where the place is known (--region)"
    return f"{'; '.join([text, *parts])}. {co2}."
