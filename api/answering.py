"""What the service keeps to answer at once: forecasts of the model that answers, texts of answers, cheapest offers.

All of it belongs to one model: when another is served, it is begun anew.
"""

import gzip
from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from predictor.answers.forecast_memo import ForecastMemo
from predictor.answers.grid_answer import OfferFinder

from api.packing import GZIP_LEVEL, LEAST_PACKED
from predictor.catalogue.offers import Offer
from predictor.models.served import Model

if TYPE_CHECKING:
    from api.predicting import Forecast

__all__ = ["Answering", "Kept", "packed"]

_MOST_BYTES = 64 * 2**20
V = TypeVar("V")


class Kept(Generic[V]):
    """Values by key up to a number of bytes; those unused for longest go first. Belongs to one event loop."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()

    def find(self, key: Hashable) -> V | None:
        """The value, if it is kept."""
        found = self._kept.get(key)
        if found is None:
            return None
        self._kept.move_to_end(key)
        return found[0]

    def keep(self, key: Hashable, value: V, size: int) -> None:
        """Keep a value of so many bytes, key included, unless it takes an eighth of all room."""
        if size > self._most // 8:
            return
        self._bytes += size - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = (value, size)
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1][1]


class Answering:
    """What is kept for one model and these offers."""

    def __init__(self, model: Model, offers: tuple[Offer, ...]) -> None:
        self.model, self.offers = model, offers
        self.memo = ForecastMemo(model)
        self.finder = OfferFinder(offers)
        self.prepared: Kept[Forecast] = Kept()
        """By what a question says apart from epochs."""
        self.answers: Kept[bytes] = Kept()
        """Whole answers, by the bytes of the question and whether gzip is accepted."""

    def of(self, model: Model) -> "Answering":
        """Itself, or a new one where another model answers now."""
        return self if model is self.model else Answering(model, self.offers)


def packed(answer: bytes, accepted: str) -> bytes:
    """The answer, in gzip where the client takes it and it is worth it."""
    if "gzip" not in accepted or len(answer) < LEAST_PACKED:
        return answer
    return gzip.compress(answer, GZIP_LEVEL, mtime=0)
