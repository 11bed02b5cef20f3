"""What a watched training may cost and how long it may take, and its end where it would cost or take more."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from predictor.answers.notes import duration, usd
from predictor.answers.options import options_of
from predictor.answers.question import Plan
from predictor.errors import SchemaError

STOP, CHECKPOINT = "stop", "checkpoint"


@dataclass(slots=True)
class Limit:
    """A budget in US$ and a deadline in hours or as text such as ``6h``, both of all epochs; None: no limit.

    `on_exceeded` is ``stop``, ``checkpoint`` or a function that takes the last `Watched`. SchemaError for a limit that
    is no positive number, and for another `on_exceeded`.
    """

    budget_usd: float | str | None = None
    deadline: float | str | None = None
    on_exceeded: str | Callable[[Any], object] = STOP
    usd_per_hour: float | None = None
    was_exceeded: bool = field(default=False, init=False)

    _OPTIONS: ClassVar = {"budget_usd": "budget_usd", "deadline": "deadline_h"}

    def __post_init__(self) -> None:
        declared = options_of(Plan)
        for name, option in self._OPTIONS.items():
            if (value := getattr(self, name)) is not None:
                setattr(self, name, replace(declared[option], name=name).checked(value))
        if not callable(self.on_exceeded) and self.on_exceeded not in (STOP, CHECKPOINT):
            raise SchemaError(
                f"on_exceeded {self.on_exceeded!r} is none of stop, checkpoint. Pass one of them, or a function that "
                "takes what was seen."
            )

    def price(self, usd_per_hour: float | None) -> None:
        """Take the price of an hour; SchemaError if it is not known."""
        if usd_per_hour is None:
            raise SchemaError("budget_usd needs a price, and no offer has this GPU. Pass usd_per_hour.")
        self.usd_per_hour = usd_per_hour

    @property
    def seconds(self) -> float | None:
        """Seconds that the run may take, once an hour of a budget has its price; None without a limit."""
        hours = [float(self.deadline)] if self.deadline is not None else []
        if self.budget_usd is not None and self.usd_per_hour:
            hours.append(float(self.budget_usd) / self.usd_per_hour)
        return 3600.0 * min(hours) if hours else None

    def __str__(self) -> str:
        words = []
        if self.budget_usd is not None:
            words.append(f"{usd(float(self.budget_usd))} at {usd(self.usd_per_hour or 0)}/h")
        if self.deadline is not None:
            words.append(duration(3600.0 * float(self.deadline)))
        return " or ".join(words)

    def forecast(self, run_s: float | None) -> str:
        """Say whether a run of `run_s` seconds, None if unknown, ends within the limit; empty without one."""
        if self.seconds is None:
            return ""
        if run_s is None:
            return f"whether it ends within {self} is not known, since the loader has no length"
        if run_s <= self.seconds:
            return f"the run ends within {self}"
        share = f"{100 * self.seconds / run_s:.0f} %"
        end = f"it ends after the last epoch within, at {share} at most"
        if self.on_exceeded != STOP:
            end = f"on_exceeded is called at {share}" if callable(self.on_exceeded) else f"it ends at {share}"
        return f"the run takes {duration(run_s)}, over {self}: {end}"

    def exceeds(self, until_s: float, watched: object, *, epoch_ends: bool) -> bool:
        """Whether the run is to end: it would take longer than its limit until its next look at the time, in seconds.

        ``stop`` waits for the end of an epoch; a function is called with `watched`, once. Processes that train together
        follow the first of them.
        """
        if self.seconds is None or self.was_exceeded or (self.on_exceeded == STOP and not epoch_ends):
            return False
        self.was_exceeded = _of_first_process(until_s > self.seconds)
        if self.was_exceeded and callable(self.on_exceeded):
            self.on_exceeded(watched)
        return self.was_exceeded


def _of_first_process(decision: bool) -> bool:
    """The decision of the first of the processes that train together."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return decision
    decisions = [decision]
    torch.distributed.broadcast_object_list(decisions, src=0)
    return decisions[0]
