# SPDX-License-Identifier: Apache-2.0
"""Medians over several runs. No verdict is ever made of a time."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """How often something is measured: `runs` times, or until `budget_s` is spent."""

    runs: int
    budget_s: float
    warm_ups: int = 1


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


def median(values: Sequence[float]) -> float:
    """Return the middle one."""
    return statistics.median(values)
