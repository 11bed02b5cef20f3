"""`epochcast offer`: what GPUs cost to rent."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated
from warnings import warn

import typer

from epochcast.commands import options as o
from epochcast.tables import Format, counted, print_as, table_columns

app = typer.Typer(help="Cloud offers and their prices.", no_args_is_help=True)

_BILLING = ("least_billed_s", "billed_by_s", "egress_usd_per_gb")


@app.command("list")
@o.with_json
def list_command(
    gpu: str | None = o.option("Only offers of this GPU.", flag="--gpu -g"),
    provider: str | None = o.option("Only these providers (aws,gcp), or all but those with ! (!vast)."),
    historic: bool = o.option("Show the historic offers, too.", default=False, flag="--historic"),
    offers: Path | None = o.OFFERS,
    output: o.OutputFormat = Format.table,
) -> None:
    """List what GPUs cost to rent, cheapest first."""
    from predictor.catalogue.devices import find_gpu
    from predictor.catalogue.offers import load_offers
    from predictor.catalogue.providers import all_providers, chosen_offers

    gpu_name = None if gpu is None else find_gpu(gpu).name
    chosen = chosen_offers(load_offers(offers), provider, None, lambda _: "--provider")
    dated = [offer for offer in chosen if historic or not offer.historic]
    records = [asdict(offer) for offer in dated if gpu_name in (None, offer.gpu)]
    for record in records:
        terms = all_providers().get(record["provider"])
        record |= {name: getattr(terms, name, None) for name in _BILLING}
    records.sort(key=lambda r: (r["usd_per_hour"] is None, r["usd_per_hour"]))
    if records or output is not Format.table:
        title = f"{counted(len(records), 'offer')}; US$ per hour of the whole instance"
        print_as(output, records, table_columns("offer list"), title)
    else:
        typer.echo(f"No offer of {gpu_name}. --historic shows old ones; --offers FILE reads your own.")


@app.command("update")
def update_command(
    out: Path = o.option(
        "Price file to write, for --offers of the other commands.", default=Path("offers.csv")
    ),
    provider: list[str] | None = o.option("Only this provider, as gpuhunt names it; repeat it."),
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
    machine_usd: float | None = o.option("What the machine cost, US$.", min=0),
    years: float = o.option("Years that it is used.", default=3.0, min=0.01),
    hours_per_week: float = o.option("Hours of a week in which it trains.", default=40.0, min=0.1, max=168),
    usd_per_kwh: float = o.option("Price of electricity, US$ per kWh.", default=0.3, min=0),
    watts: float | None = o.option(
        "What the machine draws while it trains.", "power limit of its GPUs", min=1
    ),
    gpu_count: int = o.option("GPUs in the machine.", default=1, flag="--gpus", min=1),
    vcpus: float | None = o.option("Hardware threads of its CPU.", min=1),
    out: Path | None = o.option("Price file to write: the shipped offers and your machine."),
    paid: float | None = o.option("Retired: now --machine-usd.", min=0, hidden=True),
) -> None:
    """Work out what an hour of a machine of your own costs: its price spread over its hours, and electricity."""
    from predictor.catalogue.devices import find_gpu
    from predictor.catalogue.offers import Offer, load_offers, own_usd_per_hour, write_offers
    from predictor.errors import RetiredOptionWarning, SchemaError

    if paid is not None:
        warn(
            RetiredOptionWarning("--paid goes with the next minor version. Write --machine-usd X."),
            stacklevel=2,
        )
    cost_usd = paid if machine_usd is None else machine_usd
    if cost_usd is None:
        raise SchemaError("--machine-usd is missing: what the machine cost, US$.")
    device = find_gpu(gpu)
    if watts is None and device.tdp_w is None:
        message = f"the power limit of {device.name} is not known. Pass --watts, what the machine draws."
        raise SchemaError(message)
    draws = watts or (device.tdp_w or 0.0) * gpu_count / device.chips_per_card
    machine, electricity = own_usd_per_hour(cost_usd, years, hours_per_week, draws, usd_per_kwh)
    hourly = round(machine + electricity, 3)
    typer.echo(
        f"US$ {hourly:g} an hour: {machine:.3f} for the machine ({cost_usd:,.0f} over {years:g} years of "
        f"{hours_per_week:g} h a week), {electricity:.3f} for {draws:g} W."
    )
    if out is None:
        typer.echo(
            f"Use it: --usd-per-hour {hourly:g}; --out offers.csv writes a price file to compare it with offers."
        )
        return
    own = Offer("own", "machine", device.name, gpu_count, hourly, vcpus=vcpus, retrieved_on=date.today())
    write_offers((own, *load_offers()), out)
    typer.echo(f"Wrote {out}: your machine and the shipped offers. Pass --offers {out}.")


def _counts(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items())
