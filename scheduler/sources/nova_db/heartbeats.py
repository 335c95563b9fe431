# SPDX-License-Identifier: Apache-2.0
"""Heartbeats of services that are not in nova's databases.

``[DEFAULT] servicegroup_driver`` names an entry point of ``moorage.heartbeats``, as
nova's option of that name names a driver of its service group API. The plugin is called
with the options. It returns a `BaseHeartbeats`, or None if heartbeats are in the rows
of ``services``.
"""

from __future__ import annotations

import abc
import dataclasses
import logging
import math
from collections.abc import Collection, Mapping

from oslo_config import cfg

from ...entry_points import load_plugin
from ...failures import cause_of
from .changes import CellChanges
from .services import ComputeService

LOG = logging.getLogger(__name__)

_TOPIC = "compute"
#: Seconds between heartbeats if [DEFAULT] report_interval is not positive.
_INTERVAL_S = 10


class BaseHeartbeats(abc.ABC):
    """Read and write heartbeats; must be thread-safe."""

    @abc.abstractmethod
    def read(self, topic: str, hosts: Collection[str]) -> Mapping[str, float]:
        """Return when services were last seen, by host, in seconds since the epoch.

        A host without a heartbeat is left out. Any exception means that heartbeats
        cannot be read now; they are read again later.
        """

    @abc.abstractmethod
    def write(self, topic: str, host: str, seen_at: float) -> None:
        """Store that a service is up.

        Parameters
        ----------
        seen_at : float
            Seconds since the epoch.
        """

    def disconnect(self) -> None:
        """Close connections, before the process may be forked; by default, do nothing.

        The next call opens new ones.
        """
        return


def of_database(_conf: cfg.ConfigOpts) -> None:
    """Return None: nova's driver "db" stores heartbeats in the rows of ``services``."""
    return


def heartbeats_of(conf: cfg.ConfigOpts) -> BaseHeartbeats | None:
    """Return the heartbeats that ``[DEFAULT] servicegroup_driver`` selects.

    Raises
    ------
    PluginError
        There is no such plugin, or it cannot be imported.
    ConfigurationError
        The options of the plugin are invalid.
    """
    plugin = load_plugin(
        "moorage.heartbeats",
        conf.servicegroup_driver,
        option="[DEFAULT] servicegroup_driver",
    )
    heartbeats: BaseHeartbeats | None = plugin(conf)
    return heartbeats


class CellHeartbeats:
    """The heartbeats of one cell's computes, merged into the changes of its database.

    This object belongs to a `CellReader`, and is replaced together with it. Only
    heartbeats that are due are read. If reading fails, the last heartbeat of a compute
    counts until ``service_down_time``.

    Parameters
    ----------
    heartbeats : BaseHeartbeats
    interval_s : float
        Seconds between heartbeats of a compute; 0 or less: 10.
    """

    def __init__(self, heartbeats: BaseHeartbeats, interval_s: float) -> None:
        self._heartbeats = heartbeats
        self._interval_s = interval_s if interval_s > 0 else _INTERVAL_S
        self._services: dict[int, ComputeService] = {}
        self._seen_at: dict[str, float] = {}
        self._is_troubled = False

    def merge_into(self, changes: CellChanges) -> CellChanges:
        """Return the changes with heartbeats, plus services with a new heartbeat.

        The heartbeats in the rows are replaced: nova does not update them.
        """
        for row_id, service in changes.services.items():
            if service is None:
                self._services.pop(row_id, None)
            else:
                self._services[row_id] = service
        updated = self._read(changes.began_at)
        services = dict(changes.services)
        for row_id, service in self._services.items():
            if row_id in services or service.host in updated:
                seen_at = self._seen_at.get(service.host, math.nan)
                services[row_id] = service._replace(last_seen_up=seen_at)
        return dataclasses.replace(changes, services=services)

    def _read(self, now: float) -> Collection[str]:
        """Read the heartbeats that are due; return the hosts that have a new one."""
        hosts = {service.host for service in self._services.values()}
        self._seen_at = {h: time for h, time in self._seen_at.items() if h in hosts}
        due = {h for h in hosts if not self._is_fresh(h, now)}
        try:
            times = self._heartbeats.read(_TOPIC, due) if due else {}
        except Exception as e:  # whatever a client raises; it is retried
            cause = cause_of(e)
        else:
            # A time in the future, by a host with a fast clock, counts as now.
            seen_at = {host: min(time, now) for host, time in times.items()}
            updated = {h for h, time in seen_at.items() if self._seen_at.get(h) != time}
            self._seen_at |= seen_at
            self._recovered()
            return updated
        level = logging.DEBUG if self._is_troubled else logging.WARNING
        self._is_troubled = True
        LOG.log(level, "Reading heartbeats failed, retrying: %s", cause)
        return ()

    def _is_fresh(self, host: str, now: float) -> bool:
        return now - self._seen_at.get(host, -math.inf) < self._interval_s

    def _recovered(self) -> None:
        if self._is_troubled:
            LOG.info("Heartbeats are read again")
        self._is_troubled = False
