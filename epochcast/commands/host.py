"""`epochcast host`: measure what enqueuing costs on this machine."""

from dataclasses import asdict
from pathlib import Path

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_as, table_columns
from predictor.files import check_replaceable
from predictor.measurements.hosts import HostMeasurement, write_host

_UNSTEADY = 0.1
_UNUSABLE = 0.5


@o.with_json
def host_command(
    framework: list[str] | None = o.option("pytorch or chainer; repeat it.", "all that are installed"),
    device: str | None = o.option("cuda:N, or cpu to leave the GPU out.", "a GPU if there is one"),
    out: Path | None = o.option("JSON file to write, which questions take as --host."),
    output: o.OutputFormat = Format.table,
) -> None:
    """Measure in about ten seconds what enqueuing iterations costs on this machine, per framework and mode."""
    from proxy_cnns.host import measure_host

    if out is not None:
        check_replaceable(out)
    measured = measure_host(framework or (), device)
    unsteady = max(host_time.spread or 0 for host_time in measured.times)
    if out is not None and unsteady <= _UNUSABLE:
        write_host(measured, out)
    records = [asdict(host_time) for host_time in measured.times]
    title, about = f"Enqueuing on {measured.host}", {"host": measured.host, "gpu": measured.gpu}
    print_as(output, records, table_columns("host"), title, notes=_notes(measured, unsteady), **about)
    if unsteady > _UNUSABLE:
        message = (
            f"this machine is too busy: times of seconds apart lie up to {100 * unsteady:.0f} % from their mean, and "
            f"{100 * _UNUSABLE:.0f} % is the limit. End other programs (`top` shows them) and measure again"
        )
        typer.echo(f"Error: {message}{'' if out is None else f'; {out} is not written'}.", err=True)
        raise typer.Exit(1)
    if out is not None:
        typer.echo(f"Wrote {out}.", err=True)


def _notes(measured: HostMeasurement, unsteady: float) -> list[str]:
    notes = []
    if measured.kernel_us is not None:
        notes.append(f"A kernel without work takes {measured.kernel_us:.2f} us to enqueue.")
    if measured.graph_kernel_us is not None:
        notes.append(f"In a replayed graph one follows the other after {measured.graph_kernel_us:.2f} us.")
    if measured.gpu is None:
        notes.append("There is no GPU: iterations on the CPU stand for enqueuing, which tells less of it.")
    if _UNSTEADY < unsteady <= _UNUSABLE:
        notes.append(
            f"This machine is unsteady: times of seconds apart lie up to {100 * unsteady:.0f} % from their mean, and "
            "so do answers by them. Measure again when it is idle."
        )
    return notes
