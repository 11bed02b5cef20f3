"""`epochcast profile`: measure the local machine or its loading of images, or list what it has for measuring."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.data import push_table
from epochcast.profiling import HOW_LONG, ProfileRequest, default_words, request_for, run_profile
from epochcast.tables import (
    Format,
    Record,
    counted,
    print_as,
    print_notes,
    print_records,
    print_table,
    table_columns,
)
from predictor.answers.notes import duration, number
from predictor.catalogue.devices import is_cpu

if TYPE_CHECKING:
    from predictor.measurements.inputs import InputMeasurement
    from proxy_cnns.configuration import Configuration
    from proxy_cnns.jobs import Progress, Request
    from proxy_cnns.runs import Outcome

app = typer.Typer(
    help="Measure this machine: operators, proxy CNNs, whole CNNs.", invoke_without_command=True
)

_ANY_CNN, _USUAL_BATCH_SIZE = "resnet50", 64


@app.callback()
@o.with_options(ProfileRequest, answer="profile")
def profile_command(
    context: typer.Context,
    out: Path | None = o.option(
        "Measurement table to write, .csv, .csv.gz or .parquet; an unfinished one is continued."
    ),
    dry_run: bool = o.option(
        "Print what would be measured, and about how long it takes.",
        default=False,
        flag="--dry-run",
        rich_help_panel=HOW_LONG,
    ),
    push: str | None = o.option(
        "Then send the table to this service, with the key in $EPOCHCAST_API_KEY.", metavar="URL"
    ),
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Measure this machine, and write a table that `predict --measurements` and `fit` use at once."""
    if context.invoked_subcommand is not None:
        return
    from predictor.errors import SchemaError

    if out is None and not dry_run:
        where = "--device cpu" if options.get("device") == "cpu" else "--preset quick"
        message = f"--out is missing. Try: epochcast profile {where} --time-limit 180s --out mine.csv.gz"
        raise SchemaError(message)
    profile_request = ProfileRequest.of(options)
    request, left_out = request_for(profile_request, out or "dry-run.csv")
    unpredicted = _no_prediction(request, on_cpu=profile_request.device == "cpu")
    for sentence in filter(None, (default_words(profile_request), unpredicted)):
        typer.echo(sentence, err=True)
    if dry_run:
        _show_plan(request, left_out, output)
        return
    if push is not None:
        from epochcast.pushing import check_upload

        check_upload(push)
    with shown_progress() as report:
        outcome = run_profile(request, profile_request.scheduler, report)
    _show_outcome(outcome, request, output)
    if outcome.interrupted:
        raise typer.Exit(130)  # as a shell says of what SIGINT ended
    if push is not None and outcome.rows:
        push_table(outcome.out, push)


@app.command("doctor")
@o.with_json
def doctor_command(output: o.OutputFormat = Format.table) -> None:
    """List what this machine has for measuring, what is missing, and how to install it."""
    from epochcast.installation import PACKAGES, shadowed
    from proxy_cnns.doctor import Finding, examine

    hidden = shadowed()
    packages = f"{len(PACKAGES) - len(hidden)} of {len(PACKAGES)} are epochcast's own"
    own = Finding("packages", packages, "every command", " ".join(hidden))
    records = [asdict(finding) for finding in (own, *examine())]
    title = "What this machine has for measuring"
    print_as(output, records, table_columns("profile doctor"), title, Finding.__slots__)


@app.command("input")
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


_EACH_S = 10.0


@contextmanager
def shown_progress() -> "Iterator[Callable[[Progress], None]]":
    """Show what the run reports on stderr: as a bar on a terminal until it ends, elsewhere in a line now and then."""
    if not sys.stderr.isatty():
        last = time.monotonic() - _EACH_S

        def print_line(progress: "Progress") -> None:
            nonlocal last
            if time.monotonic() - last >= _EACH_S:
                last = time.monotonic()
                done = f"{progress.done:,} of {progress.total:,}"
                print(f"{done}, {_left(progress)}: {progress.now}", file=sys.stderr)

        yield print_line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    texts = (TextColumn("{task.fields[left]}"), TextColumn("{task.description}", markup=False))
    columns = (BarColumn(), MofNCompleteColumn(), *texts)
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, left="")

        def report(progress: "Progress") -> None:
            done, total = progress.done, progress.total
            bar.update(task, completed=done, total=total, description=progress.now, left=_left(progress))

        yield report


def _left(progress: "Progress") -> str:
    """In words, whether all is measured then or the time limit ends the run before."""
    left = duration(progress.seconds_left)
    return f"the time limit ends it in {left}" if progress.limited else f"about {left} left"


def _show_plan(request: "Request", left_out: "list[Configuration]", output: Format) -> None:
    from proxy_cnns.estimates import estimated_seconds

    configurations = request.configurations
    records: list[Record] = [
        {"kind": c.subject.kind, "cnn": c.subject.name, "image_size": c.subject.image_size}
        | {"precision": c.mode.precision, "memory_format": c.mode.memory_format, "batch_size": c.batch_size}
        | {"estimated_s": round(estimated_seconds(c), 3)}
        for c in configurations
    ]
    if output is not Format.table:
        print_records(records, output, records[0] if records else ("kind",))
        return
    names = ("kind", "precision", "memory_format", "batch_size")
    groups: dict[tuple[object, ...], Counter[str]] = {}
    for record in records:
        sums = groups.setdefault(tuple(record[name] for name in names), Counter())
        sums["configurations"] += 1
        sums["milliseconds"] += round(1000 * record["estimated_s"])
    rows = [dict(zip(names, key, strict=True)) | dict(sums) for key, sums in groups.items()]
    print_table(
        rows,
        table_columns("profile plan"),
        f"{request.name}: {counted(len(configurations), 'configuration')}",
    )
    total = sum(record["estimated_s"] for record in records) / len(request.devices)
    notes = [f"About {duration(total)} on an H200, in this order; another device takes its own time."]
    if left_out:
        notes.append(f"{len(left_out):,} more are left out: too long, or too large for the memory.")
    operators = (configuration.subject.operator for configuration in configurations)
    if unbuildable := sum(operator is not None and operator.type == "other" for operator in operators):
        from proxy_cnns.configuration import MEASURE_WHOLE

        notes.append(f"Operators of no known type, which will fail: {unbuildable:,}. {MEASURE_WHOLE}")
    if request.budget_s is not None:
        limit = duration(request.budget_s)
        notes.append(f"The time limit ends it after {limit}; the same command then continues it.")
    print_notes(notes)


def _show_outcome(outcome: "Outcome", request: "Request", output: Format) -> None:
    """Print what was measured, and commands that work on the table.

    Operators predict any CNN on a GPU and their own CNN on a CPU; whole CNNs predict themselves on a GPU; other tables
    can only be shown.
    """
    record = asdict(outcome) | {"out": str(outcome.out)}
    if output is not Format.table:
        print_records([record], output, record)
        return
    typer.echo(f"{outcome.out}: {counted(outcome.rows, 'measurement')}, {outcome.new:,} of them new.")
    print_notes(_outcome_notes(outcome))
    if outcome.rows:
        out = _quoted(str(outcome.out))
        steps = [f"Next: epochcast data show {out}"]
        if sentence := _no_prediction(request, on_cpu=is_cpu(outcome.gpu)):
            measures_cnns = any(planned.subject.kind != "operator" for planned in request.configurations)
            steps += [*[f"epochcast explain {out}"] * measures_cnns, sentence]
        else:
            steps.append(_prediction(request, outcome, out))
        typer.echo("\n      ".join(steps))


def _outcome_notes(outcome: "Outcome") -> list[str]:
    disturbed, left, ended, failed = outcome.disturbed, outcome.left, outcome.ended, outcome.failed
    notes = []
    if disturbed:
        notes.append(
            f"{counted(disturbed, 'measurement')} {'was' if disturbed == 1 else 'were'} disturbed by other work on "
            "this machine, which is noted in the rows and widens the intervals of answers: close other programs for "
            "narrower ones."
        )
    if left:
        remaining = f"{left:,} configuration{' is' if left == 1 else 's are'} left"
        notes.append(f"{remaining}: the same command continues where it stopped.")
    if ended:
        notes.append(f"{len(ended)} series ended before the largest batch size: {_first_three(ended)}")
    if failed:
        notes.append(f"{counted(len(failed), 'configuration')} failed: {_first_three(failed)}")
    return notes


def _first_three(lines: tuple[str, ...]) -> str:
    more = f"; and {len(lines) - 3} more (all are in the sidecar)" if len(lines) > 3 else ""
    return f"{'; '.join(line.rstrip('.') for line in lines[:3])}{more}."


def _no_prediction(request: "Request", *, on_cpu: bool) -> str:
    """Say why nothing is predicted from these measurements; empty where something is."""
    kinds = {configuration.subject.kind for configuration in request.configurations}
    if on_cpu and "operator" in kinds and not request.name.startswith("cnn:"):
        return (
            "On a CPU predictions need the operators of the CNN itself: measure them with --preset cnn:NAME."
        )
    if "operator" in kinds or ("target" in kinds and not on_cpu):
        return ""
    if kinds == {"proxy"}:
        return "Time CNNs beside them, with --preset targets:vgg_cifar@32, then epochcast fit --method proxy-times."
    return "Predictions need operators, not whole CNNs of a CPU: measure some with --preset cnn:NAME."


def _prediction(request: "Request", outcome: "Outcome", out: str) -> str:
    """Ask about the CNN that was measured, in the mode and at a batch size that were measured."""
    measured = [planned for planned in request.configurations if planned.subject.kind != "all_reduce"]
    mode = measured[0].mode
    sizes = {configuration.batch_size for configuration in measured}
    size = _USUAL_BATCH_SIZE if _USUAL_BATCH_SIZE in sizes else measured[0].batch_size
    words = ["epochcast predict", _cnn(request), f"--gpu {_quoted(outcome.gpu)}"]
    words += [f"--framework {mode.framework}"] * (mode.framework != "pytorch")
    words += [f"--precision {mode.precision}"]
    words += [f"--memory-format {mode.memory_format}"] * (mode.memory_format != "nchw")
    words += [f"--capture {mode.capture}"] * (mode.capture != "eager") + ["--autotune"] * mode.autotune
    return " ".join([*words, f"--batch-size {size}", f"--measurements {out}"])


def _cnn(request: "Request") -> str:
    """The CNN of ``cnn:`` or the first of ``targets:``; of a preset with whole CNNs its first, else any."""
    from proxy_cnns.user_cnns import names_a_file

    _, _, texts = request.name.partition(":")
    text = texts.split(",")[0].strip()
    if not text:
        subjects = (configuration.subject for configuration in request.configurations)
        cnn = next((subject for subject in subjects if subject.kind == "target"), None)
        text = _ANY_CNN if cnn is None else f"{cnn.name}@{cnn.image_size}"
    name, at, size = text.rpartition("@")
    has_size = at and size.isdecimal() and not names_a_file(text)
    return f"{_quoted(name)} --image-size {size}" if has_size else _quoted(text)


def _quoted(text: str) -> str:
    """Text quoted as one word of a shell; in double quotes if that is enough."""
    quoted = shlex.quote(text)
    return quoted if quoted == text or set(text) & set('"$`\\!') else f'"{text}"'
