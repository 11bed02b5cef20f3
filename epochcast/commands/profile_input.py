"""`epochcast profile input`: measure what reading, decoding and augmenting images takes on this machine."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from epochcast.commands import options as o
from epochcast.tables import Format, Record, print_notes, print_records, print_table, table_columns
from predictor.answers.notes import number

if TYPE_CHECKING:
    from predictor.measurements.inputs import InputMeasurement


@o.with_json
def input_command(
    folder: Path | None = o.argument(
        "Folder of images, with folders in it or without.", "200 JPEGs of ImageNet's sizes are made"
    ),
    image_size: int = o.option("Side of the images that the CNN gets, in pixels.", default=224, min=1),
    workers: list[str] | None = o.option(
        "Numbers of worker processes; repeat it, or write 0,1,8.",
        "0, 1, half of the vCPUs, all of them",
        metavar="N",
    ),
    loader: str | None = o.option(
        "torchvision, pillow or dali.", "torchvision where it is installed, else pillow"
    ),
    arrays: bool = o.option(
        "The images lie in memory as arrays of the image size, as CIFAR-10's.", default=False, flag="--arrays"
    ),
    seconds: str = o.option("Time for each number of workers: 3s, 1min.", default="3s"),
    out: Path | None = o.option("JSON file to write, which questions take as --loader."),
    output: o.OutputFormat = Format.table,
) -> None:
    """Measure reading, decoding and augmenting images here: for one worker, and for several together."""
    from epochcast.profiling import seconds as duration_s
    from predictor.checks import whole_number
    from predictor.files import check_replaceable
    from predictor.measurements.inputs import write_input
    from proxy_cnns.input_pipeline import measure_input

    words = [word for text in workers or () for word in text.split(",")]
    numbers = [whole_number("--workers", word, low=0, high=1024) for word in words]
    if out is not None:
        check_replaceable(out)
    duration, stored = duration_s(seconds, "--seconds"), "array" if arrays else "jpeg"
    measured = measure_input(folder, image_size, numbers, loader, duration, stored=stored)
    if out is not None:
        write_input(measured, out)
    of_one, rates = measured.samples_per_worker_second, measured.rates
    records: list[Record] = [asdict(rate) | {"ratio": rate.samples_per_s / of_one} for rate in rates]
    if output is not Format.table:
        about = {name: value for name, value in asdict(measured).items() if name != "rates"}
        print_records(records, output, records[0], **about)
        return
    title = f"Loading {measured.images:,} images with {measured.loader} on {measured.host}"
    print_table(records, table_columns("profile input"), f"{title}, {measured.image_size} px")
    print()
    print_notes(_input_notes(measured, out))


def _input_notes(measured: "InputMeasurement", out: Path | None) -> list[str]:
    where = measured.folder or "made for this measurement"
    mean = f"{1000 * measured.mean_mb:.0f} KB and {measured.mean_megapixels:.2f} megapixels in the mean"
    read = "lie in memory as arrays" if measured.stored == "array" else "are read from the page cache"
    notes = [f"Images: {where}, {mean}. They {read}."]
    if measured.decode_us is not None:
        times_us = (measured.read_us, measured.decode_us, measured.augment_us)
        stages = zip(("reading", "decoding", "augmenting"), times_us, strict=True)
        stages_in_words = ", ".join(f"{name} {number(us)}" for name, us in stages if us is not None)
        notes.append(f"CPU microseconds of an image: {stages_in_words}.")
    if measured.copy_gb_per_s is not None:
        images = 1e9 * measured.copy_gb_per_s / (12.0 * measured.image_size**2)
        notes.append(
            f"Copies from pinned memory to the GPU: {measured.copy_gb_per_s:g} GB/s, {images:,.0f} images/s in fp32."
        )
    most = measured.rates[-1]
    if most.workers > 1 and most.samples_per_s < 1.1 * measured.samples_per_worker_second:
        notes.append("Workers hardly help: other work runs on this machine. Measure again when it is idle.")
    if out is not None:
        notes += [
            f"Written to {out}.",
            f"Next: epochcast predict resnet50 --gpu T4 --workers 4 --loader {shlex.quote(str(out))}",
        ]
    return notes
