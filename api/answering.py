"""What the service keeps to answer at once: forecasts of the model that answers, cheapest offers, whole answers.

Made by `api.main`, used by the prediction route; calls the core's memo. All of it belongs to one model: when another is
served, it is begun anew.
"""

import gzip
from collections import OrderedDict

from predictor.forecast_memo import ForecastMemo
from predictor.grid_answer import OfferFinder
from predictor.model import Model
from predictor.offers import Offer

__all__ = ["Answering", "KeptAnswers", "packed"]

_MOST_BYTES = 64 * 2**20
_LONGEST_QUESTION = 16_384
_LEAST_PACKED = 1000
_LEVEL = 4


class KeptAnswers:
    """Answers by the bytes of their questions, packed and not; the ones unused for longest go first."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most, self._bytes = most_bytes, 0
        self._kept: OrderedDict[tuple[bytes, bool], bytes] = OrderedDict()

    def find(self, question: bytes, packed: bool) -> bytes | None:
        """The answer to a question that was asked in these very bytes; in gzip where `packed`."""
        found = self._kept.get((question, packed))
        if found is not None:
            self._kept.move_to_end((question, packed))
        return found

    def keep(self, question: bytes, packed: bool, answer: bytes) -> None:
        """Keep an answer, if it and its question are not too large."""
        size = len(question) + len(answer)
        if len(question) > _LONGEST_QUESTION or size > self._most // 8:
            return
        before = self._kept.pop((question, packed), None)
        self._bytes += size - (len(question) + len(before) if before is not None else 0)
        self._kept[question, packed] = answer
        while self._bytes > self._most:
            (old, _), gone = self._kept.popitem(last=False)
            self._bytes -= len(old) + len(gone)


class Answering:
    """What is kept for one model and these offers."""

    def __init__(self, model: Model, offers: tuple[Offer, ...]) -> None:
        self.model, self.offers = model, offers
        self.memo = ForecastMemo(model)
        self.finder = OfferFinder(offers)
        self.kept = KeptAnswers()

    def of(self, model: Model) -> "Answering":
        """Itself, or a new one where another model answers now."""
        return self if model is self.model else Answering(model, self.offers)


def packed(answer: bytes, accepted: str) -> tuple[bytes, bool]:
    """The answer in gzip where the client takes it and it is worth it, and whether it is."""
    if "gzip" not in accepted or len(answer) < _LEAST_PACKED:
        return answer, False
    return gzip.compress(answer, _LEVEL, mtime=0), True
