"""`epochcast offer`: what GPUs cost to rent."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, counted, number, print_records, print_table

app = typer.Typer(help="Cloud offers and their prices.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Cloud offers and their prices."""


@app.command("list")
@o.with_json
def list_command(
    gpu: Annotated[str | None, typer.Option("--gpu", "-g", help="Only offers of this GPU.")] = None,
    historic: Annotated[bool, typer.Option("--historic", help="Show the historic offers, too.")] = False,
    offers: o.Offers = None,
    output: o.OutputFormat = Format.table,
) -> None:
    """List what GPUs cost to rent, cheapest first."""
    from predictor.catalogue.devices import find_gpu
    from predictor.catalogue.offers import load_offers

    wanted = None if gpu is None else find_gpu(gpu).name
    chosen = [
        offer
        for offer in load_offers(offers)
        if (historic or not offer.historic) and wanted in (None, offer.gpu)
    ]
    records = sorted(
        (asdict(offer) for offer in chosen), key=lambda r: (r["usd_per_hour"] is None, r["usd_per_hour"])
    )
    if output is not Format.table:
        print_records(records, output, records[0] if records else ())
    elif records:
        print_table(
            records, _columns(), f"{counted(len(records), 'offer')}; US$ per hour of the whole instance"
        )
    else:
        typer.echo(f"No offer of {wanted}. --historic shows old ones; --offers FILE reads your own.")


@app.command("update")
def update_command(
    out: Annotated[
        Path, typer.Option(help="Price file to write, for --offers of the other commands.")
    ] = Path("offers.csv"),
    provider: Annotated[
        list[str] | None, typer.Option(help="Only this provider, as gpuhunt names it; repeat it.")
    ] = None,
) -> None:
    r"""Read today's prices over the network (needs epochcast\[offers]) and write them to a price file."""
    from predictor.catalogue.live_offers import SOURCE, updated_offers
    from predictor.catalogue.offers import write_offers

    found = updated_offers(provider or ())
    write_offers(found.offers, out)
    live = Counter(offer.provider for offer in found.offers if offer.source_url == SOURCE)
    kept = Counter(offer.provider for offer in found.offers if offer.source_url != SOURCE)
    typer.echo(f"Wrote {out}: {_counts(live)} read now" + (f"; {_counts(kept)} as shipped." if kept else "."))
    if found.skipped:
        typer.echo(f"Skipped {sum(found.skipped.values())}, not known here: {_counts(found.skipped)}.")
    typer.echo(f"Use it: epochcast compare resnet50 --dataset imagenet --offers {out}")


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())


def _columns() -> list[Column]:
    return [
        Column("provider", lambda r: r["provider"], left=True),
        Column("instance", lambda r: r["instance"], left=True),
        Column("GPU", lambda r: r["gpu"], left=True),
        Column("GPUs", lambda r: f"{r['gpu_count']:g}"),
        Column("US$/h", lambda r: number(r["usd_per_hour"])),
        Column("spot", lambda r: number(r["spot_usd_per_hour"]), rank=1),
        Column("vCPUs", lambda r: f"{r['vcpus']:g}" if r["vcpus"] else "", rank=3),
        Column("GiB", lambda r: f"{r['memory_gib']:g}" if r["memory_gib"] else "", rank=3),
        Column("region", lambda r: r["region"] or "", left=True, rank=4),
        Column("date", lambda r: str(r["retrieved_on"]), left=True, rank=2),
        Column("historic", lambda r: "historic" if r["historic"] else "", left=True, rank=2),
    ]
