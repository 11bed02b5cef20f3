"""What the notes of measured rows say about noise: other work on the machine, and medians known badly.

Called by explain_tables and fitting_layers; calls nothing of ours. The instrument writes these notes (`proxy_cnns`),
tables of others have none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["disturbed_rows", "noise_by_batch_size"]

_DISTURBED = "disturbed:"
_KNOWN_TO = re.compile(r"(\w+) time's median known to (\d+(?:\.\d+)?) %")
_WIDE = 10.0  # %, to either side: what a prediction's interval would hold anyway


def disturbed_rows(rows: pd.DataFrame) -> int:
    """How many rows were measured while something else worked on the machine."""
    return sum(_DISTURBED in note for note in _notes(rows))


def noise_by_batch_size(rows: pd.DataFrame) -> dict[int, tuple[str, ...]]:
    """Reasons to doubt the times of a series of whole CNNs, by batch size; batch sizes without any are left out."""
    notes = _notes(rows)
    disturbed = [_DISTURBED in note for note in notes]
    widths = [_width(note) for note in notes]
    wide = [width > _WIDE for width in widths]
    reasons = {
        f"noise: {sum(disturbed)} of {len(notes)} measurements were disturbed by other work": disturbed,
        f"noise: the time of {sum(wide)} of {len(notes)} measurements is known to no better than {_WIDE:g} %, "
        f"at worst to {max(widths, default=0.0):g} %": wide,
    }
    found: dict[int, tuple[str, ...]] = {}
    for reason, marks in reasons.items():
        for size in dict.fromkeys(rows["batch_size"][marks].tolist()):
            found[int(size)] = (*found.get(int(size), ()), reason)
    return found


def _notes(rows: pd.DataFrame) -> list[str]:
    return rows["notes"].fillna("").astype(str).tolist() if "notes" in rows else [""] * len(rows)


def _width(note: str) -> float:
    """The widest interval of a row's times, in %; the host's time spreads by itself and is left out."""
    return max((float(width) for name, width in _KNOWN_TO.findall(note) if name != "host"), default=0.0)
