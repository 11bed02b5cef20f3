"""What an answer covers and what it leaves out, in sentences that go with every prediction."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from predictor.catalogue.modes import Mode
from predictor.operators.memory import memory_estimate_validated

if TYPE_CHECKING:
    from predictor.models.served import Model

__all__ = ["coverage", "coverage_of"]

_FED = "A step copies its images to the GPU, as in the measurements of this framework."
_MEMORY = {
    True: "Peak memory is added up layer by layer; half of measured peaks lie within 2 %, one in twenty 10 % higher.",
    False: "Peak memory is added up layer by layer by PyTorch's rules; peaks of this framework were not compared.",
}
_MODE_OPTIONS = ("framework", "precision", "memory_format", "autotune", "capture", "optimizer")


def coverage(
    mode: Mode,
    model: "Model",
    host: str,
    validation_samples: int = 0,
    epochs: bool = True,
    trained_on: Iterable[str] = (),
) -> str:
    """One paragraph: the pass, what is excluded, the mode, the host, and what the model was fitted on.

    Parameters
    ----------
    mode : Mode
    model : Model
        Its card names the training data.
    host : str
        The host that was predicted for.
    validation_samples : int
        Samples of the validation pass that the epoch time contains.
    epochs : bool
        Whether epoch times were asked for.
    trained_on : iterable of str
        What each answer comes from (`PredictionRow.trained_on`); where none is given, the model's own data.
    """
    card = model.card
    extras = [word for word, on in (("autotune", mode.autotune), ("XLA", mode.xla)) if on]
    how = ", ".join(
        [mode.framework, mode.precision, mode.memory_format, mode.capture, mode.optimizer, *extras]
    )
    sentences = [
        "Covers the training pass (forward, backward, weight update) on one GPU; data loading is excluded.",
        f"Mode: {how}. Host: {host}.",
        *([_FED] if mode.framework in model.fed_frameworks else []),
        *_sources(card, trained_on),
    ]
    if epochs and validation_samples:
        sentences.append(
            f"Epochs hold an approximated forward pass over {validation_samples:,} validation samples."
        )
    elif epochs:
        sentences.append("Epochs hold no validation pass.")
    sentences.append(
        "Optimizer and autotuning do not change the times: the training data does not tell them apart."
    )
    sentences.append(_MEMORY[memory_estimate_validated(mode.framework)])
    return " ".join(sentences)


def _sources(card: Mapping[str, Any], trained_on: Iterable[str]) -> list[str]:
    """What the model was fitted on, and the layers measured, each where an answer comes from it."""
    fitted_on = str(card.get("trained_on", "unknown data"))
    answered = dict.fromkeys(trained_on)
    model = f"Model: {card.get('name', 'unnamed')}, fitted on {fitted_on}."
    layers = [f"Layers: {each}." for each in answered if each != fitted_on]
    return [*([model] if fitted_on in answered or not answered else []), *layers]


def coverage_of(predicted_host: str, model: "Model", trained_on: Iterable[str] = (), **options: Any) -> str:
    """`coverage` of a call of `predict` or `compare` with these options; other options do not matter.

    `predicted_host` is the `host` of its rows, and `trained_on` what they say of themselves.
    """
    mode = Mode(**{name: options[name] for name in _MODE_OPTIONS if name in options})
    asked = options.get("samples") is not None or options.get("data_set") is not None
    return coverage(mode, model, predicted_host, options.get("validation_samples", 0), asked, trained_on)
