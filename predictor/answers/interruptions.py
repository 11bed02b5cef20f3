"""Spot machines are taken away: the time that a training is expected to take, with checkpoints, at a stated rate."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictor.answers.question import Plan, named
from predictor.errors import OutOfRangeError

Array = NDArray[np.float64]

NOT_COUNTED = (
    "Spot machines may be taken away; no interruptions are counted, since no rate of them is stated."
)
"""What a comparison by spot prices leaves out where its plan states no rate."""

_LONGEST = 5.0  # times between interruptions that one interval lasts: one in 150 is survived


@dataclass(frozen=True, slots=True)
class Interruptions:
    """Interruptions of a training's machines, any of which stops it; hours as of `expected_h`."""

    interval_h: float
    checkpoint_h: float
    restart_h: float
    between_h: float

    @classmethod
    def of(cls, plan: Plan, nodes: int) -> Interruptions | None:
        """Those of a plan, on this number of machines; None where it states no rate."""
        if plan.interruptions_per_day is None or plan.checkpoint_seconds is None:
            return None
        between_h, checkpoint_h = 24.0 / plan.interruptions_per_day / nodes, plan.checkpoint_seconds / 3600.0
        minutes = plan.checkpoint_minutes
        interval_h = young_interval_h(checkpoint_h, between_h) if minutes is None else minutes / 60.0
        for name, hours in (
            ("checkpoint_minutes", interval_h + checkpoint_h),
            ("setup_minutes", plan.setup_h),
        ):
            if hours > _LONGEST * between_h:
                raise OutOfRangeError(
                    f"{named(name)}: {60 * hours:,.0f} minutes lie between interruptions that come every "
                    f"{60 * between_h:,.0f} on average, so hardly any of them is survived. Pass at most "
                    f"{_LONGEST * 60 * between_h:,.0f}."
                ).about(name)
        return cls(interval_h, checkpoint_h, plan.setup_h, between_h)

    def expected_h(self, work_h: Array, restart_h: float | None = None) -> Array:
        """Expected hours of a training; with another time to restart if one is given."""
        restart_h = self.restart_h if restart_h is None else restart_h
        return expected_h(work_h, self.interval_h, self.checkpoint_h, restart_h, self.between_h)


def young_interval_h(checkpoint_h: float, between_h: float) -> float:
    """Hours of work between checkpoints that lose the least: √(2 x a checkpoint's time x time between interruptions).

    J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17 (9), 1974.

    >>> young_interval_h(checkpoint_h=0.02, between_h=4.0)
    0.4
    """
    return math.sqrt(2.0 * checkpoint_h * between_h)


def expected_h(
    work_h: Array, interval_h: float, checkpoint_h: float, restart_h: float, between_h: float
) -> Array:
    """Expected hours of a training that is interrupted, and goes on from its last checkpoint.

    `work_h` is its hours without interruptions, `interval_h` of them lie between checkpoints, each of which takes
    `checkpoint_h`; shorter trainings write none. An interruption comes at random every `between_h` (exponentially
    distributed) and takes `restart_h`, which may be interrupted, too.

    M e^(R/M) (e^((τ + C)/M) - 1) work / τ: J. T. Daly, A higher order estimate of the optimum checkpoint interval for
    restart dumps, Future Generation Computer Systems 22 (3), 2006. Exact for whole numbers of intervals.
    """
    again = between_h * math.exp(restart_h / between_h)
    segment = again * math.expm1((interval_h + checkpoint_h) / between_h)
    alone = again * np.expm1(np.minimum(work_h, interval_h) / between_h)
    return np.where(work_h <= interval_h, alone, segment * work_h / interval_h)
