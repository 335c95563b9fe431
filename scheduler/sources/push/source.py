# SPDX-License-Identifier: Apache-2.0
"""The source "push": what agents report over RPC is put on the host table."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from oslo_config import cfg

from ...clock import now_s
from ...hosts import HostTable
from ...instances import InstanceLocation, InstanceState
from ..base import BaseHostSource
from .asking import Ask, Asker
from .behind import WriteBehind
from .endpoint import ReportEndpoint
from .hosts import Counts, ReportedHosts
from .store import HostStore

LOG = logging.getLogger(__name__)

_TICK_S: Final = 0.1
_FORGET_EVERY_S: Final = 10.0
#: A host that stays takes note of what it was given well within this.
_SETTLE_EVERY_S: Final = 30.0
#: A whole report that was asked for and is awaited longer is worth a note.
_LATE_S: Final = 30.0
_END_S: Final = 10.0


class PushSource(BaseHostSource):
    """Take whole reports and deltas, ask for what is missing, remember all of it.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts, optional
        ``[moorage] store_connection`` and ``forget_hosts_after`` are read.
    clock : callable, optional
        Returns now, seconds since the epoch.
    """

    are_zones_checked = False

    def __init__(
        self,
        conf: cfg.ConfigOpts | None = None,
        *,
        clock: Callable[[], float] = now_s,
    ) -> None:
        super().__init__(conf)
        self._clock = clock
        self._asker = Asker()
        self._hosts: ReportedHosts | None = None
        self._behind: WriteBehind | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._endpoint = ReportEndpoint(self.take, self.connect)

    @property
    def counts(self) -> Counts:
        """How many reports came to what."""
        return Counts() if self._hosts is None else self._hosts.counts

    def connect(self, ask: Ask) -> None:
        """Take the way back to agents.

        Parameters
        ----------
        ask : callable
            ``ask(topic, server, node_uuid)`` asks the agent that listens there for a
            whole report of a node, and returns whether it could. The question may get
            lost: it is repeated. It must not raise.
        """
        self._asker.connect(ask)

    def locate_instance(self, instance_uuid: str) -> InstanceLocation:
        """Return the host that has reported an instance; it may be reported yet."""
        host = None if self._hosts is None else self._hosts.host_with(instance_uuid)
        if host is None:
            return InstanceLocation(InstanceState.PENDING)
        return InstanceLocation(InstanceState.ON_HOST, host)

    def start(self, table: HostTable) -> None:
        """Put the hosts of the store on the table; one that is away is warned of.

        Raises
        ------
        ConfigurationError
            ``[moorage] store_connection`` cannot be used until somebody changes
            something: the URL, the database or the rights there.
        """
        store = HostStore(self.conf.moorage.store_connection)
        self._behind = WriteBehind(store)
        self._hosts = ReportedHosts(
            table,
            self._asker,
            self._clock,
            self._behind.changed,
            self.conf.moorage.forget_hosts_after,
        )
        self._behind.open(self._hosts, self._clock())
        store.close()  # a fork must not share connections

    def start_polling(self, table: HostTable) -> None:  # noqa: ARG002 - the base class's
        """Begin to write to the store, to ask for reports and to forget hosts."""
        if self._hosts is None or self._behind is None:
            raise RuntimeError("PushSource.start_polling: call start first")
        self._behind.start(self._hosts)
        self._thread = threading.Thread(
            target=self._tick,
            args=(self._hosts, self._behind),
            name="moorage-push-ask",
            daemon=True,
        )
        self._thread.start()

    def _tick(self, hosts: ReportedHosts, behind: WriteBehind) -> None:
        forget_at = time.monotonic() + _FORGET_EVERY_S
        settle_at = time.monotonic() + _SETTLE_EVERY_S
        while not self._ending.wait(_TICK_S):
            self._asker.ask_due()
            if time.monotonic() >= forget_at:
                forget_at = time.monotonic() + _FORGET_EVERY_S
                behind.gone(hosts.forget_lost())
            if time.monotonic() >= settle_at:
                settle_at = time.monotonic() + _SETTLE_EVERY_S
                hosts.settle_reported()

    def take(self, reports: Iterable[object]) -> None:
        """Take reports and deltas in their wire form, in their order.

        Those that come before `start` are left out: whole reports are asked for then.
        """
        if self._hosts is not None:
            self._hosts.take(reports)

    def refresh(self, table: HostTable) -> None:  # noqa: ARG002 - the base class's
        """Try a store that is away at once; reports come by themselves."""
        if self._behind is not None:
            self._behind.try_now()

    def seen_at(self) -> float | None:
        """Return when anything was heard of any host last.

        A host that alone is silent counts as down after ``service_down_time``; that
        all are means that nothing gets here.
        """
        return None if self._hosts is None else self._hosts.heard_at

    def troubles(self) -> Sequence[str]:
        """Return since when the store cannot be used, and why."""
        if self._behind is None or not self._behind.trouble:
            return ()
        return (
            f"The store of hosts cannot be used since {_told(self._behind.since)}: "
            f"{self._behind.trouble}",
        )

    def notes(self) -> Sequence[str]:
        """Return `troubles`, which hosts are refused, and which reports are late."""
        notes = [*self.troubles()]
        refused_since = None if self._hosts is None else self._hosts.refused_since
        if self._hosts is not None and refused_since is not None:
            notes.append(
                f"reports of {self._hosts.n_refused} hosts cannot be used, the first "
                f"since {_told(refused_since)}"
            )
        late_s = self._asker.longest_s()
        if late_s > _LATE_S:
            notes.append(
                f"whole reports of {len(self._asker)} hosts are awaited, the first "
                f"since {_told(self._clock() - late_s)}"
            )
        return notes

    def report_counts(self) -> Mapping[str, int]:
        """Return `counts` by their names."""
        return dataclasses.asdict(self.counts)

    @property
    def endpoints(self) -> Sequence[object]:
        """What agents cast to."""
        return (self._endpoint,)

    def stop(self) -> None:
        """End, once what came is written."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(_END_S)
        if self._behind is not None:
            self._behind.stop()


def _told(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat(
        timespec="seconds"
    )
