# SPDX-License-Identifier: Apache-2.0
"""The reports per second that the source push can process."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table

from moorage.agent.reporter import Reporter
from moorage.objects import Serializer
from moorage.scheduler.conf import load
from moorage.scheduler.hosts import HostRecord, HostTable
from moorage.scheduler.sources.push import PushSource, ReportEndpoint
from moorage.testing.builders import host

from .tables import make_table
from .timing import Percentiles, Plan, format_percentiles, repeated

#: Reports in one cast.
BATCHES = (1, 100, 1_000)


@dataclass(frozen=True, slots=True)
class IngestTime:
    """The time of one report, from the cast to the host table.

    Attributes
    ----------
    us : Percentiles
        Microseconds of CPU time, each sample a mean over all reports of a run. CPU
        time excludes other work on this machine.
    """

    what: str
    batch: int
    us: Percentiles


class _PushCloud:
    """Hosts that an agent reports to a source."""

    def __init__(self, n_hosts: int, folder: str) -> None:
        conf = load([], config_files=[])
        url = f"sqlite:///{folder}/hosts.sqlite"
        conf.set_override("store_connection", url, group="moorage")
        self.table = HostTable()
        self.source = PushSource(conf)
        self.source.start(self.table)
        self._sent: list[Any] = []
        self._reporter = Reporter(self._sent.extend)
        self._hosts = [host(host=f"host-{i}") for i in range(n_hosts)]
        self._random = random.Random(0)

    def whole(self) -> list[Any]:
        """Return a whole report of each host, decoded from JSON."""
        self._reporter = Reporter(self._sent.extend)
        return self.unchanged()

    def changed(self) -> list[Any]:
        """Return a delta of four columns of each host."""
        self._hosts = [self._with_other_usage(each) for each in self._hosts]
        return self.unchanged()

    def _with_other_usage(self, record: HostRecord) -> HostRecord:
        drawn = self._random.randrange
        return replace(
            record,
            free_ram_mb=drawn(16_384),
            free_disk_mb=drawn(51_200),
            vcpus_used=drawn(8),
            num_instances=drawn(20),
        )

    def unchanged(self) -> list[Any]:
        """Return the agent's next report of each host."""
        self._reporter.report_many((each, ()) for each in self._hosts)
        sent = json.loads(json.dumps(self._sent))
        self._sent.clear()
        return list(sent)

    def apply(
        self, reports: list[Any], batch: int, *, is_viewed: bool = False
    ) -> float:
        """Apply reports; return the microseconds of CPU time for each."""
        (endpoint,) = self.source.endpoints
        assert isinstance(endpoint, ReportEndpoint)
        serializer = Serializer()
        casts = [{"reports": each} for each in _batches(reports, batch)]
        started = time.thread_time()
        for cast in casts:
            endpoint.host_reports({}, **serializer.deserialize_entity({}, cast))
            if is_viewed:
                self.table.batch()
        return (time.thread_time() - started) / len(reports) * 1e6


def _batches(reports: list[Any], size: int) -> Iterator[list[Any]]:
    for first in range(0, len(reports), size):
        yield reports[first : first + size]


@contextmanager
def _cloud(n_hosts: int) -> Iterator[_PushCloud]:
    with tempfile.TemporaryDirectory() as folder:
        cloud = _PushCloud(n_hosts, folder)
        try:
            yield cloud
        finally:
            cloud.source.stop()


def ingest_times(plan: Plan, n_hosts: int) -> list[IngestTime]:
    """Measure whole reports, deltas and heartbeats, from decoded casts on."""
    rows: list[IngestTime] = []

    def add(what: str, batch: int, found: Sequence[float]) -> None:
        rows.append(IngestTime(what, batch, Percentiles.of(found)))

    with _cloud(n_hosts) as cloud:
        add(
            "whole reports", 500,
            repeated(plan, lambda: cloud.apply(cloud.whole(), 500)),
        )  # fmt: skip
        for batch in BATCHES:

            def deltas(batch: int = batch) -> float:
                return cloud.apply(cloud.changed(), batch)

            add("deltas of 4 columns", batch, repeated(plan, deltas))
        add(
            "the same, read after each", 1_000,
            repeated(plan, lambda: cloud.apply(cloud.changed(), 1_000, is_viewed=True)),
        )  # fmt: skip
        for batch in BATCHES:

            def heartbeats(batch: int = batch) -> float:
                return cloud.apply(cloud.unchanged(), batch)

            add("heartbeats", batch, repeated(plan, heartbeats))
    return rows


def ingest_table(rows: Sequence[IngestTime], n_hosts: int) -> Table:
    """Return the table of reports per second."""
    table = make_table(
        f"Reports of {n_hosts:,} hosts to the source push, CPU time",
        "reports",
        "in one cast|µs each|per second|runs",
        "From a decoded cast, through serializer and endpoint, to the host "
        "table; without a broker, and without the store, which is written later. Each "
        "run is the mean over one report of each host.",
    )
    for row in rows:
        table.add_row(
            row.what, f"{row.batch:,}", format_percentiles(row.us),
            f"{1e6 / row.us.median:,.0f}", str(row.us.n_samples),
        )  # fmt: skip
    return table
