"""The scope of an answer: what its times include and exclude, in one paragraph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from predictor.models.compiled import compile_seconds, compile_spread
from predictor.models.registry import WHOLE_METHODS
from predictor.operators.memory import memory_estimate_validated

if TYPE_CHECKING:
    from predictor.answers.question import Question
    from predictor.catalogue.modes import Mode
    from predictor.models.served import Model

SCOPE_COLUMNS = ("precision", "host", "method", "trained_on")
"""Columns of an answer that its scope names."""

_COPIES = "An iteration includes the copy of its images to the GPU, as in this framework's measurements."
_MEMORY = {
    True: "Peak memory is summed layer by layer; for half of the measurements it is within 2 %, for one in twenty "
    "more than 10 % too low.",
    False: "Peak memory is summed layer by layer by PyTorch's rules; no peak of this framework was measured.",
}


_COMPILED_MEMORY = (
    "That is of eager training: 77 compiled iterations of 44 CNNs needed 0.54 to 1.03 x the estimate."
)


def scope_of(
    question: Question,
    model: Model,
    columns: Mapping[str, Sequence[Any]],
    loading: str = "data loading is excluded",
) -> str:
    """One paragraph: the pass, what is excluded, the mode, the host, and what the model was fitted on.

    Parameters
    ----------
    question : Question
    model : Model
        Its card names the training data.
    columns : mapping
        Of the answer: `SCOPE_COLUMNS` of each row.
    loading : str
        What is said of loading (`predictor.answers.loading.loading_in_words`).
    """
    modes = [question.mode_in(precision) for precision in dict.fromkeys(columns["precision"])]
    precisions = " or ".join(map(_arithmetic, modes))
    formats = " or ".join(dict.fromkeys(mode.memory_format for mode in modes))
    words = [question.framework, precisions, formats, question.capture, question.optimizer]
    sentences = [
        f"Covers the training pass (forward, backward, weight update) on {_gpus(question)}; {loading}.",
        f"Mode: {', '.join([*words, *(['autotune'] if question.autotune else [])])}. "
        f"Host: {', '.join(dict.fromkeys(columns['host']))}.",
        *([_COPIES] if question.framework in model.fed_frameworks else []),
        *question.other_forms(),
        *_sources(model.card, columns["method"], columns["trained_on"]),
        *_epoch(question),
        *_compiling(question),
        "Times do not depend on the optimizer: the training data does not distinguish it.",
        _MEMORY[memory_estimate_validated(question.framework)],
        *([_COMPILED_MEMORY] if question.capture == "compile" else []),
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


def _epoch(question: Question) -> list[str]:
    if question.epoch_samples() is None:
        return []
    part = question.part_in_words()
    told = [] if part is None else [f"An epoch is {part}."]
    if question.validation_samples:
        return [
            *told,
            f"Epochs include an approximate forward pass over {question.validation_samples:,} validation samples.",
        ]
    return [*told, "Epochs include no validation pass."]


def _compiling(question: Question) -> list[str]:
    """The first iteration of compiled CNNs, which no epoch includes."""
    if question.capture != "compile":
        return []
    return [
        f"Compiling takes {compiling_in_words(question)} on the hosts where it was measured: no epoch includes it, the "
        "start of a training does (start_s)."
    ]


def compiling_in_words(question: Question) -> str:
    """Seconds in which the CNNs compile, the least and the most: ``about 14 to 36 s within a factor of 1.8``."""
    seconds = [compile_seconds(table) for table in question.layer_tables()]
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
