# SPDX-License-Identifier: Apache-2.0
"""Repeated runs, and the median and the p99 of their times. No time is judged."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

#: Where a table has no figure.
NONE: Final = "-"

#: What the tables' cells show, to be printed once.
LEGEND: Final = (
    "Times are median / p99 (nearest rank: the p99 of fewer than 100 runs is the "
    "highest); the time of a single run stands alone."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How often something is measured: `runs` times, or until `budget_s` is spent."""

    runs: int
    budget_s: float
    warm_ups: int = 1


@dataclass(frozen=True, slots=True)
class Percentiles:
    """The median and the 99th percentile of samples, in the unit of the samples."""

    median: float
    p99: float
    n_samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Percentiles:
        """Summarize one sample or more; the p99 is one of them, by nearest rank."""
        ranked = sorted(samples)
        rank = math.ceil(99 * len(ranked) / 100)
        return cls(statistics.median(ranked), ranked[rank - 1], len(ranked))

    def scaled(self, factor: float) -> Percentiles:
        """Return them for samples that are all `factor` times as great."""
        return Percentiles(self.median * factor, self.p99 * factor, self.n_samples)


def format_number(value: float) -> str:
    """Format a number with three significant digits, or as a whole one from 100 on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_percentiles(times: Percentiles | None) -> str:
    """Format a cell of a table, as LEGEND describes it."""
    if times is None:
        return NONE
    median = format_number(times.median)
    return median if times.n_samples == 1 else f"{median} / {format_number(times.p99)}"


def repeated(plan: Plan, run: Callable[[], T]) -> list[T]:
    """Return what the runs gave, at least one; warm-ups are thrown away."""
    for _ in range(plan.warm_ups):
        run()
    gc.collect()  # garbage of what was measured before is not ours to pay for
    ends_at = time.perf_counter() + plan.budget_s
    results = [run()]
    while len(results) < plan.runs and time.perf_counter() < ends_at:
        results.append(run())
    return results


def elapsed_ms(block: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    block()
    return (time.perf_counter() - started) * 1000
