# SPDX-License-Identifier: Apache-2.0
"""Several settings on the same requests: what differs, and how certain that is."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from .simulation import MEASURES, Result

#: The confidence of the intervals.
CONFIDENCE: Final = 0.95


class Figure(NamedTuple):
    """How a figure of a summary is shown, and whether more of it is better."""

    text: str
    factor: float
    unit: str
    more_is_better: bool | None

    def shown(self, value: float, form: str = ",.1f") -> str:
        """Return a value as tables have it, without the unit."""
        return format(self.factor * value, form)


#: The figures of a summary, by name, in the order of tables.
FIGURES: Final[Mapping[str, Figure]] = {
    "refused": Figure("instances refused", 1, "", False),
    "empty_hosts": Figure("hosts without an instance", 100, " %", True),
    "density": Figure("hosts in use: use of the fuller resource", 100, " %", True),
    "vcpus_used": Figure("CPUs used", 100, " %", None),
    "memory_used": Figure("memory used", 100, " %", None),
    "stranded_vcpus": Figure("CPUs stranded", 100, " %", False),
    "stranded_memory": Figure("memory stranded", 100, " %", False),
    "devices": Figure("PCI devices in use", 1, "", None),
    "room_for_largest": Figure("room for the largest flavor", 1, "", True),
    "decile_gap": Figure("fullest less emptiest tenth at the end", 100, " %", None),
}


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """How a figure differs from that of the first settings.

    Attributes
    ----------
    mean : float
        The mean over all pairs of runs with the same trace and seed.
    margin : float
        Half the width of the 95 % confidence interval (Student's t); NaN for one pair.
    """

    mean: float
    margin: float

    @property
    def is_certain(self) -> bool:
        """Whether the interval excludes 0."""
        return abs(self.mean) > self.margin

    def to_dict(self) -> dict[str, Any]:
        """Return mean and margin; the margin of one pair is None."""
        margin = None if math.isnan(self.margin) else self.margin
        return {"mean": self.mean, "margin": margin}


class Comparison:
    """The runs of several settings on the same traces with the same seeds.

    Parameters
    ----------
    runs : mapping
        The results by settings; those of each settings are of the same traces and
        seeds, in the same order. The first settings are those that the others are
        compared with.
    fewest : mapping
        By settings: for each trace, the fewest hosts without a refusal, and the lower
        bound; the former is None if no number of hosts that was tried is enough.
    """

    def __init__(
        self,
        runs: Mapping[str, Sequence[Result]],
        fewest: Mapping[str, Mapping[str, tuple[int | None, int]]] | None = None,
    ) -> None:
        self.runs = runs
        self._summaries = {
            settings: [run.summary() for run in results]
            for settings, results in runs.items()
        }
        self.fewest = fewest or {}
        self.base = next(iter(runs))

    @property
    def figures(self) -> Mapping[str, Figure]:
        """The figures of tables: without devices, if no instance has any."""
        summaries = itertools.chain.from_iterable(self._summaries.values())
        if any(summary["devices"] for summary in summaries):
            return FIGURES
        return {name: figure for name, figure in FIGURES.items() if name != "devices"}

    def mean(self, settings: str, figure: str) -> float:
        """Return the mean of a figure over the runs of some settings."""
        return float(np.mean([s[figure] for s in self._summaries[settings]]))

    def difference(self, settings: str, figure: str) -> Difference:
        """Return how a figure of some settings differs from that of the first ones."""
        summaries, base = self._summaries[settings], self._summaries[self.base]
        pairs = zip(summaries, base, strict=True)
        values = [summary[figure] - first[figure] for summary, first in pairs]
        return Difference(float(np.mean(values)), _margin(values))

    def margin(self, settings: str, figure: str) -> float:
        """Return half the interval of a figure's mean over the runs of some settings.

        NaN for one run.
        """
        return _margin([s[figure] for s in self._summaries[settings]])

    def shown(self, settings: str, figure: str) -> str:
        """Return a figure's mean, and how it differs from that of the first settings.

        Such as ``28.9 % (+23.8 ± 0.5)``.
        """
        of = FIGURES[figure]
        text = f"{of.shown(self.mean(settings, figure))}{of.unit}"
        if settings == self.base:
            return text
        difference = self.difference(settings, figure)
        text += f" ({of.shown(difference.mean, '+,.1f')}"
        if not math.isnan(difference.margin):
            text += f" ± {of.shown(difference.margin)}"
        return f"{text})"

    def to_dict(self) -> dict[str, Any]:
        """Return all runs, and the differences, as plain data."""
        return {
            "runs": [run.to_dict() for runs in self.runs.values() for run in runs],
            "differences": {
                settings: {
                    figure: self.difference(settings, figure).to_dict()
                    for figure in FIGURES
                }
                for settings in self.runs
                if settings != self.base
            },
            "fewest_hosts": {
                settings: {
                    trace: {"hosts": hosts, "lower_bound": bound}
                    for trace, (hosts, bound) in by_trace.items()
                }
                for settings, by_trace in self.fewest.items()
            },
        }

    def to_csv(self) -> str:
        """Return the measures over time: a line for each run and time."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["settings", "trace", "seed", "time_s", *MEASURES])
        for runs in self.runs.values():
            for run in runs:
                columns = (run.series[name] for name in MEASURES)
                for time_s, *values in zip(run.times_s, *columns, strict=True):
                    writer.writerow(
                        [run.settings, run.trace, run.seed, time_s, *values]
                    )
        return text.getvalue()


def _margin(values: Sequence[float]) -> float:
    """Return half the confidence interval of a mean (Student's t); NaN for one."""
    if len(values) < 2:
        return math.nan
    from scipy import stats

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * error
