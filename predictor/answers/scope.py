"""The scope of an answer: what its times include and exclude, in one paragraph, and the share of unknown operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, is_cpu, rates_of
from predictor.catalogue.modes import COMPILED
from predictor.cnns.layer_table import LayerTable
from predictor.models.compiled import compile_seconds, compile_spread
from predictor.models.extrapolation import of_warning
from predictor.models.forecast import Reason
from predictor.models.layer_times.law import counted_operators
from predictor.models.registry import WHOLE_METHODS
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.memory import memory_estimate_validated
from predictor.operators.work import roofline_ms, unmeasured_share

if TYPE_CHECKING:
    from predictor.answers.asked import Asked
    from predictor.answers.question import Question
    from predictor.catalogue.modes import Mode
    from predictor.models.served import Model

SCOPE_COLUMNS = ("precision", "host", "method", "trained_on")
"""Columns of an answer that its scope names."""

_COPIES = "An iteration includes the copy of its images to the GPU, since loading is counted."
_MEMORY = {
    True: "Peak memory is summed layer by layer; for half of the measurements it is within 2 %, for one in twenty "
    "more than 10 % too low.",
    False: "Peak memory is summed layer by layer by PyTorch's rules; no peak of this framework was measured.",
}


_COMPILED_MEMORY = (
    "That is of eager training: 77 compiled iterations of 44 CNNs needed 0.42 to 1.03 x the estimate."
)


def scope_of(
    asked: Asked,
    model: Model,
    columns: Mapping[str, Sequence[Any]],
    loading: str = "data loading is excluded",
) -> str:
    """One paragraph: the pass, what is excluded, the mode, the host, and what the model was fitted on.

    `columns` are `SCOPE_COLUMNS` of each row; `loading` is what `predictor.answers.loading.loading_in_words` says.
    """
    question = asked.question
    modes = [asked.training.in_precision(precision) for precision in dict.fromkeys(columns["precision"])]
    precisions = " or ".join(map(_arithmetic, modes))
    formats = " or ".join(dict.fromkeys(mode.memory_format for mode in modes))
    words = [question.framework, precisions, formats, question.capture, question.optimizer]
    sentences = [
        *(f"{each}." for each in asked.left_out),
        f"Covers the training pass (forward, backward, weight update) on {_gpus(question)}; {loading}.",
        f"Mode: {', '.join([*words, *(['autotune'] if question.autotune else [])])}. "
        f"Host: {', '.join(dict.fromkeys(columns['host']))}.",
        *_accumulation(question),
        *([_COPIES] if asked.images_from_host and question.framework in model.fed_frameworks else []),
        *asked.other_forms,
        *_sources(model.card, columns["method"], columns["trained_on"]),
        *_epoch(asked),
        *_compiling(asked),
        "Times of the GPU do not depend on the optimizer: the training data does not distinguish it.",
        _MEMORY[memory_estimate_validated(question.framework)],
        *([_COMPILED_MEMORY] if question.capture in COMPILED else []),
    ]
    return " ".join(sentences)


def _arithmetic(mode: Mode) -> str:
    """Precision, and that of PyTorch's matrix products in TF32."""
    if (mode.framework, mode.precision) != ("pytorch", "tf32"):
        return mode.precision
    return f"tf32 (matrix products in {'fp32' if mode.fp32_products else 'tf32, too'})"


def _gpus(question: Question) -> str:
    """The GPUs, and what a mini-batch of many of them asks for."""
    if question.n_gpus == 1:
        return "one GPU"
    machines = "one machine" if question.nodes == 1 else f"{question.nodes} machines"
    return (
        f"{question.n_gpus} GPUs of {machines} that share each mini-batch and add up their gradients (a mini-batch "
        "larger than before wants a larger learning rate and a warm-up, arXiv:1706.02677; the number of epochs to the "
        "same accuracy may grow)"
    )


def _accumulation(question: Question) -> list[str]:
    """That an iteration is one step of the optimizer, where its mini-batch runs in parts."""
    if question.parts == 1:
        return []
    return [
        f"An iteration is a step of the optimizer: each GPU runs its images in {question.parts} parts one after the "
        f"other{', and gradients are exchanged once, with the last' * (question.n_gpus > 1)}."
    ]


def _epoch(asked: Asked) -> list[str]:
    if asked.samples is None:
        return []
    part, validated = asked.part_in_words, asked.question.validation_samples
    told = [] if part is None else [f"An epoch is {part}."]
    if validated:
        return [*told, f"Epochs include an approximate forward pass over {validated:,} validation samples."]
    return [*told, "Epochs include no validation pass."]


def _compiling(asked: Asked) -> list[str]:
    """The first iteration of compiled CNNs, which no epoch includes."""
    if asked.question.capture not in COMPILED:
        return []
    return [
        f"Compiling takes {compiling_in_words(asked)} on the hosts where it was measured: no epoch includes it, the "
        "start of a training does (start_s)."
    ]


def compiling_in_words(asked: Asked) -> str:
    """Seconds in which the CNNs compile, the least and the most: ``about 14 to 36 s within a factor of 1.8``."""
    seconds = [compile_seconds(table) for table in asked.tables]
    ends = dict.fromkeys(f"{end:.0f}" for end in (min(seconds), max(seconds)))
    return f"about {' to '.join(ends)} s within a factor of {compile_spread():.1f}"


def _sources(card: Mapping[str, Any], methods: Sequence[str], trained_on: Sequence[str]) -> list[str]:
    """Data behind the answer: what the model or a named method was fitted on, and the measured operators used."""
    fitted_on = str(card.get("trained_on", "unknown data"))
    used = dict(zip(trained_on, methods, strict=True))
    model = f"Model: {card.get('name', 'unnamed')}, fitted on {fitted_on}."
    return [
        *([model] if fitted_on in used else []),
        *(
            f"Method: {method}, fitted on {each}." if method in WHOLE_METHODS else f"Layers: {each}."
            for each, method in used.items()
            if each != fitted_on
        ),
    ]


TRAFFIC = "memory traffic"
"""Class of the operators of unknown cost in an explanation."""

_OTHER = "other"
_CLASS_OF_OTHER = OPERATOR_TYPES[_OTHER].operator_class
_MEASURED_TYPES = frozenset(OPERATOR_TYPES) - {_OTHER}

Array = NDArray[np.float64]
Reasons = tuple[Reason, ...]


def with_shares(
    reasons: Sequence[Reasons], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int]
) -> list[Reasons]:
    """A forecast's reasons at each batch size, where operators of unknown cost are named with their share of the time.

    The share is that of their roofline times: an operator of type ``other`` reads and writes its maps once.
    """
    if is_cpu(gpu.name) or not has_others(table):
        return list(reasons)
    shares = unmeasured_share(
        table, np.array(batch_sizes) / table.parts, rates_of(gpu, mode.precision), _MEASURED_TYPES
    )
    return [_with_share(each, table, float(share)) for each, share in zip(reasons, shares, strict=True)]


@lru_cache(maxsize=256)
def has_others(table: LayerTable) -> bool:
    """Whether a CNN has operators of unknown cost."""
    return any(layer.type == _OTHER for layer in table)


def _with_share(reasons: Reasons, table: LayerTable, share: float) -> Reasons:
    warnings = [warning for warning in table.warnings if warning.kind == "operator"]
    names = warnings[0].about if warnings else "layers of type other"
    replaced = [of_warning(warning) for warning in warnings]
    percent = f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"
    reason = Reason("operator", f"{names} counted as memory traffic: {percent} of this time")
    return (*(known for known in reasons if known not in replaced), reason)


def split_traffic(
    class_ms: dict[str, Array], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int] | Array
) -> dict[str, Array]:
    """GPU time by class, with the time of unknown operators as a class of its own, `TRAFFIC`.

    The class that they are counted in is split in proportion to its operators' roofline times.
    """
    operators, counts = counted_operators(table)
    at = [
        i for i, each in enumerate(operators) if OPERATOR_TYPES[each.type].operator_class == _CLASS_OF_OTHER
    ]
    in_class = [operators[i] for i in at]
    unknown = np.array([each.type == _OTHER for each in in_class], dtype=bool)
    if is_cpu(gpu.name) or not unknown.any() or _CLASS_OF_OTHER not in class_ms:
        return class_ms
    rates = rates_of(gpu, mode.precision)
    least = counts[at, None] * roofline_ms(in_class, np.asarray(batch_sizes) / table.parts, rates)
    share = least[unknown].sum(axis=0) / least.sum(axis=0)
    left = class_ms[_CLASS_OF_OTHER] * (1.0 - share)
    rest = {name: ms for name, ms in class_ms.items() if name != _CLASS_OF_OTHER}
    rest |= {_CLASS_OF_OTHER: left} if not unknown.all() else {}
    return rest | {TRAFFIC: class_ms[_CLASS_OF_OTHER] * share}
