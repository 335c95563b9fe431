# SPDX-License-Identifier: Apache-2.0
"""Repeated runs, and the median and p99 of their times."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

T = TypeVar("T")

#: The cell of a table without a value.
NONE: Final = "-"

#: Explains the cells of all tables.
LEGEND: Final = (
    "Times are median / p99 (nearest rank: the p99 of fewer than 100 runs is the "
    "maximum). A single run has one value."
)


@dataclass(frozen=True, slots=True)
class Plan:
    """How often to measure: `runs` times, or until `budget_s` have passed."""

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
        """Summarize at least one sample; the p99 is that of the nearest rank."""
        ranked = sorted(samples)
        rank = math.ceil(99 * len(ranked) / 100)
        return cls(statistics.median(ranked), ranked[rank - 1], len(ranked))

    def scaled(self, factor: float) -> Percentiles:
        """Return the percentiles of samples multiplied by `factor`."""
        return Percentiles(self.median * factor, self.p99 * factor, self.n_samples)


def format_number(value: float) -> str:
    """Format a number with three significant digits, from 100 on as an integer."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def format_percentiles(times: Percentiles | None) -> str:
    """Format a cell of a table, as LEGEND describes it."""
    if times is None:
        return NONE
    median = format_number(times.median)
    return median if times.n_samples == 1 else f"{median} / {format_number(times.p99)}"


def repeated(plan: Plan, run: Callable[[], T]) -> list[T]:
    """Return the results of the runs, at least one, without those of warm-ups."""
    for _ in range(plan.warm_ups):
        run()
    gc.collect()  # so that garbage of earlier measurements does not count
    ends_at = time.perf_counter() + plan.budget_s
    results = [run()]
    while len(results) < plan.runs and time.perf_counter() < ends_at:
        results.append(run())
    return results


def elapsed_ms(block: Callable[[], object]) -> float:
    """Return the duration of a call."""
    started = time.perf_counter()
    block()
    return (time.perf_counter() - started) * 1000
