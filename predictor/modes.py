"""How a CNN is trained: framework, precision, memory format and the rest of what decides an iteration's time.

Called by measurements, models and the public face; calls gpus for what a GPU can do, and the error tree.
"""

from dataclasses import dataclass, fields

from predictor.errors import SchemaError, nearest

__all__ = ["CAPTURES", "FRAMEWORKS", "MEMORY_FORMATS", "PRECISIONS", "Mode"]

FRAMEWORKS = ("pytorch", "tensorflow", "chainer")
PRECISIONS = ("fp32", "tf32", "fp16", "amp_fp16", "amp_bf16")
MEMORY_FORMATS = ("nchw", "channels_last")
CAPTURES = ("eager", "graph", "static_graph")
OPTIMIZERS = ("sgd", "momentum", "adam")

_CHOICES = {
    "framework": FRAMEWORKS,
    "precision": PRECISIONS,
    "memory_format": MEMORY_FORMATS,
    "capture": CAPTURES,
    "optimizer": OPTIMIZERS,
}


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to train; every field is checked against the words that measurement tables use.

    Raises
    ------
    SchemaError
        If a field is not one of its known words; the message lists them.
    """

    framework: str = "pytorch"
    precision: str = "fp32"
    memory_format: str = "nchw"
    autotune: bool = False
    capture: str = "eager"
    optimizer: str = "momentum"
    xla: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            value, known = getattr(self, field.name), _CHOICES.get(field.name)
            if known is not None and value not in known:
                raise SchemaError(
                    f"{field.name} {value!r} is not known. Nearest: {nearest(str(value), known)}; "
                    f"known: {', '.join(known)}."
                )
