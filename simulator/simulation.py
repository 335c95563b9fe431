# SPDX-License-Identifier: Apache-2.0
"""One run of a trace on a simulated cloud, and what is measured in it."""

from __future__ import annotations

import dataclasses
import heapq
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.drivers.record import DecisionRecord, Outcome
from ..scheduler.explain.funnel import cause_of
from ..scheduler.hosts import HostBatch
from .cloud import Hosts, SimulatedCloud, lower_bound
from .events import Happened, HostEvent, HostEvents
from .traces import Trace

#: How many times the cloud is measured, at equal intervals.
N_SAMPLES: Final = 400
#: Seconds for which the build of an instance counts as an I/O operation of its host.
BUILD_S: Final = 30.0
#: Flavors by which stranded room is measured: the most frequent ones.
_MAX_FLAVORS: Final = 50

_Floats = npt.NDArray[np.float64]

# The kinds of events; of equal times, the lower one comes first.
_DELETION: Final = 0
_BUILT: Final = 1


@dataclasses.dataclass(slots=True)
class Result:
    """What one run of a trace has measured.

    Attributes
    ----------
    settings, trace : str
        The names of the settings and of the trace.
    n_requests, n_refused : int
        Instances: those requested, and those that got no host, also after the failure
        of their host.
    n_too_large : int
        Instances of the trace that are larger than any host.
    lower_bound : int or None
        The fewest hosts that could hold the trace's peak; None: hosts differ.
    refused_by_flavor, refused_by_cause : mapping
        Refused instances, by the flavor's name and by the step that left no host.
    times_s : sequence of float
        When the cloud was measured; 0 is the trace's beginning.
    series : mapping
        The measures at these times, by name; see `MEASURES`.
    used_at_end : ndarray of shape (n_hosts, 2)
        The used share of CPUs and memory at the end, of each host in service that has
        any.
    happened : sequence of Happened
        What became of hosts that failed, were drained or added.
    n_moves, moved_gib : int, float
        The instances that were moved to empty hosts, and their memory.
    elapsed_s : float
        Real time; the only value that differs between two runs.
    """

    settings: str
    trace: str
    seed: int
    n_hosts: int
    lower_bound: int | None
    n_requests: int = 0
    n_refused: int = 0
    n_too_large: int = 0
    refused_by_flavor: Counter[str] = dataclasses.field(default_factory=Counter)
    refused_by_cause: Counter[str] = dataclasses.field(default_factory=Counter)
    times_s: list[float] = dataclasses.field(default_factory=list)
    series: dict[str, list[float]] = dataclasses.field(
        default_factory=lambda: {name: [] for name in MEASURES}
    )
    used_at_end: _Floats = dataclasses.field(default_factory=lambda: np.zeros((0, 2)))
    happened: list[Happened] = dataclasses.field(default_factory=list)
    n_moves: int = 0
    moved_gib: float = 0.0
    elapsed_s: float = 0.0

    def refuse(
        self, record: DecisionRecord, spec: RequestSpec, n_instances: int
    ) -> None:
        """Count instances that got no host."""
        self.n_refused += n_instances
        self.refused_by_flavor[spec.flavor.name] += n_instances
        self.refused_by_cause[cause_of(record)] += n_instances

    def add(self, happened: Happened) -> None:
        """Count what became of an event of hosts."""
        self.happened.append(happened)
        for record, spec in happened.refused:
            self.refuse(record, spec, 1)

    def summary(self) -> dict[str, float]:
        """Return the run's figures by name: counts, and means over the trace's time."""
        fills = np.sort(self.used_at_end.max(axis=1, initial=0.0))
        decile = max(1, len(fills) // 10)
        return {
            "refused": float(self.n_refused),
            **{
                name: float(np.mean(values)) if values else math.nan
                for name, values in self.series.items()
                if name not in ("refused", "instances")
            },
            "decile_gap": float(fills[-decile:].mean() - fills[:decile].mean())
            if len(fills)
            else 0.0,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the run as plain data."""
        return {
            "settings": self.settings,
            "trace": self.trace,
            "seed": self.seed,
            "hosts": self.n_hosts,
            "lower_bound": self.lower_bound,
            "requests": self.n_requests,
            "too_large": self.n_too_large,
            "moves": self.n_moves,
            "moved_gib": self.moved_gib,
            "summary": self.summary(),
            "refused_by_flavor": dict(self.refused_by_flavor.most_common()),
            "refused_by_cause": dict(self.refused_by_cause.most_common()),
            "events": [one.to_dict() for one in self.happened],
            "times_s": self.times_s,
            "series": self.series,
            "used_at_end": self.used_at_end.round(6).tolist(),
            "decisions_per_s": self.n_requests / max(self.elapsed_s, 1e-9),
        }


#: What is measured, by name, with its meaning.
MEASURES: Final[Mapping[str, str]] = {
    "instances": "instances",
    "refused": "instances refused so far",
    "vcpus_used": "used share of CPUs",
    "memory_used": "used share of memory",
    "empty_hosts": "share of hosts without an instance",
    "density": "used share of the fuller resource, of hosts in use",
    "stranded_vcpus": "share of CPUs free where a flavor does not fit",
    "stranded_memory": "share of memory free where a flavor does not fit",
    "devices": "PCI devices of instances",
    "room_for_largest": "instances of the largest flavor that would fit",
}


class _Meter:
    """Measures the hosts of a cloud that are in service, by the flavors of a trace."""

    def __init__(self, cloud: SimulatedCloud, trace: Trace) -> None:
        self._cloud = cloud
        amounts = trace.amounts()
        hosts = cloud.table.batch()
        total = _total(hosts)
        disk_gb = hosts.total_usable_disk_gb * hosts.disk_allocation_ratio
        sizes, counts = np.unique(amounts, axis=0, return_counts=True)
        holds = (np.column_stack([total, disk_gb])[:, None] >= sizes).all(axis=2)
        self.n_too_large = int(counts[~holds.any(axis=0)].sum())
        # Without those of bare metal, which need a whole node.
        amounts = amounts[amounts.any(axis=1), :2]
        flavors, counts = np.unique(amounts, axis=0, return_counts=True)
        frequent = np.argsort(-counts, kind="stable")[:_MAX_FLAVORS]
        self._flavors = flavors[frequent]
        self._shares = counts[frequent] / counts[frequent].sum()
        largest_host = np.maximum(total.max(axis=0), 1)
        shares_of_host = (flavors / largest_host).max(axis=1)
        self._largest = (
            flavors[int(np.argmax(shares_of_host))]
            if len(flavors)
            else np.full(2, np.inf)
        )

    def used_shares(self) -> _Floats:
        """Return the used shares of CPUs and memory of hosts that have any, (n, 2)."""
        hosts = self._cloud.hosts_in_service()
        total = _total(hosts)
        shares: _Floats = _used(hosts) / np.maximum(total, 1)
        return shares[total.any(axis=1)]

    def measure(self) -> dict[str, float]:
        """Return the measures of hosts, by name."""
        hosts = self._cloud.hosts_in_service()
        used, total = _used(hosts), _total(hosts)
        free = np.maximum(total - used, 0)
        sums = np.maximum(total.sum(axis=0), 1)
        in_use = hosts.num_instances > 0
        fuller = (used / np.maximum(total, 1)).max(axis=1)
        measured = in_use & total.any(axis=1)
        # What FGD (Weng et al., ATC 2023) calls fragmentation: the free amounts on the
        # hosts where a flavor does not fit, as the mean over the flavors' mix.
        vcpus, memory_mb = self._flavors.T[..., None]
        is_too_full = (free[:, 0] < vcpus) | (free[:, 1] < memory_mb)
        stranded = self._shares @ (is_too_full.astype(float) @ free)
        fitting = np.floor(free / np.maximum(self._largest, 1)).min(axis=1)
        return {
            "vcpus_used": float(used[:, 0].sum() / sums[0]),
            "memory_used": float(used[:, 1].sum() / sums[1]),
            "empty_hosts": float(1 - in_use.mean()) if len(hosts) else 0.0,
            "density": float(fuller[measured].mean()) if measured.any() else 0.0,
            "stranded_vcpus": float(stranded[0] / sums[0]),
            "stranded_memory": float(stranded[1] / sums[1]),
            "room_for_largest": float(fitting.sum()),
        }


def _total(hosts: HostBatch) -> _Floats:
    """Return CPUs and memory of each host, with overcommitment, shape (n_hosts, 2)."""
    cpus = hosts.vcpus_total * hosts.cpu_allocation_ratio
    memory_mb = hosts.total_usable_ram_mb * hosts.ram_allocation_ratio
    return np.stack([cpus, memory_mb], axis=1)


def _used(hosts: HostBatch) -> _Floats:
    """Return used CPUs and memory of each host, shape (n_hosts, 2).

    0 of what a host has none of: a node of bare metal uses the sizes of its flavor.
    """
    used_mb = hosts.total_usable_ram_mb - hosts.free_ram_mb
    used = np.stack([hosts.vcpus_used, used_mb], axis=1).astype(float)
    used[_total(hosts) <= 0] = 0
    return used


def _defragment(
    cloud: SimulatedCloud,
    n_placed: int,
    n_new: int,
    n_moved: int,
    every: int | None,
    max_moves: int | None,
) -> tuple[int, int]:
    """Empty hosts if the newest of all placed instances complete the next `every`.

    Returns
    -------
    n_moves, memory_mb : int
    """
    if not every or n_placed % every >= n_new:
        return 0, 0
    allowed = n_placed // every * (max_moves or max(1, every // 100)) - n_moved
    return cloud.defragment(allowed) if allowed > 0 else (0, 0)


def simulate(  # noqa: PLR0913 - most by name
    conf: cfg.ConfigOpts,
    hosts: Hosts,
    trace: Trace,
    *,
    settings: str = "",
    seed: int = 0,
    events: Sequence[HostEvent] = (),
    stops_at_refusal: bool = False,
    defragment_every: int | None = None,
    max_moves: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Result:
    """Run a trace on hosts with the settings of `conf`.

    Virtual time passes as in the trace. Of equal times, deletions come first, then ends
    of builds, then events of hosts, then requests in the trace's order.

    Parameters
    ----------
    events : sequence of HostEvent
        In the order of their times. Those after the last request happen, too.
    stops_at_refusal : bool
        Whether to end with the first instance that gets no host.
    defragment_every : int, optional
        After each so many instances that were placed, the moves are done that empty the
        most hosts.
    max_moves : int, optional
        At most so many each time, and those that earlier times did not need; by default
        one for each 100 instances.
    progress : callable, optional
        Takes the number of instances that were requested since its last call.

    Raises
    ------
    ConfigurationError, NoProviders, UnreadableView
        As of `SimulatedCloud`.
    EventsError
        An event names a host that does not exist.
    SchedulerError
        A plugin failed.
    """
    began = time.perf_counter()
    cloud = SimulatedCloud(conf, hosts, seed)
    peak = trace.peak().tolist()
    result = Result(
        settings, trace.name, seed, len(cloud.table), lower_bound(peak, hosts)
    )
    meter = _Meter(cloud, trace)
    result.n_too_large = meter.n_too_large
    #: Times, kinds and UUIDs of deletions and of ends of builds.
    ends: list[tuple[float, int, str]] = []
    host_events = HostEvents(cloud, trace.units, events, seed)
    first_s, last_s = max(0.0, trace.arrivals[0]), trace.arrivals[-1]
    sample_times = np.linspace(first_s, max(first_s, last_s), N_SAMPLES).tolist()

    def advance(until: float) -> None:
        """Let what is due happen, and measure, up to a time."""
        measures: dict[str, float] = {}  # since the last change
        while True:
            end_s = ends[0][0] if ends else math.inf
            n_measured = len(result.times_s)
            sample_s = sample_times[n_measured] if n_measured < N_SAMPLES else math.inf
            event_s = host_events.next_s
            if min(end_s, event_s, sample_s) > until:
                break
            if sample_s < min(end_s, event_s):
                result.times_s.append(sample_s)
                measures = measures or {
                    **meter.measure(),
                    "instances": cloud.n_instances,
                    "devices": cloud.n_devices,
                    "refused": result.n_refused,
                }
                for name, value in measures.items():
                    result.series[name].append(value)
                continue
            measures = {}
            if event_s < end_s:
                cloud.now = event_s
                result.add(host_events.happen())
            else:
                cloud.now, kind, uuid = heapq.heappop(ends)
                if kind == _DELETION:
                    cloud.delete(uuid)
                else:
                    cloud.end_build(uuid)
        cloud.now = until

    arrivals, departures = trace.arrivals.tolist(), trace.departures.tolist()
    spec_of = trace.spec_of.tolist()
    row = n_placed = 0
    while row < len(trace):
        spec = trace.specs[spec_of[row]]
        rows = range(row, row + spec.num_instances)
        row = rows.stop
        advance(arrivals[rows.start])
        uuids = [trace.uuids[i] for i in rows]
        record = cloud.place(spec, uuids)
        result.n_requests += len(uuids)
        if progress is not None:
            progress(len(uuids))
        if record.outcome is Outcome.SELECTED:
            for i, uuid in zip(rows, uuids, strict=True):
                if math.isfinite(departures[i]):
                    heapq.heappush(ends, (departures[i], _DELETION, uuid))
                # The population of the beginning was not built all at once.
                built_s = cloud.now + (BUILD_S if cloud.now >= 0 else 0.0)
                heapq.heappush(ends, (built_s, _BUILT, uuid))
            n_placed += len(uuids)
            n_moves, memory_mb = _defragment(
                cloud, n_placed, len(uuids), result.n_moves, defragment_every, max_moves
            )
            result.n_moves += n_moves
            result.moved_gib += memory_mb / trace.units.memory_per_gib
            continue
        result.refuse(record, spec, len(uuids))
        if stops_at_refusal:
            break
    else:
        advance(max(sample_times[-1], *(event.at_s for event in events), 0.0))
    result.used_at_end = meter.used_shares()
    result.elapsed_s = time.perf_counter() - began
    return result


def fewest_hosts(
    run: Callable[[int], Result], bound: int, *, max_factor: float = 4.0
) -> int | None:
    """Return the fewest hosts without a refusal, by bisection.

    More hosts are taken to never cause a refusal; with random choice among hosts this
    is not certain, so that the number may be a little too high.

    Parameters
    ----------
    run : callable
        Takes a number of hosts, and returns the result of a run that may stop at the
        first refusal.
    bound : int
        The lower bound, where the search begins.
    max_factor : float
        None is returned if a run on this many times the bound refuses an instance.
    """
    low, high = bound - 1, bound
    while run(high).n_refused:
        low = high
        if high >= bound * max_factor:
            return None
        # 2, 4, 8, … % more, up to the limit.
        step = max(1, math.ceil(bound * 0.02), 2 * (high - bound))
        high = min(bound + step, math.ceil(bound * max_factor))
    while high - low > 1:
        middle = (low + high) // 2
        if run(middle).n_refused:
            low = middle
        else:
            high = middle
    return high


def by_flavor(results: Sequence[Result]) -> Counter[str]:
    """Return the refused instances of several runs, by flavor."""
    return sum((result.refused_by_flavor for result in results), Counter())
