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
from ..periodic import Outage, Periodic
from ..waiting import Spawner

LOG = logging.getLogger(__name__)

_NAME: Final = "moorage_capacity_instances"
_OPTION: Final = "[moorage] capacity_flavors"
#: Seconds between the end of a computation and the next.
_EVERY_S: Final = 60.0
#: Seconds that `stop` waits for a computation.
_STOP_S: Final = 5.0


class CapacityGauge(Collector):
    """Computes the capacity of flavors in a thread, and exports the last result.

    Parameters
    ----------
    names : collection of str
        The names of the flavors.
    compute : callable
        Takes names of flavors; returns the capacity of the flavors that exist.
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
        self._computing = Periodic(
            self.refresh,
            interval_s,
            log=LOG,
            what=f"Computing the capacity of {_OPTION}",
            name="computing the capacity",
            spawner=spawner,
            is_immediate=True,
        )
        self._report: CapacityReport | None = None
        self._problem = Outage(LOG, logs_causes=True)

    def start(self) -> None:
        """Start the thread, unless there are no flavors."""
        if self._names:
            self._computing.start()

    def stop(self) -> None:
        """Stop the thread."""
        self._computing.stop(_STOP_S)

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
        except Exception:
            self._report = None
            raise
        if report is not None:
            existing = {flavor.flavor for flavor in report.flavors}
            missing = [name for name in self._names if name not in existing]
            if missing:
                problem = f"{_OPTION}: no flavor is named {', '.join(missing)}"
        if problem:
            self._problem.fail(problem, "%s", problem)
        else:
            self._problem.end()
        self._report = report


def _numbers(report: CapacityReport) -> Iterator[tuple[str, str, int]]:
    """Yield flavor, zone and number of instances, also for full zones."""
    for flavor in report.flavors:
        n_in_zone = Counter(dict.fromkeys(report.zones, 0))
        for place in flavor.places:
            n_in_zone[place.zone] += place.n_instances
        for zone, number in n_in_zone.items():
            yield flavor.flavor, zone, number
