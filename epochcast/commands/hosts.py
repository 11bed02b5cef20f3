"""`epochcast hosts`: the catalogue of machines around GPUs."""

from typing import Any

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, print_as, table_columns

app = typer.Typer(help="The catalogue of machines around GPUs.", no_args_is_help=True)


@app.command("list")
@o.with_json
def list_command(output: o.OutputFormat = Format.table) -> None:
    """List the CPUs that --host knows, with their speed and the instances that have them."""
    from predictor.catalogue.hosts import all_hosts

    records = [_record(host) for host in all_hosts()]
    time_in_words = "ms: to enqueue ResNet-18 at 32 px, measured or (by clock) from GHz and year"
    print_as(output, records, table_columns("hosts list"), f"{len(records)} hosts; {time_in_words}")


def _record(host: Any) -> dict[str, Any]:
    speed = host.speed()
    return {
        "host": host.name,
        "kind": host.kind,
        "reference_ms": float(f"{speed.reference_ms:.3g}"),
        "spread": speed.spread,
        "measured": host.measured or None,
        "max_ghz": host.max_ghz,
        "core_year": host.core_year,
        "instances": list(host.instances),
        "basis": host.basis,
        "source_url": host.source_url or None,
        "retrieved_on": host.retrieved_on or None,
    }
