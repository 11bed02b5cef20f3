"""What a question's GPUs run in: the offer that is rented, and the team that its GPUs form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.answers.question import Question
from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.links import Link, all_links, find_link, usual_link
from predictor.catalogue.offers import Offer, cheapest_offers
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.data_parallel import Team

__all__ = ["Rental", "on_all_gpus", "rentals_of", "team_of"]


@dataclass(frozen=True, slots=True)
class Rental:
    """The cheapest offer with enough GPUs (None: no offer) and the team of GPUs (None: one GPU alone)."""

    offer: Offer | None
    team: Team | None


def rentals_of(question: Question, gpus: Sequence[Gpu]) -> list[Rental]:
    """The offer and the team of each GPU asked for.

    Raises
    ------
    OutOfRangeError
        If they cannot share the mini-batch or the machines evenly. If offers have this GPU, but none has so many, and
        no `link` says how the asker's own are joined.
    SchemaError
        If it is not known what joins them.
    """
    question.check_team()
    prices = question.prices()
    enough = cheapest_offers(prices, question.spot, question.gpus_per_node)
    some = enough if question.gpus_per_node == 1 else cheapest_offers(prices, question.spot)
    rentals = []
    for gpu in gpus:
        if question.n_gpus > 1 and is_cpu(gpu.name):
            raise SchemaError(
                f"n_gpus {question.n_gpus}: {gpu.name} is a CPU. Leave n_gpus out, or name GPUs."
            )
        offer = enough.get(gpu.name)
        if offer is None and gpu.name in some and question.link is None:
            _refuse(question, gpu, prices)
        rentals.append(Rental(offer, team_of(question, gpu, offer, prices)))
    return rentals


def on_all_gpus(question: Question, offer: Offer) -> Question:
    """The question on as many GPUs of one machine of an offer as can share every mini-batch evenly."""
    counts = range(int(offer.gpu_count), 0, -1)
    n_gpus = next((n for n in counts if all(size % n == 0 for size in question.batch_sizes)), 1)
    together = n_gpus > 1
    link, sync_batch_norm = offer.link or None, question.sync_batch_norm and together
    return replace(
        question, n_gpus=n_gpus, nodes=1, link=link if together else None, sync_batch_norm=sync_batch_norm
    )


def team_of(question: Question, gpu: Gpu, offer: Offer | None, prices: Sequence[Offer]) -> Team | None:
    """The team of a question's GPUs on this offer; None for one GPU alone. SchemaError if nothing known joins them."""
    if question.n_gpus == 1:
        return None
    link = _link(question, gpu, offer, prices)
    return Team(question.n_gpus, question.nodes, link, question.sync_batch_norm)


def _link(question: Question, gpu: Gpu, offer: Offer | None, prices: Sequence[Offer]) -> Link:
    if question.link is not None:
        return find_link(question.link)
    if question.nodes > 1:
        known = ", ".join(link.name for link in all_links() if link.joins == "node")
        raise SchemaError(f"nodes {question.nodes}: pass link, what joins the machines, one of {known}.")
    if offer is not None and offer.link:
        return find_link(offer.link, "gpu")
    return usual_link(gpu, prices)


def _refuse(question: Question, gpu: Gpu, prices: Sequence[Offer]) -> None:
    counts = [each.gpu_count for each in prices if each.gpu == gpu.name and not each.historic]
    on = f" on nodes {question.nodes}" if question.nodes > 1 else ""
    raise OutOfRangeError(
        f"n_gpus {question.n_gpus}{on}: no offer of {gpu.name} has more than {max(counts):g} GPUs. Pass fewer, or "
        "nodes and link, or link alone for a machine of your own."
    )
