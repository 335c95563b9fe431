# SPDX-License-Identifier: Apache-2.0
"""The longest holds of the interpreter while decisions run, and where they occur.

One thread decides. Beside it, cached answers of Placement are renewed, hosts report to
the source push, which writes its store, and the garbage collector runs. A watcher that
sleeps a millisecond at a time wakes late if another thread holds the interpreter, as
happens in code in C that does not release it. A hold is as long as the watcher was
late, without the time for which the watcher waited for a CPU, and at most as long as
the thread ran in that time: what other processes of a busy machine take does not count.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final

from rich.console import Console

from moorage.agent.reporter import Reporter
from moorage.objects import Serializer
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.push import PushSource, ReportEndpoint

from .canned import CannedPlacement
from .clouds import Cloud, make_cloud, options
from .decisions import PLACEMENT_STEPS, daemon_gc_thresholds, decide
from .requests import FLAVORS, BenchRequest, of_flavor, plain
from .tables import make_table
from .timing import NONE, Percentiles, format_number

#: Reports a second, in so many casts.
_REPORTS_PER_S: Final = 5_000
_CASTS_PER_S: Final = 100
#: ``[moorage] candidates_max_age``, its default: an answer is renewed as often.
_MAX_AGE_S: Final = 5
_N_FLAVORS: Final = 4
_N_LONGEST: Final = 10
_STACK_DEPTH: Final = 4
_SLEEP_S: Final = 0.001
_MS_PER_S: Final = 1_000
#: A thread that computes in Python releases the interpreter after this time, if another
#: one waits; it is short so that only what cannot be interrupted counts as a hold.
_SWITCH_INTERVAL_S: Final = 0.0005
#: Milliseconds that a hold may take, for clouds of up to so many hosts.
_LIMITS_MS: Final = ((10_000, 5.0), (sys.maxsize, 20.0))
#: How much higher the p99 of decisions may be while reports arrive.
_MAX_FACTOR: Final = 1.5


@dataclass(frozen=True, slots=True)
class Hold:
    """One hold of the interpreter.

    Attributes
    ----------
    collected : str
        The oldest generation that was collected in that time; or `NONE`.
    stack : str
        Where the thread was right after it, the innermost call first.
    """

    ms: float
    thread: str
    collected: str
    stack: str


@dataclass(slots=True)
class Watcher:
    """Notices holds of the interpreter, in a thread of its own."""

    holds: list[Hold] = field(default_factory=list)
    _ends: threading.Event = field(default_factory=threading.Event)
    _clocks: dict[str, int] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Watch while the block runs."""
        interval_s = sys.getswitchinterval()
        thread = threading.Thread(target=self._watch, name="watcher")
        sys.setswitchinterval(_SWITCH_INTERVAL_S)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()
            sys.setswitchinterval(interval_s)
            for clock in self._clocks.values():
                os.close(clock)

    def longest(self) -> list[Hold]:
        """Return the longest holds, the longest first."""
        return sorted(self.holds, key=lambda hold: -hold.ms)[:_N_LONGEST]

    def _watch(self) -> None:
        own_tid = threading.get_native_id()
        while not self._ends.is_set():
            n_before, before = _n_collections(), self._scheduled_s()
            started = time.perf_counter()
            time.sleep(_SLEEP_S)
            elapsed_s = time.perf_counter() - started
            if elapsed_s < 2 * _SLEEP_S:
                continue
            frames = sys._current_frames()  # noqa: SLF001 - documented
            after = self._scheduled_s()
            waited_s = after[own_tid][1] - before[own_tid][1]
            ran_s = {
                tid: ran - before.get(tid, (0.0, 0.0))[0]
                for tid, (ran, _) in after.items()
                if tid != own_tid
            }
            tid = max(ran_s, key=ran_s.__getitem__, default=0)
            threads = {thread.native_id: thread for thread in threading.enumerate()}
            holder = threads.get(tid)
            if holder is None or holder.ident is None:
                continue  # it has ended, or is not Python's
            late_s = elapsed_s - _SLEEP_S - waited_s
            pairs = zip(n_before, _n_collections(), strict=True)
            collected = [i for i, (old, new) in enumerate(pairs) if new > old]
            self.holds.append(
                Hold(
                    min(late_s, ran_s[tid]) * _MS_PER_S,
                    holder.name,
                    f"generation {collected[-1]}" if collected else NONE,
                    _stack(frames.get(holder.ident)),
                )
            )

    def _scheduled_s(self) -> dict[int, tuple[float, float]]:
        """Return how long each thread ran, and waited for a CPU, by its native id."""
        scheduled: dict[int, tuple[float, float]] = {}
        for tid in os.listdir("/proc/self/task"):
            # A thread may have ended, and its id may be another's later.
            with contextlib.suppress(OSError):
                if tid not in self._clocks:
                    path = f"/proc/self/task/{tid}/schedstat"
                    self._clocks[tid] = os.open(path, os.O_RDONLY)
                ran_ns, waited_ns, _ = os.pread(self._clocks[tid], 64, 0).split()
                scheduled[int(tid)] = int(ran_ns) / 1e9, int(waited_ns) / 1e9
        return scheduled


def _n_collections() -> list[int]:
    return [generation["collections"] for generation in gc.get_stats()]


def _stack(frame: FrameType | None) -> str:
    calls = reversed(traceback.extract_stack(frame)) if frame else ()
    return " < ".join(
        f"{call.name} {call.filename.rpartition('/')[2]}:{call.lineno}"
        for call in itertools.islice(calls, _STACK_DEPTH)
    )


@dataclass(frozen=True, slots=True)
class Pauses:
    """What was measured for a number of hosts; times of decisions in milliseconds."""

    n_hosts: int
    alone_ms: Sequence[float]
    beside_ms: Sequence[float]
    reports_per_s: float
    n_renewals: int
    holds: Sequence[Hold]


def measure_pauses(n_hosts: int, seconds: float) -> Pauses:
    """Decide alone, and beside reports and renewals, for some seconds each."""
    cloud = make_cloud(n_hosts)
    requests = [of_flavor(cloud, flavor) for flavor in FLAVORS[:_N_FLAVORS]]
    casts = _casts(cloud, range(1, len(cloud) + 1))
    with _push_scheduler(cloud) as (scheduler, endpoint), daemon_gc_thresholds():
        alone_ms = _own_ms(scheduler, requests, seconds)
        n_before, watcher = scheduler.candidates.query_counts(), Watcher()
        with watcher.running(), _reporting(casts, endpoint) as n_applied:
            began = time.monotonic()
            beside_ms = _own_ms(scheduler, requests, seconds)
            elapsed_s = time.monotonic() - began
            n_reports = n_applied()
        n_after = scheduler.candidates.query_counts()
    n_renewals = sum(n_after[k] - n_before[k] for k in ("sent", "refreshed"))
    per_s = n_reports / elapsed_s
    return Pauses(n_hosts, alone_ms, beside_ms, per_s, n_renewals, watcher.longest())


@contextlib.contextmanager
def _push_scheduler(cloud: Cloud) -> Iterator[tuple[Scheduler, ReportEndpoint]]:
    """Run a scheduler to which all hosts of a cloud have reported."""
    conf = options(len(cloud))
    conf.set_override("candidates_max_age", _MAX_AGE_S, group="moorage")
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/hosts.sqlite"
        conf.set_override("store_connection", url, group="moorage")
        source = PushSource(conf)
        placement = CannedPlacement(cloud, plain(cloud))
        scheduler = build(conf, placement=placement, source=source)
        scheduler.start()
        try:
            (endpoint,) = source.endpoints
            assert isinstance(endpoint, ReportEndpoint)
            for cast in _casts(cloud, range(len(cloud))):
                _apply(endpoint, cast)
            yield scheduler, endpoint
        finally:
            scheduler.stop()


def _casts(cloud: Cloud, free_ram_mb: Sequence[int]) -> list[list[Any]]:
    """Return whole reports of all hosts, in casts."""
    sent: list[Any] = []
    size = _REPORTS_PER_S // _CASTS_PER_S
    Reporter(sent.extend).report_many(
        (record, cloud.instances[record.host]) for record in cloud.records
    )
    for report, free_mb in zip(sent, free_ram_mb, strict=True):
        report.get("columns", report)["free_ram_mb"] = 65_536 + free_mb % 4_096
    return [sent[i : i + size] for i in range(0, len(sent), size)]


def _apply(endpoint: ReportEndpoint, cast: list[Any]) -> None:
    decoded = Serializer().deserialize_entity({}, {"reports": cast})
    endpoint.host_reports({}, **decoded)


@contextlib.contextmanager
def _reporting(
    casts: Sequence[list[Any]], endpoint: ReportEndpoint
) -> Iterator[Callable[[], int]]:
    """Let hosts report at a constant rate; yield a function that counts the reports."""
    ends, n_applied = threading.Event(), 0

    def report() -> None:
        nonlocal n_applied
        began = time.monotonic()
        for number, cast in enumerate(itertools.cycle(casts)):
            if ends.wait(max(0.0, began + number / _CASTS_PER_S - time.monotonic())):
                return
            _apply(endpoint, cast)
            n_applied += len(cast)

    thread = threading.Thread(target=report, name="reports")
    thread.start()
    try:
        yield lambda: n_applied
    finally:
        ends.set()
        thread.join()


def _own_ms(
    scheduler: Scheduler, requests: Sequence[BenchRequest], seconds: float
) -> list[float]:
    """Return the time of each decision without the steps of Placement."""
    for request in requests:
        decide(scheduler, request)
    times: list[float] = []
    ends_at = time.monotonic() + seconds
    for request in itertools.cycle(requests):
        step_ms = decide(scheduler, request).times_ms
        of_placement = sum(step_ms.get(step, 0.0) for step in PLACEMENT_STEPS)
        times.append(step_ms["total"] - of_placement)
        if time.monotonic() >= ends_at:
            return times
    raise AssertionError  # there is at least one request


def print_pauses(
    console: Console, sizes: Sequence[int], seconds: float, say: Callable[[str], None]
) -> None:
    """Measure and print decisions beside other work, and the longest holds."""
    decisions = make_table(
        "Decisions beside reports and renewals of cached answers, ms",
        "hosts|decisions",
        "n|median|p99|worst|p99, target",
        f"{_N_FLAVORS} flavors in turn, without the steps of Placement, which is "
        f"canned; an answer is renewed after {_MAX_AGE_S} s. beside: hosts send "
        f"{_REPORTS_PER_S:,} reports a second, if this machine is fast enough.",
    )
    holds = make_table(
        "The longest holds of the interpreter while decisions run, ms",
        "hosts|thread|garbage collector",
        "target|held|after it",
        "held: for how long no other thread could run, at most the CPU time of the "
        "thread.",
    )
    for n_hosts in sizes:
        say(f"pauses, {n_hosts:,} hosts")
        found = measure_pauses(n_hosts, seconds)
        alone = Percentiles.of(found.alone_ms)
        beside = Percentiles.of(found.beside_ms)
        what = f"beside {found.reports_per_s:,.0f} reports/s, {found.n_renewals} GETs"
        limit = f"≤ {format_number(alone.p99 * _MAX_FACTOR)}"
        for name, times, samples, target in (
            ("alone", alone, found.alone_ms, NONE),
            (what, beside, found.beside_ms, limit),
        ):
            numbers = times.median, times.p99, max(samples)
            decisions.add_row(
                f"{n_hosts:,}", name, f"{len(samples):,}",
                *map(format_number, numbers), target,
            )  # fmt: skip
        limit_ms = next(ms for n, ms in _LIMITS_MS if n_hosts <= n)
        for hold in found.holds:
            holds.add_row(
                f"{n_hosts:,}", hold.thread, hold.collected,
                f"≤ {format_number(limit_ms)}", format_number(hold.ms), hold.stack,
            )  # fmt: skip
    console.print(decisions)
    console.print(holds)
