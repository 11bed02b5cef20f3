"""`epochcast diff`: what a change of a CNN costs, between two CNNs or two revisions of a repository."""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_notes, print_records, print_table, table_columns
from predictor.answers.diff import Difference, LayerChange, diff
from predictor.answers.notes import number
from predictor.answers.question import Question
from predictor.errors import OutOfRangeError, SchemaError

_MOST_LAYERS = 8
_BETWEEN = ".."  # of two revisions
_BEFORE = f"The CNN as it was: {o.CNN_HELP}; or two revisions of this repository, such as main..HEAD."
_AFTER = "The CNN as it is; of two revisions, its FILE.py:make_model or layer table."


@o.with_options(Question, answer="predict")
def diff_command(
    before: Annotated[str, typer.Argument(help=_BEFORE, show_default=False)],
    after: Annotated[str, typer.Argument(help=_AFTER, show_default=False)],
    gpu: Annotated[list[str], o.gpu_option()],
    batch_size: list[str] | None = o.BATCH_SIZES,
    fail_over: str | None = o.option(
        "Exit with 1 where the time grows by more than this, such as 5%, or where it does not fit any more."
    ),
    markdown: bool = o.option("Print Markdown, for a comment on a pull request.", default=False),
    output: o.OutputFormat = Format.table,
    *,
    options: dict[str, Any],
) -> None:
    """Say what a change of a CNN costs: time and memory before and after, and the layers that differ."""
    if output is Format.csv or (markdown and output is Format.json):
        raise SchemaError(f"--format {output.value} does not go here. Pass --json or --markdown, or neither.")
    limit = None if fail_over is None else _share(fail_over)
    with tempfile.TemporaryDirectory() as folder:
        cnns = _of_revisions(before, after, Path(folder)) if _BETWEEN in before else (before, after)
        tables = [o.cnn_or_layers(cnn, options) for cnn in cnns]
        questions = [Question.of(table, gpu, batch_size or None, options) for table in tables]
    changes = diff(*questions)
    if output is Format.json:
        print_records([asdict(change) | {"sentence": change.sentence} for change in changes], Format.json, ())
    elif markdown:
        print(_markdown(changes))
    else:
        for position, change in enumerate(changes):
            if position:
                print()
            print_notes([change.sentence], style="bold")
            if change.layers:
                print_table(list(map(asdict, _parts(change))), table_columns("diff"))
    worse = {
        change.gpu
        for change in changes
        if limit is not None
        and (change.ratio > 1 + limit or change.before.fits_in_memory > change.after.fits_in_memory)
    }
    if worse:
        typer.echo(f"Over {fail_over}: {', '.join(sorted(worse))}.", err=True)
        raise typer.Exit(1)


def _share(text: str) -> float:
    """A share from ``5%`` or ``0.05``."""
    try:
        value = float(text.removesuffix("%").strip()) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise SchemaError(f"--fail-over {text!r} is no share. Write 5% or 0.05.") from None
    if not 0 <= value < 100:
        raise OutOfRangeError(f"--fail-over {text!r} lies outside 0 to 100. Write 5% or 0.05.")
    return value


def _of_revisions(revisions: str, cnn: str, folder: Path) -> tuple[str, str]:
    """Layer tables of a CNN in two revisions, each made by a process of its own in a checkout of that revision."""
    names = revisions.split(_BETWEEN)
    tables = []
    for position, name in enumerate(names if len(names) == 2 else ()):
        checkout, table = folder / str(position), folder / f"{position}.csv"
        checkout.mkdir()
        archive = _run(["git", "archive", "--format=tar", name or "HEAD"], Path.cwd())
        _run(["tar", "-x", "-C", str(checkout)], Path.cwd(), archive)
        shown = _run([sys.executable, "-m", "epochcast", "cnn", "show", cnn, "--format", "csv"], checkout)
        table.write_bytes(shown)
        tables.append(str(table))
    if len(tables) != 2:
        raise SchemaError(f"{revisions!r} are no two revisions. Write BEFORE..AFTER, such as main..HEAD.")
    return tables[0], tables[1]


def _run(command: Sequence[str], folder: Path, stdin: bytes | None = None) -> bytes:
    """Standard output of a program; SchemaError with its error output if it fails."""
    done = subprocess.run(command, cwd=folder, input=stdin, capture_output=True, check=False)  # noqa: S603
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().removeprefix("Error: ")
        raise SchemaError(f"{' '.join(command[-5:])}: {words or f'exit code {done.returncode}'}")
    return done.stdout


def _parts(change: Difference) -> list[LayerChange]:
    """The layers that move most, and the rest."""
    shown, hidden = change.layers[:_MOST_LAYERS], change.layers[_MOST_LAYERS:]
    return [*shown, LayerChange.rest([*hidden, change.rest])]


def _markdown(changes: Sequence[Difference]) -> str:
    """A comment for a pull request."""
    lines = [f"| GPU | batch | time | ms | GiB{changes[0].of_all} |", "|---|---|---|---|---|"]
    for change in changes:
        percents = [100 * (ratio - 1) for ratio in (change.ratio, change.low, change.high)]
        ratio_in_words = "{:+.1f} % ({:+.1f} to {:+.1f})".format(*percents)
        times = f"{number(change.before.iteration_time_ms)} -> {number(change.after.iteration_time_ms)}"
        memory = f"{change.before.peak_memory_gib:.2f} -> {change.after.peak_memory_gib:.2f}"
        lines.append(
            f"| {change.gpu}{change.shared} | {change.batch_size:,} | {ratio_in_words} | {times} | {memory} |"
        )
    if changes[0].layers:
        head = ["| layer | count before | count after | ms |", "|---|---|---|---|"]
        lines += ["", f"On {changes[0].gpu}:", "", *head]
        for layer in _parts(changes[0]):
            times = f"{number(layer.before_ms)} -> {number(layer.after_ms)}"
            lines.append(f"| `{layer.layer}` | {layer.count_before} | {layer.count_after} | {times} |")
    return "\n".join(lines)
