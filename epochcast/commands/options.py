"""Options that several commands share, described once."""

from pathlib import Path
from typing import Annotated, Any

import typer

from epochcast.tables import Format

__all__ = [
    "AllowSpot",
    "AnchorBatchSize",
    "AnchorEpochTime",
    "AnchorGpu",
    "AnchorIterationTime",
    "AnchorSamples",
    "AnchorThroughput",
    "Autotune",
    "BatchSizes",
    "Capture",
    "DataSet",
    "Framework",
    "Host",
    "ImageSize",
    "MemoryFormat",
    "Method",
    "ModelFile",
    "Offers",
    "Optimizer",
    "OutputFormat",
    "OwnMeasurements",
    "Precision",
    "Samples",
    "Server",
    "ValidationSamples",
    "anchors_from",
]

_TRAINING = "How it is trained"
_PRICES = "Prices"
_ANCHOR = "A measurement of this CNN in this mode, to predict from"
_MODEL = "Model"

BatchSizes = Annotated[
    list[str] | None,
    typer.Option("--batch-size", "-b", help="Mini-batch size; repeat it, or write 32,64.", metavar="N"),
]
ImageSize = Annotated[
    int | None,
    typer.Option(help="Side of the square images in pixels.", show_default="the data set's or the CNN's"),
]
DataSet = Annotated[
    str | None, typer.Option("--dataset", help="A known data set, such as cifar100 or imagenet.")
]
Samples = Annotated[int | None, typer.Option(help="Training samples per epoch, instead of a data set.")]
ValidationSamples = Annotated[
    int, typer.Option(help="Add a forward pass over N samples to each epoch.", metavar="N")
]

Precision = Annotated[
    str, typer.Option(help="fp32, tf32, fp16, amp_fp16 or amp_bf16.", rich_help_panel=_TRAINING)
]
MemoryFormat = Annotated[str, typer.Option(help="nchw or channels_last.", rich_help_panel=_TRAINING)]
Framework = Annotated[str, typer.Option(help="pytorch, tensorflow or chainer.", rich_help_panel=_TRAINING)]
Autotune = Annotated[
    bool, typer.Option("--autotune", help="cuDNN times its algorithms first.", rich_help_panel=_TRAINING)
]
Capture = Annotated[str, typer.Option(help="eager, graph or static_graph.", rich_help_panel=_TRAINING)]
Optimizer = Annotated[str, typer.Option(help="sgd, momentum or adam.", rich_help_panel=_TRAINING)]
Host = Annotated[
    str | None,
    typer.Option(
        help="The machine around the GPU.", show_default="the reference host", rich_help_panel=_TRAINING
    ),
]

Offers = Annotated[
    Path | None,
    typer.Option(
        help="Your own price file, with the columns of offers.csv.",
        show_default="the shipped prices",
        rich_help_panel=_PRICES,
    ),
]
AllowSpot = Annotated[bool, typer.Option("--spot", help="Spot prices.", rich_help_panel=_PRICES)]

AnchorGpu = Annotated[str | None, typer.Option(help="GPU it was measured on.", rich_help_panel=_ANCHOR)]
AnchorBatchSize = Annotated[int | None, typer.Option(help="Its batch size.", rich_help_panel=_ANCHOR)]
AnchorIterationTime = Annotated[
    float | None,
    typer.Option(
        "--anchor-iteration-time-ms", help="Milliseconds of one iteration.", rich_help_panel=_ANCHOR
    ),
]
AnchorEpochTime = Annotated[
    float | None,
    typer.Option(
        "--anchor-epoch-time-s",
        help="Or seconds of an epoch, with --anchor-samples.",
        rich_help_panel=_ANCHOR,
    ),
]
AnchorSamples = Annotated[int | None, typer.Option(help="Samples of that epoch.", rich_help_panel=_ANCHOR)]
AnchorThroughput = Annotated[
    float | None, typer.Option("--anchor-throughput", help="Or samples per second.", rich_help_panel=_ANCHOR)
]

OwnMeasurements = Annotated[
    Path | None,
    typer.Option(
        "--measurements",
        help="A measurement table of your own (epochcast profile): operators answer, CNNs are anchors.",
        show_default=False,
        rich_help_panel=_MODEL,
    ),
]
Method = Annotated[str, typer.Option(help="auto, or the name of a predictor.", rich_help_panel=_MODEL)]
ModelFile = Annotated[
    Path | None,
    typer.Option(
        "--model",
        help="A model that `epochcast fit` wrote.",
        show_default="the shipped one",
        rich_help_panel=_MODEL,
    ),
]

Server = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this service instead; the answer is its model's, with its prices.",
        show_default=False,
        rich_help_panel=_MODEL,
    ),
]

OutputFormat = Annotated[Format, typer.Option("--format", help="What to print.")]


def anchors_from(
    gpu: str | None,
    batch_size: int | None,
    iteration_time_ms: float | None,
    epoch_time_s: float | None,
    samples: int | None,
    throughput: float | None,
) -> list[dict[str, Any]]:
    """List the anchor that the options describe, if they do, as `predict` takes it."""
    given = {
        "gpu": gpu,
        "batch_size": batch_size,
        "iteration_time_ms": iteration_time_ms,
        "epoch_time_s": epoch_time_s,
        "samples": samples,
        "throughput_samples_per_s": throughput,
    }
    return [given] if any(value is not None for value in given.values()) else []
