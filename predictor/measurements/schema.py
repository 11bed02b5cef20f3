"""The columns of a measurement table, and the checks that every table passes before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from predictor.catalogue.modes import (
    CAPTURES,
    COMPILED,
    FLOAT32_MATMUL_PRECISIONS,
    FRAMEWORKS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PRECISIONS,
)
from predictor.checks import LONGEST_MS
from predictor.errors import SchemaError
from predictor.operator_types import ACTIVATION_KINDS, OPERATOR_TYPES

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

FORMAT_VERSION = 2
"""Version of the measurement table; rows of version 1 are read, too, and rows of another one refused.

Version 1 lacks `float32_matmul_precision`: its profiler computed matrix products of PyTorch's TF32 in TF32."""

KINDS = ("proxy", "operator", "target", "all_reduce")
PASSES = ("training", "forward_backward", "forward", "backward_input", "backward_weight")

SYNONYMS = {
    "amp": "amp_fp16",
    "fp16_mixed": "amp_fp16",
    "nhwc": "channels_last",
    "float32": "fp32",
    "float16": "fp16",
}
"""Synonyms in published tables -> our words; `fp32_or_tf32` (the source does not state which) stays."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of the measurement table.

    `form` is one of text, word (one of `words`), flag (true or false), count (a whole number of at least
    `least`), amount (a finite number of at least 0) and time (a finite number above 0).
    """

    name: str
    form: str
    about: str
    unit: str = ""
    words: tuple[str, ...] = ()
    required: bool = False
    least: int = 1


COLUMNS = (
    Column("format_version", "count", f"version of this table's form, {FORMAT_VERSION}"),
    Column("source", "text", "a published data set, or the name of your own campaign"),
    Column("framework", "word", "the framework that trained the CNN", words=(*FRAMEWORKS, "cudnn")),
    Column("framework_version", "text", "its version as the source gives it"),
    Column("gpu", "text", "the GPU's canonical name, or cpu:<model>", required=True),
    Column("host", "text", "the machine, cloud instance or CPU that fed the GPU"),
    Column("device_kind", "word", "the kind of device", words=("gpu", "cpu")),
    Column(
        "kind",
        "word",
        "a whole single-convolution CNN, a single layer, a CNN as trained, or only a sum over GPUs",
        words=KINDS,
    ),
    Column("cnn", "text", "the CNN's name, with its source where it is not a zoo CNN", required=True),
    Column("image_size", "count", "height of the (square) input image", "pixels", required=True),
    Column("batch_size", "count", "images per mini-batch", "images", required=True),
    Column("samples_per_epoch", "count", "images in the training set", "images"),
    Column(
        "validation_samples", "count", "images of the validation pass inside epoch_time_s", "images", least=0
    ),
    Column("pass", "word", "which part of an iteration was timed", words=PASSES),
    Column("optimizer", "word", "the optimizer of the training pass", words=OPTIMIZERS),
    Column("xla", "flag", "compiled by XLA"),
    Column("precision", "word", "arithmetic", words=(*PRECISIONS, "fp32_or_tf32"), required=True),
    Column(
        "float32_matmul_precision",
        "word",
        "PyTorch's setting of that name: matrix products of TF32 in fp32 (highest, its default) or in TF32 (high)",
        words=FLOAT32_MATMUL_PRECISIONS,
    ),
    Column("memory_format", "word", "order of the tensors' dimensions in memory", words=MEMORY_FORMATS),
    Column("cudnn", "text", "cuDNN's version"),
    Column("autotune", "flag", "convolution algorithms chosen by trying them"),
    Column("workspace_mib", "amount", "scratch memory allowed to convolutions", "MiB"),
    Column("capture", "word", "how operators reach the GPU", words=CAPTURES),
    Column("copies_input", "flag", "an iteration copies its images from the host to the GPU"),
    Column("waits_for_loader", "flag", "an iteration waits for a loader that reads its images"),
    Column("loader_workers", "count", "processes that load images", "processes", least=0),
    Column("n_gpus", "count", "GPUs that share the mini-batch", "GPUs"),
    Column("bucket_mib", "amount", "several GPUs: gradients that are added up together", "MiB"),
    Column("bucket_view", "flag", "several GPUs: gradients are views of these buckets"),
    Column("sync_batch_norm", "flag", "several GPUs: batch norms take the statistics of all images"),
    Column("message_bytes", "count", "all-reduce: bytes on each GPU", "bytes"),
    Column(
        "iteration_time_ms", "time", "wall time of one iteration (or of the pass named)", "ms", required=True
    ),
    Column("gpu_time_ms", "time", "time the GPU is busy in one iteration", "ms"),
    Column("host_time_ms", "time", "time the host needs to enqueue one iteration", "ms"),
    Column(
        "host_cnn_ms",
        "time",
        "time the host needs to enqueue an iteration of ResNet-18 (32 pixels) in the row's mode, in the same run",
        "ms",
    ),
    Column(
        "host_kernel_us",
        "time",
        "time the host needs to enqueue a kernel without work, in the same run",
        "us",
    ),
    Column(
        "graph_kernel_us",
        "time",
        "time of a kernel without work in a replayed graph, in the same second",
        "us",
    ),
    Column("compile_s", "time", "time of the first iteration of a compiled CNN, which compiles it", "s"),
    Column("peak_memory_mib", "amount", "most memory in use on the GPU", "MiB"),
    Column("conv_algorithms", "text", "JSON: layer -> {forward, backward_data, backward_filter}"),
    Column("n_warmup", "count", "iterations before the timed ones", "iterations", least=0),
    Column("n_repeats", "count", "timed repeats behind the time", "repeats"),
    Column("iteration_time_ms_iqr", "amount", "interquartile range of the repeats", "ms"),
    Column(
        "median_precision",
        "amount",
        "half width of the 95 % interval of the median of wall or GPU time, whichever is wider",
        "fraction of the median",
    ),
    Column("disturbed", "flag", "other work ran on the machine while it was measured"),
    Column(
        "epoch_time_s",
        "time",
        "wall time of one epoch, as the source counts it (validation: `validation_samples`)",
        "s",
    ),
    Column("measured_at", "text", "when, ISO 8601"),
    Column("notes", "text", "further remarks of the source"),
    # An operator's shape: the layer table's columns; `kind` is taken, so its activation is `activation_kind`.
    Column("type", "word", "operator: its layer type", words=tuple(OPERATOR_TYPES)),
    Column(
        "activation_kind",
        "word",
        "operator: the activation run, by itself or with it",
        words=ACTIVATION_KINDS,
    ),
    *(
        Column(f"{side}_{dimension}", "count", f"operator: {side}put {dimension}")
        for side in ("in", "out")
        for dimension in ("channels", "height", "width")
    ),
    *(
        Column(f"{what}_{dimension}", "count", f"operator: {what} {dimension}", "pixels", least=least)
        for what, least in (("kernel", 1), ("stride", 0), ("padding", 0))
        for dimension in ("height", "width")
    ),
    *(
        Column(f"{what}_depth", "count", f"operator over volumes: {what} depth", "pixels", least=least)
        for what, least in (("in", 1), ("out", 1), ("kernel", 1), ("stride", 1), ("padding", 0))
    ),
    Column("dilation", "count", "operator: dilation", "pixels"),
    Column("groups", "count", "operator: groups of a convolution"),
    Column("parameters", "count", "operator: trainable parameters", least=0),
    Column("n_tensors", "count", "operator: tensors that a concat joins or an optimizer step updates"),
    Column("input_gradient", "flag", "operator: the gradient of its input is computed"),
    Column("in_place", "flag", "operator: its output overwrites its input"),
    Column("wide_input", "flag", "operator: its input is fp32 under automatic mixed precision"),
)

_BY_NAME = {entry.name: entry for entry in COLUMNS}


def column(name: str) -> Column | None:
    """Find the column of this name; None where the schema has none."""
    return _BY_NAME.get(name)


_FLAGS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False, "": None}

_EXACT = 2**53


@dataclass(frozen=True, slots=True)
class RowNames:
    """Names of rows in error messages: ``table.csv, line 3``."""

    label: str
    place: str
    numbers: Sequence[int]

    def name(self, position: int) -> str:
        """Name of the row at this position."""
        return f"{self.label}, {self.place} {self.numbers[position]}"

    def refuse(self, values: pd.Series, bad: pd.Series, entry: Column, valid: str) -> None:
        """Raise a SchemaError that names the first row where `bad` is true, if any, and counts the others."""
        if not bad.any():
            return
        position, more = int(bad.to_numpy().argmax()), int(bad.sum()) - 1
        value = values.iloc[position]
        text = str(value)
        missing = text.strip() in ("", "None", "<NA>")
        shown = "is missing" if missing else f"is {text if len(text) <= 80 else text[:77] + '...'!r}"
        more_rows = f" (as in {more} more rows)" if more else ""
        raise SchemaError(f"{self.name(position)}: {entry.name} {shown}{more_rows}. Valid: {valid}.")


def text_column(values: Sequence[str | None]) -> pd.Series:
    """Make a text column (dtype object) in which missing values are None, in every version of pandas."""
    import pandas as pd

    return pd.Series(list(values), dtype=object)


def is_set(frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
    """Where a flag of a checked table is true, shape (n_rows,); false where it is unknown or the table lacks it."""
    import numpy as np

    return (
        frame[name].isin([True]).to_numpy(dtype=bool) if name in frame else np.zeros(len(frame), dtype=bool)
    )


def is_compiled(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Where a row of a checked table is of ``torch.compile``, (n_rows,): no law of eager iterations holds there."""
    import numpy as np

    if "capture" not in frame:
        return np.zeros(len(frame), dtype=bool)
    return frame["capture"].isin(COMPILED).to_numpy(dtype=bool)


def missing_column(entry: Column, n_rows: int) -> pd.Series:
    """Make the checked form of a column that the table lacks, without checking it."""
    import pandas as pd

    if entry.form in ("text", "word"):
        return text_column([None] * n_rows)
    if entry.form == "flag":
        return pd.Series([None] * n_rows, dtype="boolean")
    return pd.Series([float("nan")] * n_rows, dtype="float64")


def _blank(values: pd.Series) -> pd.Series:
    if values.dtype.kind in "iufb":
        return values.isna()
    return values.isna() | (values.astype(str).str.strip() == "")


def _text(given: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    blank = _blank(given)
    if entry.required:
        rows.refuse(given, blank, entry, "any text")
    values = zip(given.tolist(), blank.tolist(), strict=True)
    return text_column([None if missing else str(value).strip() for value, missing in values])


def _word(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    text = _text(values, entry, rows)
    ours = {value: _our_word(value) for value in text.dropna().unique()}
    words = text_column([None if value is None else ours[value] for value in text])
    rows.refuse(values, words.notna() & ~words.isin(entry.words), entry, ", ".join(entry.words))
    return words


def _our_word(value: str) -> str:
    word = value.casefold()
    return SYNONYMS.get(word, word)


def _flag(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    import pandas as pd

    lower = [(value or "").casefold() for value in _text(values, entry, rows)]
    rows.refuse(values, pd.Series([value not in _FLAGS for value in lower]), entry, "true or false")
    return pd.Series([_FLAGS[value] for value in lower], dtype="boolean")


def _number(values: pd.Series, entry: Column, rows: RowNames, valid: str) -> pd.Series:
    import numpy as np
    import pandas as pd

    blank = _blank(values)
    numbers = pd.to_numeric(values.where(~blank), errors="coerce").astype("float64")
    bad = pd.Series(~np.isfinite(numbers.to_numpy())) & (~blank | entry.required)
    rows.refuse(values, bad, entry, valid)
    return numbers


def _count(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    valid = f"a whole number of at least {entry.least}" + (f", in {entry.unit}" if entry.unit else "")
    numbers = _number(values, entry, rows, valid)
    rows.refuse(values, (numbers < entry.least) | (numbers.notna() & (numbers % 1 != 0)), entry, valid)
    rows.refuse(values, numbers > _EXACT, entry, f"at most {_EXACT:,}, up to which whole numbers are exact")
    return numbers.astype("int64") if entry.required else numbers


def _amount(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    valid = "a number of at least 0" + (f", in {entry.unit}" if entry.unit else "")
    numbers = _number(values, entry, rows, valid)
    rows.refuse(values, numbers < 0, entry, valid)
    return numbers


def _time(values: pd.Series, entry: Column, rows: RowNames) -> pd.Series:
    valid = f"a number above 0, in {entry.unit} (wrong unit, or a failed measurement?)"
    numbers = _number(values, entry, rows, valid)
    rows.refuse(values, numbers <= 0, entry, valid)
    if entry.unit == "ms":
        rows.refuse(values, numbers > LONGEST_MS, entry, f"at most {LONGEST_MS:,} ms, a day (wrong unit?)")
    return numbers


CHECKS: dict[str, Callable[[pd.Series, Column, RowNames], pd.Series]] = {
    "text": _text,
    "word": _word,
    "flag": _flag,
    "count": _count,
    "amount": _amount,
    "time": _time,
}
"""By `Column.form`: each returns the checked column, or raises a SchemaError that names the row."""
