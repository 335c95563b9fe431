# SPDX-License-Identifier: Apache-2.0
"""The metric of how many more instances of some flavors fit, for moorage-api."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ..database import StoreUnavailable
from ..errors import SchedulerError
from ..explain import CapacityReport
from ..waiting import Spawner, Task

LOG = logging.getLogger(__name__)

_NAME: Final = "moorage_capacity_instances"
_OPTION: Final = "[moorage] capacity_flavors"
#: Seconds between the end of a computation and the next.
_EVERY_S: Final = 60.0
#: Seconds that `stop` waits for a computation.
_STOP_S: Final = 5.0


class CapacityGauge(Collector):
    """Compute the capacity of flavors in a thread, and export the newest.

    Parameters
    ----------
    names : collection of str
        The names of the flavors.
    compute : callable
        Returns the capacity of those that it finds, one for each name.
    """

    def __init__(
        self,
        names: Collection[str],
        compute: Callable[[Collection[str]], CapacityReport],
        *,
        spawner: Spawner,
        interval_s: float = _EVERY_S,
    ) -> None:
        self._names = tuple(dict.fromkeys(names))
        self._compute = compute
        self._spawner = spawner
        self._interval_s = interval_s
        self._stopping = spawner.event()
        self._task: Task | None = None
        self._report: CapacityReport | None = None
        self._problem = ""

    def start(self) -> None:
        """Start the thread, unless there are no flavors."""
        if self._names:
            self._task = self._spawner.spawn(self._run, name="computing the capacity")

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        if self._task is not None:
            self._task.join(_STOP_S)

    def collect(self) -> Iterable[Metric]:
        """Return the numbers of the last computation; none if it failed."""
        gauge = GaugeMetricFamily(
            _NAME,
            "Instances of each flavor of [moorage] capacity_flavors that fit now if "
            "none of another flavor comes.",
            labels=["flavor", "zone"],
        )
        report = self._report
        for flavor, zone, number in () if report is None else _numbers(report):
            gauge.add_metric([flavor, zone], number)
        return [gauge]

    def refresh(self) -> None:
        """Compute the capacity; log a problem when it begins."""
        problem, report = "", None
        try:
            report = self._compute(self._names)
        except (SchedulerError, StoreUnavailable) as e:
            problem = f"The capacity of {_OPTION} is unknown: {e}"
        except Exception:  # the thread must survive; the next one may succeed
            LOG.exception("Computing the capacity of %s failed; retrying", _OPTION)
        if report is not None:
            found = {each.flavor for each in report.flavors}
            missing = [name for name in self._names if name not in found]
            if missing:
                problem = f"{_OPTION}: no flavor is named {', '.join(missing)}"
        if problem and problem != self._problem:
            LOG.warning("%s", problem)
        self._report, self._problem = report, problem

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.refresh()
            self._stopping.wait(self._interval_s)


def _numbers(report: CapacityReport) -> Iterator[tuple[str, str, int]]:
    """Return flavors, zones and instances, of full zones too."""
    for each in report.flavors:
        of_zones = Counter(dict.fromkeys(report.zones, 0))
        for place in each.places:
            of_zones[place.zone] += place.n_instances
        for zone, number in of_zones.items():
            yield each.flavor, zone, number
