# SPDX-License-Identifier: Apache-2.0
"""Check a chosen host once more, just before it is claimed, where it may have changed.

A decision reads the host table, which a source refreshes about once a second. What an
operator says of a compute service in between is read for the chosen hosts only.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterable, Sequence

from ...filters import BaseHostFilter
from ...objects import RequestSpec
from ..hosts import HostBatch
from ..sources.base import BaseHostSource, ServiceHost, ServiceState
from .filtering import explain
from .placed import Placed
from .record import OUTDATED, ClaimAttempt, DecisionRecord

LOG = logging.getLogger(__name__)


class Rechecks:
    """Read the present state of hosts that one decision has chosen, each once.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Prepared for this request; those that judge it.
    """

    def __init__(
        self,
        source: BaseHostSource,
        spec_obj: RequestSpec,
        filters: Sequence[BaseHostFilter],
        record: DecisionRecord,
    ) -> None:
        self._source = source
        self._spec = spec_obj
        self._filters = filters
        self._record = record
        self._states: dict[ServiceHost, ServiceState | None] = {}

    def passes(self, uuid: str, hosts: HostBatch, index: int) -> bool:
        """Return whether a host still passes the filters; the record notes if not."""
        key = _service_host(hosts, index)
        self._read([key])
        state = self._states[key]
        if state is None or state == _known_state(hosts, index):
            return True
        now = hosts.take([index]).with_numbers(dataclasses.asdict(state))
        rejections = explain(self._filters, now[0], self._spec)
        for rejection in rejections:
            self._note(uuid, key[1], f"{rejection.filter}: {rejection.reason}")
        return not rejections

    def passing(self, placed: Sequence[Placed]) -> list[Placed]:
        """Return those whose host still passes; all hosts are read at once."""
        self._read(_service_host(p.ranking.hosts, p.index) for p in placed)
        return [
            p for p in placed if self.passes(p.instance_uuid, p.ranking.hosts, p.index)
        ]

    def _read(self, hosts: Iterable[ServiceHost]) -> None:
        unread = set(hosts).difference(self._states)
        if not unread:
            return
        with self._record.timed("recheck"):
            found = self._source.service_states(unread)
        self._states.update((host, found.get(host)) for host in unread)

    def _note(self, uuid: str, host: str, why: str) -> None:
        LOG.info("Host %s is not claimed for instance %s: %s", host, uuid, why)
        self._record.claims.append(ClaimAttempt((uuid,), (host,), OUTDATED, 0, why))


def _service_host(hosts: HostBatch, index: int) -> ServiceHost:
    return hosts.value("cell_uuid", index), hosts.value("host", index)


def _known_state(hosts: HostBatch, index: int) -> ServiceState:
    return ServiceState(
        hosts.value("disabled", index), hosts.value("forced_down", index)
    )
