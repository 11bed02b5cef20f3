"""The measurement table's columns: the one place that says what a measurement may hold, and in which unit.

Called by measurements (reading, checking, writing); calls nothing of ours but the words of layers and modes.
"""

from dataclasses import dataclass

from predictor.layers import ACTIVATION_KINDS, LAYER_TYPES
from predictor.modes import CAPTURES, FRAMEWORKS, MEMORY_FORMATS, PRECISIONS

__all__ = ["COLUMNS", "FORMAT_VERSION", "KINDS", "PASSES", "SYNONYMS", "Column", "column"]

FORMAT_VERSION = 1
"""Version of the measurement table; a table of another version is refused."""

KINDS = ("proxy", "operator", "target")
PASSES = ("training", "forward_backward", "forward", "backward_input", "backward_weight")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "adagrad", "adadelta", "rmsprop")

SYNONYMS = {
    "amp": "amp_fp16",
    "fp16_mixed": "amp_fp16",
    "nhwc": "channels_last",
    "float32": "fp32",
    "float16": "fp16",
}
"""Other people's words for ours; `fp32_or_tf32` (a source that does not say) stays: it is ambiguous."""


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
    Column("source", "text", "who measured: a published data set, or the name of one's own campaign"),
    Column("framework", "word", "what trained the CNN", words=(*FRAMEWORKS, "cudnn")),
    Column("framework_version", "text", "its version as the source gives it"),
    Column("gpu", "text", "the GPU's canonical name, or cpu:<model>", required=True),
    Column("host", "text", "the machine, cloud instance or CPU that fed the GPU"),
    Column("device_kind", "word", "what computed", words=("gpu", "cpu")),
    Column(
        "kind", "word", "a whole single-convolution CNN, one layer alone, or a CNN as trained", words=KINDS
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
    Column("memory_format", "word", "order of the tensors' dimensions in memory", words=MEMORY_FORMATS),
    Column("cudnn", "text", "cuDNN's version"),
    Column("autotune", "flag", "convolution algorithms chosen by trying them"),
    Column("workspace_mib", "amount", "scratch memory allowed to convolutions", "MiB"),
    Column("capture", "word", "how operators reach the GPU", words=CAPTURES),
    Column("loader_workers", "count", "processes that load images", "processes", least=0),
    Column("n_gpus", "count", "GPUs that share the mini-batch", "GPUs"),
    Column(
        "iteration_time_ms", "time", "wall time of one iteration (or of the pass named)", "ms", required=True
    ),
    Column("gpu_time_ms", "time", "time the GPU is busy in one iteration", "ms"),
    Column("host_time_ms", "time", "time the host needs to enqueue one iteration", "ms"),
    Column("peak_memory_mib", "amount", "most memory in use on the GPU", "MiB"),
    Column("conv_algorithms", "text", "JSON: layer -> {forward, backward_data, backward_filter}"),
    Column("n_warmup", "count", "iterations before the timed ones", "iterations", least=0),
    Column("n_repeats", "count", "timed repeats behind the time", "repeats"),
    Column("iteration_time_ms_iqr", "amount", "interquartile range of the repeats", "ms"),
    Column("epoch_time_s", "time", "wall time of one epoch, with whatever the source counts into it", "s"),
    Column("measured_at", "text", "when, ISO 8601"),
    Column("notes", "text", "what else the source says about this row"),
    # An operator's shape: the layer table's columns; `kind` is taken, so its activation is `activation_kind`.
    Column("type", "word", "operator: its layer type", words=(*LAYER_TYPES, "optimizer", "loss")),
    Column(
        "activation_kind", "word", "operator: the activation run, alone or with it", words=ACTIVATION_KINDS
    ),
    *(
        Column(f"{side}_{part}", "count", f"operator: {side}put {part}")
        for side in ("in", "out")
        for part in ("channels", "height", "width")
    ),
    *(
        Column(f"{what}_{part}", "count", f"operator: {what} {part}", "pixels", least=least)
        for what, least in (("kernel", 1), ("stride", 0), ("padding", 0))
        for part in ("height", "width")
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
