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
    is no positive number, for another `on_exceeded`, and for one without a limit.
    """

    budget_usd: float | str | None = None
    deadline: float | str | None = None
    on_exceeded: str | Callable[[Any], object] = STOP
    usd_per_hour: float | None = None
    exceeded_after_s: float | None = field(default=None, init=False)

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
        if self.on_exceeded != STOP and self.budget_usd is None and self.deadline is None:
            raise SchemaError("on_exceeded needs a limit. Pass budget_usd or deadline, too.")

    def price(self, usd_per_hour: float | None, gpu: str | None) -> None:
        """Take the price of an hour; SchemaError if no offer with this GPU gives one, or it is 0."""
        if usd_per_hour is None:
            why = "its GPU is not known" if gpu is None else f"no offer has what this run trains on, {gpu}"
            raise SchemaError(f"budget_usd needs a price, and {why}. Pass usd_per_hour.")
        if usd_per_hour == 0:
            raise SchemaError(
                "budget_usd limits nothing where usd_per_hour is 0. Pass the price of an hour, or a deadline instead."
            )
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
        return " and ".join(words)

    def spent(self, elapsed_s: float) -> str:
        """What `elapsed_s` seconds have taken of each limit, in its unit."""
        words = [usd(elapsed_s * (self.usd_per_hour or 0) / 3600.0)] if self.budget_usd is not None else []
        return " and ".join(words + [duration(elapsed_s)] * (self.deadline is not None))

    def is_passed(self, elapsed_s: float) -> bool:
        """Whether these seconds are more than the run may take."""
        return self.seconds is not None and elapsed_s > self.seconds

    def forecast(self, elapsed_s: float, left_s: float | None, epoch: int, epochs: int) -> str:
        """Say whether the run ends within the limit; empty without one.

        `epoch` of `epochs` is under way or has just ended; `left_s` is None where the length of the run is not
        known, and once the epochs are over.
        """
        if self.seconds is None:
            return ""
        if self.exceeded_after_s is not None:
            what = "on_exceeded was called" if callable(self.on_exceeded) else "the run was to end"
            return f"{what} after {self.spent(self.exceeded_after_s)}, for the limit of {self}"
        stops = self.on_exceeded == STOP
        ends = "on_exceeded is called" if callable(self.on_exceeded) else "it ends"
        if self.is_passed(elapsed_s):
            end = "" if left_s == 0 else f": {ends} {'after this epoch' if stops else 'now'}"
            return f"{self.spent(elapsed_s)} are gone, over {self}{end}"
        if left_s is None:
            why = f"its epochs are over ({epochs} expected)" if epoch > epochs else "its length is not given"
            return f"whether it ends within {self} is not known, since {why}"
        if (run_s := elapsed_s + left_s) <= self.seconds:
            return f"the run ends within {self}"
        share = self.seconds / run_s
        end = f"at {100 * share:.0f} %"
        if stops:
            end = f"after epoch {max(epoch, int(epochs * share))} of {epochs}"
            end += ", which passes it" if int(epochs * share) < epoch else ""
        return f"the run takes {duration(run_s)}, over {self}: {ends} {end}"

    def exceeds(self, elapsed_s: float, more_s: float, watched: object, *, epoch_ends: bool) -> bool:
        """Whether the run is to end: `more_s` seconds, until its next look at the time, would pass its limit.

        ``stop`` waits for the end of an epoch; a function is called with `watched`, once. Processes that train together
        follow the first of them.
        """
        over = self.exceeded_after_s is not None
        if self.seconds is None or over or (self.on_exceeded == STOP and not epoch_ends):
            return False
        if not _of_first_process(self.is_passed(elapsed_s + more_s)):
            return False
        self.exceeded_after_s = elapsed_s
        if callable(self.on_exceeded):
            self.on_exceeded(watched)
        return True


def _of_first_process(decision: bool) -> bool:
    """The decision of the first of the processes that train together."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return decision
    decisions = [decision]
    torch.distributed.broadcast_object_list(decisions, src=0)
    return decisions[0]
