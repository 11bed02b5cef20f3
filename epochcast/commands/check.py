"""`epochcast check`: whether a training's speed is normal, and what explains it best if not."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from epochcast.api import check as check_speed
from epochcast.commands import options as o
from epochcast.tables import Format, counted, print_notes, print_records
from predictor.answers.check import Speed
from predictor.answers.question import Question
from predictor.errors import SchemaError


@o.with_options(Speed, Question, answer="predict")
def check_command(
    cnn: o.Cnn,
    gpu: Annotated[str, o.gpu_option(more="")],
    batch_size: list[str] | None = o.BATCH_SIZES,
    log: Path | None = o.option(
        "Instead of its speed, what the training printed: a progress bar's, timm's, torchvision's, Keras's or "
        "nnU-Net's lines, Lightning's CSV and others (docs/advice.md)."
    ),
    epochs: int = o.option("Epochs of the training, for what mending saves.", default=1, min=1),
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Say whether a training's speed is normal, and what explains it best if not."""
    if output not in (Format.table, Format.json):
        message = f"--format {output.value} is a table's, and this is no table. Pass json, or leave it out."
        raise SchemaError(message)
    layers = o.cnn_or_layers(cnn, options)
    checkup = check_speed(layers, gpu, batch_size or None, log=log, epochs=epochs, **options)
    if output is Format.json:
        about = asdict(checkup)
        print_records(about.pop("causes"), output, (), sentence=checkup.sentence, **about)
        return
    print_notes([checkup.sentence], style="bold")
    print_notes(checkup.lines())
    if any(cause.saved_h for cause in checkup.causes):
        print_notes([f"Savings are those of {counted(epochs, 'epoch')}."])
