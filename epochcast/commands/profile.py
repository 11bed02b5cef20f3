"""`epochcast profile`: measure the local machine, or list what it has for measuring."""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epochcast.commands import options as o
from epochcast.commands.data import push_table
from epochcast.commands.profile_input import input_command
from epochcast.profiling import HOW_LONG, ProfileRequest, default_words, request_for, run_profile
from epochcast.progress import shown_progress
from epochcast.tables import (
    Column,
    Format,
    Record,
    counted,
    print_as,
    print_notes,
    print_records,
    print_table,
)
from predictor.answers.notes import duration
from predictor.catalogue.devices import is_cpu

if TYPE_CHECKING:
    from proxy_cnns.configuration import Configuration
    from proxy_cnns.jobs import Request
    from proxy_cnns.runs import Outcome

app = typer.Typer(
    help="Measure this machine: operators, proxy CNNs, whole CNNs.", invoke_without_command=True
)

_ANY_CNN = "resnet50"
_USUAL_BATCH_SIZE = 64


@app.callback()
@o.with_options(ProfileRequest, answer="profile")
@o.with_json
def profile_command(
    context: typer.Context,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Measurement table to write, .csv, .csv.gz or .parquet; an unfinished one is continued.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print what would be measured, and about how long it takes.",
            rich_help_panel=HOW_LONG,
        ),
    ] = False,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Then send the table to this service, with the key in $EPOCHCAST_API_KEY.",
            show_default=False,
        ),
    ] = None,
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
        raise SchemaError(
            f"--out is missing. Try: epochcast profile {where} --time-limit 180s --out mine.csv.gz"
        )
    profile_request = ProfileRequest.of(options)
    request, left_out = request_for(profile_request, out or "dry-run.csv")
    for sentence in (
        default_words(profile_request),
        _no_prediction(request, on_cpu=profile_request.device == "cpu"),
    ):
        if sentence:
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
    columns = [
        Column("what", lambda r: r["what"], left=True),
        Column("found", lambda r: r["found"] or "missing", left=True),
        Column("for", lambda r: r["purpose"], left=True, rank=2),
        Column("next step", lambda r: r["next_step"], left=True, rank=1),
    ]
    print_as(output, records, columns, "What this machine has for measuring", Finding.__slots__)


app.command("input")(input_command)


def _show_plan(request: "Request", left_out: "list[Configuration]", output: Format) -> None:
    from proxy_cnns.estimates import estimated_seconds

    configurations = request.configurations
    records: list[Record] = [
        {
            "kind": configuration.subject.kind,
            "cnn": configuration.subject.name,
            "image_size": configuration.subject.image_size,
            "precision": configuration.mode.precision,
            "memory_format": configuration.mode.memory_format,
            "batch_size": configuration.batch_size,
            "estimated_s": round(estimated_seconds(configuration), 3),
        }
        for configuration in configurations
    ]
    if output is not Format.table:
        print_records(records, output, records[0] if records else ("kind",))
        return
    total = sum(record["estimated_s"] for record in records) / len(request.devices)
    print_table(
        _summed(records), _plan_columns(), f"{request.name}: {counted(len(configurations), 'configuration')}"
    )
    notes = [f"About {duration(total)} on an H200, in this order; another device takes its own time."]
    if left_out:
        notes.append(f"{len(left_out):,} more are left out: too long, or too large for the memory.")
    notes += _unrunnable(configurations)
    if request.budget_s is not None:
        notes.append(
            f"The time limit ends it after {duration(request.budget_s)}; the same command then continues it."
        )
    print_notes(notes)


def _unrunnable(configurations: "Sequence[Configuration]") -> list[str]:
    """Note on operators that no framework can build from a layer table."""
    n = sum(
        configuration.subject.operator is not None and configuration.subject.operator.type == "other"
        for configuration in configurations
    )
    if not n:
        return []
    from proxy_cnns.configuration import MEASURE_WHOLE

    return [f"Operators of no known type, which will fail: {n:,}. {MEASURE_WHOLE}"]


def _summed(records: list[Record]) -> list[Record]:
    names = ("kind", "precision", "memory_format", "batch_size")
    groups: dict[tuple[object, ...], Counter[str]] = {}
    for record in records:
        counted = groups.setdefault(tuple(record[name] for name in names), Counter())
        counted["configurations"] += 1
        counted["milliseconds"] += round(1000 * record["estimated_s"])
    return [dict(zip(names, key, strict=True)) | dict(counted) for key, counted in groups.items()]


def _plan_columns() -> list[Column]:
    return [
        Column("kind", lambda r: r["kind"], left=True),
        Column("precision", lambda r: r["precision"], left=True),
        Column("memory format", lambda r: r["memory_format"], left=True),
        Column("batch", lambda r: str(r["batch_size"])),
        Column("configurations", lambda r: f"{r['configurations']:,}"),
        Column("estimate", lambda r: duration(r["milliseconds"] / 1000)),
    ]


def _show_outcome(outcome: "Outcome", request: "Request", output: Format) -> None:
    record = asdict(outcome) | {"out": str(outcome.out)}
    if output is not Format.table:
        print_records([record], output, record)
        return
    typer.echo(f"{outcome.out}: {counted(outcome.rows, 'measurement')}, {outcome.new:,} of them new.")
    print_notes(_outcome_notes(outcome))
    if outcome.rows:
        first, *next_steps = _next_steps(request, outcome)
        typer.echo("\n      ".join([f"Next: {first}", *next_steps]))


def _outcome_notes(outcome: "Outcome") -> list[str]:
    notes = []
    if outcome.disturbed:
        notes.append(
            f"{counted(outcome.disturbed, 'measurement')} {'was' if outcome.disturbed == 1 else 'were'} disturbed by "
            "other work on this machine, which is noted in the rows and "
            "widens the intervals of answers: close other programs for narrower ones."
        )
    if outcome.left:
        notes.append(
            f"{outcome.left:,} configuration{' is' if outcome.left == 1 else 's are'} left: the same command continues "
            "where it stopped."
        )
    if outcome.ended:
        notes.append(
            f"{len(outcome.ended)} series ended before the largest batch size: {_first_three(outcome.ended)}"
        )
    if outcome.failed:
        notes.append(
            f"{counted(len(outcome.failed), 'configuration')} failed: {_first_three(outcome.failed)}"
        )
    return notes


def _first_three(lines: tuple[str, ...]) -> str:
    more = len(lines) - 3
    return "; ".join(line.rstrip(".") for line in lines[:3]) + (
        f"; and {more} more (all are in the sidecar)." if more > 0 else "."
    )


def _next_steps(request: "Request", outcome: "Outcome") -> list[str]:
    """Commands that work on the table just written, and a sentence where a prediction needs other measurements.

    Operators predict any CNN on a GPU and their own CNN on a CPU; whole CNNs predict
    themselves on a GPU; other tables can only be shown.
    """
    out = _quoted(str(outcome.out))
    steps = [f"epochcast data show {out}"]
    sentence = _no_prediction(request, on_cpu=is_cpu(outcome.gpu))
    if not sentence:
        return [*steps, _prediction(request, outcome, out)]
    explained = any(configuration.subject.kind != "operator" for configuration in request.configurations)
    return [*steps, *[f"epochcast explain {out}"] * explained, sentence]


def _no_prediction(request: "Request", *, on_cpu: bool) -> str:
    """Say why nothing is predicted from these measurements; empty where something is."""
    kinds = {configuration.subject.kind for configuration in request.configurations}
    if on_cpu and "operator" in kinds and not request.name.startswith("cnn:"):
        return (
            "On a CPU predictions need the operators of the CNN itself: measure them with --preset cnn:NAME."
        )
    if "operator" in kinds or ("target" in kinds and not on_cpu):
        return ""
    alone = "whole CNNs of a CPU" if "target" in kinds else "proxy CNNs"
    return f"Predictions need operators, not {alone}: measure some with --preset cnn:NAME."


def _prediction(request: "Request", outcome: "Outcome", out: str) -> str:
    """Ask about the CNN that was measured, in the mode and at a batch size that were measured."""
    measured = [
        configuration
        for configuration in request.configurations
        if configuration.subject.kind != "all_reduce"
    ]
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
        cnn = next(
            (
                configuration.subject
                for configuration in request.configurations
                if configuration.subject.kind == "target"
            ),
            None,
        )
        text = _ANY_CNN if cnn is None else f"{cnn.name}@{cnn.image_size}"
    if names_a_file(text):
        return _quoted(text)
    name, at, size = text.rpartition("@")
    return f"{_quoted(name)} --image-size {size}" if at and size.isdecimal() else _quoted(text)


def _quoted(text: str) -> str:
    """Text quoted as one word of a shell; in double quotes if that is enough."""
    quoted = shlex.quote(text)
    return quoted if quoted == text or set(text) & set('"$`\\!') else f'"{text}"'
