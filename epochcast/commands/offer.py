"""`epochcast offer`: what GPUs cost to rent."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from epochcast.commands import options as o
from epochcast.tables import Column, Format, counted, print_as
from predictor.answers.notes import number

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

    gpu_name = None if gpu is None else find_gpu(gpu).name
    chosen = [
        offer
        for offer in load_offers(offers)
        if (historic or not offer.historic) and gpu_name in (None, offer.gpu)
    ]
    records = sorted(
        (asdict(offer) for offer in chosen), key=lambda r: (r["usd_per_hour"] is None, r["usd_per_hour"])
    )
    if records or output is not Format.table:
        title = f"{counted(len(records), 'offer')}; US$ per hour of the whole instance"
        print_as(output, records, _columns(), title)
    else:
        typer.echo(f"No offer of {gpu_name}. --historic shows old ones; --offers FILE reads your own.")


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

    update = updated_offers(provider or ())
    write_offers(update.offers, out)
    live = Counter(offer.provider for offer in update.offers if offer.source_url == SOURCE)
    kept = Counter(offer.provider for offer in update.offers if offer.source_url != SOURCE)
    typer.echo(f"Wrote {out}: {_counts(live)} read now" + (f"; {_counts(kept)} as shipped." if kept else "."))
    if update.skipped:
        typer.echo(f"Skipped {sum(update.skipped.values())}, not known here: {_counts(update.skipped)}.")
    typer.echo(f"Use it: epochcast compare resnet50 --dataset imagenet --offers {out}")


@app.command("own")
def own_command(
    gpu: Annotated[str, typer.Argument(help="GPU of your machine.", autocompletion=o.complete_gpu)],
    paid: Annotated[float, typer.Option(help="What the machine cost, US$.", min=0)],
    years: Annotated[float, typer.Option(help="Years that it is used.", min=0.01)] = 3.0,
    hours_per_week: Annotated[
        float, typer.Option(help="Hours of a week in which it trains.", min=0.1, max=168)
    ] = 40.0,
    usd_per_kwh: Annotated[float, typer.Option(help="Price of electricity, US$ per kWh.", min=0)] = 0.3,
    watts: Annotated[
        float | None,
        typer.Option(
            help="What the machine draws while it trains.", min=1, show_default="power limit of its GPUs"
        ),
    ] = None,
    gpu_count: Annotated[int, typer.Option("--gpus", help="GPUs in the machine.", min=1)] = 1,
    vcpus: Annotated[float | None, typer.Option(help="Hardware threads of its CPU.", min=1)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Price file to write: the shipped offers and your machine.")
    ] = None,
) -> None:
    """Work out what an hour of a machine of your own costs: its price spread over its hours, and electricity."""
    from predictor.catalogue.devices import find_gpu
    from predictor.catalogue.offers import Offer, load_offers, own_usd_per_hour, write_offers
    from predictor.errors import SchemaError

    device = find_gpu(gpu)
    if watts is None and device.tdp_w is None:
        raise SchemaError(
            f"the power limit of {device.name} is not known. Pass --watts, what the machine draws."
        )
    draws = watts or (device.tdp_w or 0.0) * gpu_count / device.chips_per_card
    machine, electricity = own_usd_per_hour(paid, years, hours_per_week, draws, usd_per_kwh)
    hourly = round(machine + electricity, 3)
    typer.echo(
        f"US$ {hourly:g} an hour: {machine:.3f} for the machine ({paid:,.0f} over {years:g} years of "
        f"{hours_per_week:g} h a week), {electricity:.3f} for {draws:g} W."
    )
    if out is None:
        typer.echo(
            f"Use it: --price {hourly:g}; --out offers.csv writes a price file to compare it with offers."
        )
        return
    own = Offer("own", "machine", device.name, gpu_count, hourly, vcpus=vcpus, retrieved_on=date.today())
    write_offers((own, *load_offers()), out)
    typer.echo(f"Wrote {out}: your machine and the shipped offers. Pass --offers {out}.")


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
        Column("marketplace", lambda r: "marketplace" if r["marketplace"] else "", left=True, rank=2),
    ]
