"""How a CNN is trained: framework, precision, memory format and the other options that decide which kernels run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from numbers import Real
from typing import TYPE_CHECKING, Any, NamedTuple

from predictor.errors import SchemaError, nearest

if TYPE_CHECKING:
    import pandas as pd

FRAMEWORKS = ("pytorch", "tensorflow", "chainer")
PRECISIONS = ("fp32", "tf32", "fp16", "amp_fp16", "amp_bf16")
MEMORY_FORMATS = ("nchw", "channels_last")
CAPTURES = ("eager", "graph", "static_graph", "compile", "compile_graph")
COMPILED = ("compile", "compile_graph")
"""Captures by PyTorch's compiler: its default mode, and ``reduce-overhead``, which replays CUDA graphs."""

PARALLELS = ("ddp", "dp")
"""How PyTorch spreads a mini-batch: DistributedDataParallel by a process per GPU, DataParallel by one process."""

LOOPS = ("timm", "fastai", "lightning", "transformers", "accelerate", "ultralytics", "nnunet", "keras")
"""Frameworks whose loops are known to count the iterations of an epoch in their own way, or as PyTorch's loaders do."""

DROPPING = ("timm", "fastai")
"""Loops that drop an epoch's last mini-batch of fewer images."""

FIXED_EPOCHS = {"nnunet": (250, 50)}
"""Iterations of training and of validation in an epoch of loops that run as many whatever the data."""

MAX_PER_GPU = 8
"""Most trainings that were measured on one GPU."""


def unread_by(loop: str | None) -> tuple[str, ...]:
    """Options of an epoch that the loop of a framework does not read."""
    of_data = ("samples", "validation_samples", "drop_last")
    return of_data if loop in FIXED_EPOCHS else of_data[2:] if loop in DROPPING else ()


class Habits(NamedTuple):
    """PyTorch's switches that are on: `deterministic` algorithms, which fill new tensors, and anomaly detection."""

    deterministic: bool = False
    detect_anomaly: bool = False

    @property
    def in_words(self) -> list[str]:
        """Words for those that are on."""
        return ["deterministic algorithms"] * self.deterministic + ["anomaly detection"] * self.detect_anomaly


OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "nadam", "rmsprop", "adadelta", "adagrad", "lamb")
FLOAT32_MATMUL_PRECISIONS = ("highest", "high")
"""Values of `torch.set_float32_matmul_precision`: fp32 (the default since PyTorch 1.12) and TF32. ``medium`` is TF32 on
a GPU, too."""

CHAINER = {
    "precision": ("fp32", "tf32", "fp16", "amp_fp16"),
    "memory_format": ("nchw",),
    "capture": ("eager", "static_graph"),
}
"""What Chainer has of these fields: no bf16, no channels-last, no iteration captured as a CUDA graph, no compiler."""

_CHOICES = {
    "framework": FRAMEWORKS,
    "precision": PRECISIONS,
    "memory_format": MEMORY_FORMATS,
    "capture": CAPTURES,
    "optimizer": OPTIMIZERS,
    "float32_matmul_precision": FLOAT32_MATMUL_PRECISIONS,
}


@dataclass(frozen=True, slots=True)
class Mode:
    """One way to train; every field is checked against the words that measurement tables use.

    `float32_matmul_precision` decides only in PyTorch's TF32 (`fp32_products`). SchemaError if a field is not one of
    its known words; the message lists them.
    """

    framework: str = "pytorch"
    precision: str = "fp32"
    memory_format: str = "nchw"
    autotune: bool = False
    capture: str = "eager"
    optimizer: str = "momentum"
    xla: bool = False
    float32_matmul_precision: str = FLOAT32_MATMUL_PRECISIONS[0]

    @property
    def fp32_products(self) -> bool:
        """Whether matrix products are computed in fp32 beside convolutions in TF32."""
        return products_in_fp32(self.framework, self.precision, self.float32_matmul_precision)

    @property
    def matmul_setting(self) -> str | None:
        """`float32_matmul_precision` in PyTorch's TF32; None elsewhere, where it decides nothing."""
        decides = (self.framework, self.precision) == ("pytorch", "tf32")
        return self.float32_matmul_precision if decides else None

    @property
    def replays(self) -> bool:
        """Whether the host launches an iteration as a whole, captured as a graph, and not kernel by kernel."""
        return self.capture in ("graph", "static_graph")

    @property
    def is_compiled(self) -> bool:
        """Whether PyTorch's compiler makes the kernels."""
        return self.capture in COMPILED

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise SchemaError(
                    f"{name} {value!r} is not known. Nearest: {nearest(str(value), choices)}; "
                    f"known: {', '.join(choices)}."
                )


def products_in_fp32(framework: str, precision: str, float32_matmul_precision: object) -> bool:
    """Whether matrix products are computed in fp32 beside convolutions in TF32, as PyTorch does by default.

    TensorFlow and Chainer compute both alike.
    """
    return framework == "pytorch" and precision == "tf32" and float32_matmul_precision != "high"


def mode_in_words(precision: str, memory_format: str) -> str:
    """A mode as people write it: ``TF32``, ``AMP bf16 channels-last``."""
    text = precision.replace("amp_", "AMP ") if precision.startswith("amp_") else precision.upper()
    return f"{text} channels-last" if memory_format == "channels_last" else text


def chainer_lacks(mode: Mode) -> str | None:
    """The first field of a mode that Chainer does not have; None if it has them all."""
    return next((name for name, has in CHAINER.items() if getattr(mode, name) not in has), None)


TIMED_BY_PASSES = tuple(name for name in OPTIMIZERS if name != "lamb")
"""Optimizers of PyTorch, whose updates take the time of what they read and write."""

USUAL_WORKSPACE_MIB = 8.0
"""Memory that Chainer allows cuDNN for a convolution."""

MODE_COLUMNS = (*(field.name for field in fields(Mode)), "pass", "n_gpus")
"""Two measurements that differ in one of these are not of one series."""

UNKNOWN = "unknown"


def mode_words(table: pd.DataFrame, columns: tuple[str, ...] = MODE_COLUMNS) -> pd.DataFrame:
    """Those columns of a measurement table as words; `unknown` where a value or a whole column is missing.

    Numbers have no trailing zeros (``1.0`` and ``1`` are both ``1``), truth values are ``True`` and ``False``.
    """
    import pandas as pd

    words = {column: _words(table[column]) if column in table else UNKNOWN for column in columns}
    return pd.DataFrame(words, index=table.index, columns=list(columns), dtype=object)


def _words(values: pd.Series[Any]) -> Any:
    import numpy as np
    import pandas as pd

    codes, distinct = pd.factorize(values)
    spellings = np.array([*(_word(value) for value in distinct), UNKNOWN], dtype=object)
    return spellings[codes]  # a missing value has code -1


def _word(value: object) -> str:
    if isinstance(value, Real) and type(value).__name__ not in ("bool", "bool_"):
        return f"{float(value):g}"
    return str(value).strip() or UNKNOWN
