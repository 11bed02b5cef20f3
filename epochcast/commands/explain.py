"""`epochcast explain`: what the time of an iteration is made of, predicted for a CNN or measured in a table."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from difflib import SequenceMatcher
from itertools import chain, groupby
from typing import TYPE_CHECKING, Annotated, Any

from epochcast.api import USUAL_BATCH_SIZES, explanations
from epochcast.commands import options as o
from epochcast.commands.answer_tables import title
from epochcast.notes import beware, legend, most_important, unmeasured
from epochcast.tables import Column, Format, print_notes, print_records, print_table, table_columns
from predictor.answers.notes import Priority, Reason, notes_of, number
from predictor.answers.question import Question
from predictor.catalogue.devices import short_name
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from predictor.answers.bounds import Switch
    from predictor.answers.explain import Explanation, OtherMode

_OF_TABLE = {
    "precision": "the framework's; a table's",
    "memory_format": "nchw; a table's",
    "framework": "pytorch; a table's",
    "capture": "eager; a table's",
}
_BATCH_SIZES = o.batch_size_option(f"{','.join(map(str, USUAL_BATCH_SIZES))}; a table's")
_USUAL_SHARED = 256
_WAYS = (
    "data: each GPU takes a part of the mini-batch (a law measured on H100 and H200 with PyTorch). channels, rows, "
    "layers: each GPU takes some channels or rows of every map, or some of the layers (computed from the work and "
    "the activations exchanged; never measured). one process: a single process enqueues the kernels of all GPUs, as "
    "in models split by hand; in one study, programs took just under 2 times (DCGAN) and 3 times (the CIFAR VGG) as "
    "long on 4 GPUs as on one."
)
_RANK_OF_CLASS = 2  # of the third longest class; shorter ones are left out first
_ALWAYS_SHOWN = 2
_MOST_FACTORS = 6
_MOST_OF_NAME = 32
_ONLY_ONE = "A time is what leaving out only that habit saves; they do not add up."
_PASSES = {"forward": ("forward",), "again": ("recomputed",), "back": ("backward_input", "backward_weight")}
_HOST = "the host takes longer to enqueue the kernels than the GPU to run them: {}; a faster GPU does not"
_BOUNDS = {
    "host": _HOST.format("a larger batch, a captured graph or a faster host helps"),
    "host of no graph": _HOST.format("a larger batch or a faster host helps"),
    "launch": "the GPU's fixed time per kernel: a larger batch helps",
    "compute": "the GPU's arithmetic: lower precision or a GPU with more TFLOP/s helps",
    "memory": "the GPU's memory bandwidth: lower precision, channels_last or a GPU with more GB/s helps",
    "device": "the device; which part of it is not known",
    "unknown": "the GPU's time was not measured apart from the host's",
}


@o.with_options(Question, answer="explain", usual=_OF_TABLE)
def explain_command(
    what: list[str] | None = o.argument(
        "CNNs as for predict, or measurement tables (.csv, .parquet); with both, those CNNs of the tables.",
        metavar="TABLE|CNN...",
        autocompletion=o.complete_cnn,
    ),
    gpu: Annotated[list[str] | None, o.gpu_option("a table's")] = None,
    batch_size: list[str] | None = _BATCH_SIZES,
    parallel: int | None = o.option("Instead: ways to share an iteration among N GPUs.", min=2, metavar="N"),
    verbose: bool = o.VERBOSE,
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Show what the time of an iteration is made of, what bounds it, and what another mode would give."""
    if not what:
        missing = "neither a CNN nor a measurement table is given"
        raise SchemaError(f"{missing}. Try: epochcast explain resnet50 --gpu H200")
    if parallel is not None:
        _show_ways(what, gpu, batch_size or None, options | {"n_gpus": parallel}, output)
        return
    from predictor.answers.explain import explanation_rows, is_measurement_table, row_columns

    of_table = any(is_measurement_table(subject_) for subject_ in what)  # then CNNs are names in it
    subject = what if of_table else [o.cnn_or_layers(cnn, options) for cnn in what]
    explained, scope = explanations(subject, gpu, batch_size or None, options)
    if output is Format.json:
        print_records([asdict(explanation) for explanation in explained], output, (), covers=scope)
    elif output is Format.csv:
        rows = [row for explanation in explained for row in explanation_rows(explanation)]
        print_records(rows, output, row_columns(explained))
    else:
        show_explanations(explained, scope, () if of_table else subject, verbose)


def show_explanations(
    explained: "Sequence[Explanation]", scope: str, cnns: Sequence[object], verbose: bool | None
) -> None:
    """Print the tables of each explanation, and what its bounds mean; `cnns` are those of the question.

    `verbose` is as of `epochcast.notes.print_notes_below`.
    """
    for explanation in explained:
        _show(explanation, cnns, verbose)
        print()
    bounds = dict.fromkeys(name for explanation in explained for name in explanation.bound)
    waits = "detect_anomaly" in {paid.name for explanation in explained for paid in explanation.pays_for}
    meant = {name: "host of no graph" if waits and name == "host" else name for name in bounds}
    meanings = [f"bound {name}: {_BOUNDS[key]}." for name, key in meant.items()]
    print_notes([*meanings, *([scope] if verbose else ["More: --verbose"] if verbose is False else [])])


def _show_ways(
    cnns: list[str], gpu: object, batch_size: object, options: dict[str, Any], output: Format
) -> None:
    from predictor.answers.parallel import parallel_ways

    if gpu is None:
        raise SchemaError("no GPU is given. Try: epochcast explain resnet50 --gpu H200 --parallel 4")
    subject = [o.cnn_or_layers(cnn, options) for cnn in cnns]
    question = Question.of(subject, gpu, batch_size or _USUAL_SHARED, options)
    records = [asdict(split) for split in parallel_ways(question)]
    if output is not Format.table:
        print_records(records, output, records[0])
        return
    for (cnn, name, link), group in groupby(records, key=lambda r: (r["cnn"], r["gpu"], r["link"])):
        title = f"{cnn} on {options['n_gpus']} x {short_name(name)}, {link}"
        rows = [row | {"way": "one GPU"} if row["way"] == "one" else row for row in group]
        print_table(rows, table_columns("explain ways"), title, group="batch")
    print_notes([_WAYS])


def _show(explanation: "Explanation", cnns: Sequence[object], verbose: bool | None) -> None:
    from predictor.answers.forms import forms_in_words

    subject = title(explanation.cnn, explanation.image_size, cnns)
    about = [subject, short_name(explanation.gpu), _arithmetic(explanation), explanation.memory_format]
    about += [explanation.capture, *["autotune"] * explanation.autotune]
    rows = (*explanation.extrapolates, *(mode.extrapolates for mode in explanation.other_modes))
    reasons = list(chain.from_iterable(rows))
    letters, meanings = legend(reasons)
    shown = letters if verbose else None
    print_table(range(len(explanation.batch_sizes)), _columns(explanation, shown), ", ".join(about))
    if explanation.terms:
        print()
        terms = sorted(explanation.terms, key=lambda term: -abs(term.ms[-1]))
        print_table(terms, _TERM_COLUMNS, f"Terms at batch {explanation.batch_sizes[-1]}")
    if explanation.other_modes:
        print()
        print_table(
            explanation.other_modes,
            _mode_columns(explanation, shown),
            "Other modes: iteration time relative to the one above",
        )
    method = f"Method: {explanation.method} ({explanation.trained_on})."
    rungs = {rung: sum(sum(ms) for ms in of_class.values()) for rung, of_class in explanation.rung_ms.items()}
    total_ms = sum(rungs.values())
    shares = [f"{100 * ms / total_ms:.0f} % {rung}" for rung, ms in rungs.items() if ms >= total_ms / 200]
    rests_on = [f"GPU time: {', '.join(shares)}."] if shares else []  # none of a measured iteration
    print_notes([" ".join([method, *rests_on, *unmeasured(reasons, verbose)])])
    for part in explanation.parts:  # what it saves and costs, at the largest batch size
        saved = f"{-part.saves_ms[-1]:+.3g} ms and {-part.saves_gib[-1]:+.2g} GiB"
        step = f"at batch {explanation.batch_sizes[-1]}, beside the same step {_WITHOUT[part.part]}"
        print_notes([f"{part.part.capitalize()} parts: {saved} {step}."])
    jumps = [  # of the time per image, the greatest first
        f"From batch {switch.from_batch_size} to {switch.to_batch_size}, {switch.layer} takes "
        f"{number(switch.factor)} x as long per image."
        for switch in explanation.switches
        if switch.after is None
    ]
    kernels = _kernel_changes(explanation.switches)
    habits = explanation.pays_for
    forms = forms_in_words(explanation.forms, explanation.gpu_time_ms[-1], explanation.host_time_ms[-1])
    pays = [f"Pays {number(paid.saves_ms[-1])} ms: {paid.effect}. {paid.remedy}." for paid in habits]
    pays += [_ONLY_ONE] * (len(habits) > 1)
    notes = [
        *beware(chain.from_iterable(explanation.extrapolates)),
        *notes_of(Priority.LIMIT, " ".join(pays), f"Dear forms. {forms}" if forms else "", _law(explanation)),
        *notes_of(Priority.DETAIL, *jumps[:1], *kernels[:1]),
        *notes_of(Priority.VERBOSE, *jumps[1:], *kernels[1:]),
        *meanings,
    ]
    print_notes(most_important(notes, verbose))


def _columns(explanation: "Explanation", letters: Mapping[Reason, str] | None) -> list[Column]:
    """Columns over the places of its batch sizes; classes and passes in percent of the GPU's time."""
    total = [sum(ms) for ms in zip(*explanation.classes.values(), strict=True)]

    def percent(*times_ms: Sequence[float]) -> Callable[[int], str]:
        return lambda i: f"{100 * sum(ms[i] for ms in times_ms) / total[i]:.0f}"

    shares = [
        Column(f"{name} %", percent(ms), rank=0 if order < _ALWAYS_SHOWN else _RANK_OF_CLASS + order)
        for order, (name, ms) in enumerate(explanation.classes.items())
        if not explanation.terms
    ]
    of_pass = explanation.pass_ms
    passes = [
        Column(f"{word} %", percent(*(ms for name in names for ms in of_pass.get(name, {}).values())))
        for word, names in _PASSES.items()
        if any(name in of_pass for name in names)
    ]
    return [
        Column("batch", lambda i: str(explanation.batch_sizes[i])),
        Column("iter. ms", lambda i: number(explanation.iteration_time_ms[i])),
        Column("GPU ms", lambda i: number(explanation.gpu_time_ms[i])),
        Column("host ms", lambda i: number(explanation.host_time_ms[i]), rank=1),
        Column("bound", lambda i: explanation.bound[i], left=True),
        *passes,
        *shares,
        Column("notes", lambda i: _marks(explanation.extrapolates[i], letters), left=True),
    ]


_TERM_COLUMNS = [
    Column("term", lambda term: term.name, left=True),
    Column("coefficient", lambda term: number(term.coefficient)),
    Column("x feature", lambda term: number(term.feature[-1])),
    Column("ms", lambda term: number(term.ms[-1])),
]


def _arithmetic(mode: "Explanation | OtherMode") -> str:
    """Precision, and PyTorch's setting for matrix products where it is not the default."""
    setting = mode.float32_matmul_precision
    return mode.precision if setting in (None, "highest") else f"{mode.precision} ({setting})"


def _mode_columns(explanation: "Explanation", letters: Mapping[Reason, str] | None) -> list[Column]:
    sizes = explanation.batch_sizes
    modes = explanation.other_modes
    shown = [i for i in range(len(sizes)) if any(math.isfinite(mode.factor[i]) for mode in modes)]
    if len(shown) > _MOST_FACTORS:  # then some of them, the first and the last among these
        step = (len(shown) - 1) / (_MOST_FACTORS - 1)
        shown = [shown[i] for i in sorted({round(i * step) for i in range(_MOST_FACTORS)})]
    return [
        Column("mode", lambda mode: f"{_arithmetic(mode)}, {mode.memory_format}", left=True),
        *(Column(f"at {sizes[i]}", lambda mode, i=i: _ratios(mode.factor[i])) for i in shown),  # type: ignore[misc]
        Column(f"90 % at {sizes[-1]}", lambda mode: _ratios(mode.low[-1], mode.high[-1]), rank=2),
        Column("notes", lambda mode: _marks(mode.extrapolates, letters), left=True),
    ]


def _marks(reasons: Sequence[Reason], letters: Mapping[Reason, str] | None) -> str:
    marks = "~" * bool(reasons)
    return marks if letters is None else ",".join(sorted(letters[reason] for reason in reasons))


def _ratios(*values: float) -> str:
    return "-".join(f"{value:.2f}" for value in values if math.isfinite(values[0]))


_WITHOUT = {"frozen": "with all parameters trained", "recomputed": "without gradient checkpointing"}


def _law(explanation: "Explanation") -> str:
    law = explanation.small_batch_law
    if law is None:
        return ""
    epoch = "half the time at twice the batch" if law.k_s is None else f"{number(law.k_s)} s / batch"
    ends = f"batch {law.from_batch_size} to {law.up_to_batch_size}"
    beyond = ", beyond the batch sizes measured" * law.extrapolates
    return (
        f"Small batches: an epoch takes {epoch}, within 10 % from {ends}{beyond}, "
        f"since an iteration takes {number(law.iteration_time_ms)} ms whatever the batch ({law.because})."
    )


def _kernel_changes(switches: "Sequence[Switch]") -> list[str]:
    """Kernels that change, by the batch sizes between which they do, with the greatest change."""
    notes = []
    named = [switch for switch in switches if switch.after is not None]
    for (small, large), group in groupby(named, lambda c: (c.from_batch_size, c.to_batch_size)):
        changes = list(group)
        most = min(changes, key=lambda c: SequenceMatcher(None, c.before or "", c.after or "").ratio())
        notes.append(
            f"Between batch {small} and {large}, {len(changes)} convolution passes change their kernel, such as "
            f"{most.layer} {most.part}: {_short(most.before)} -> {_short(most.after)}."
        )
    return notes


def _short(kernel: str | None) -> str:
    """A kernel's name without its return type and namespaces, cut: `--format json` has all of it."""
    name = (kernel or "").removeprefix("void ").split("<")[0].split("(")[0].split("::")[-1]
    return name if len(name) <= _MOST_OF_NAME else f"{name[:_MOST_OF_NAME]}..."
