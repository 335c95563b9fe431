# SPDX-License-Identifier: Apache-2.0
"""Where a port is: the host that it is bound to, its segment, its physical network."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from cachetools import TTLCache, cached
from oslo_config import cfg
from oslo_utils import uuidutils

from ..conf.neutron import neutron_adapter
from ..waiting import Spawner, Waiter
from .answers import (
    HOST_CLUE,
    PHYSICAL_NETWORK_KEY,
    SEGMENT_KEY,
    Attachment,
    Clue,
)
from .lookups import LOOKUP_MAX_AGE_S
from .reader import ObjectReader

_MAX_KEPT: Final = 1000
_BOUND_TO: Final = "binding:host_id"
_PHYSICAL: Final = "provider:physical_network"


def make_port_reader(
    conf: cfg.ConfigOpts, waiter: Waiter, spawner: Spawner
) -> PortReader | None:
    """Return a reader configured by ``[neutron]``; None if that has no endpoint.

    Raises
    ------
    ConfigurationError
        An option is invalid.
    """
    adapter = neutron_adapter(conf, timeout_s=conf.locality.lookup_timeout)
    if adapter is None:
        return None
    objects = ObjectReader("Neutron", "neutron", adapter)
    return PortReader(objects, LOOKUP_MAX_AGE_S, waiter, spawner)


class PortReader:
    """Reads ports with what they are connected to, which many of them share.

    Parameters
    ----------
    max_age_s : float
        Seconds for which subnets, segments and networks are not read again.
    """

    def __init__(
        self, objects: ObjectReader, max_age_s: float, waiter: Waiter, spawner: Spawner
    ) -> None:
        self._objects = objects
        shared: TTLCache[Any, Mapping[str, Any]]
        shared = TTLCache(_MAX_KEPT, max_age_s, timer=waiter.monotonic)
        keep = cached(shared, lock=spawner.lock())
        self._shared: Callable[[str, str], Mapping[str, Any]] = keep(objects.get)

    def __call__(self, uuid: str) -> Attachment:
        """Return a port, with at most two more GETs.

        Raises
        ------
        LookupFailed
        """
        path = f"/v2.0/ports/{uuid}"
        port = self._objects.get(path, "port")
        project_id = port.get("project_id") or port.get("tenant_id")
        if not isinstance(project_id, str):
            raise self._objects.malformed(path, "no project_id")
        if not isinstance(port.get(_BOUND_TO), str | None) or _BOUND_TO not in port:
            raise self._objects.malformed(path, f"no {_BOUND_TO}")
        return Attachment(project_id, tuple(self._clues(port)))

    def _clues(self, port: Mapping[str, Any]) -> Iterator[Clue]:
        if host := port[_BOUND_TO]:
            yield Clue(HOST_CLUE, frozenset({host}))
        if (segment_id := self._segment_id(port)) is not None:
            yield Clue(SEGMENT_KEY, frozenset({segment_id}))
            segment = self._shared(f"/v2.0/segments/{segment_id}", "segment")
            names = [segment.get("physical_network")]
        else:
            names = self._physical_networks(port)
        physical = frozenset(n for n in names if isinstance(n, str) and n)
        if physical:
            yield Clue(PHYSICAL_NETWORK_KEY, physical)

    def _segment_id(self, port: Mapping[str, Any]) -> str | None:
        """Return the segment of a port's first address; None: it is not routed."""
        match port.get("fixed_ips"):
            case [{"subnet_id": str(subnet_id)}, *_] if _is_uuid(subnet_id):
                subnet = self._shared(f"/v2.0/subnets/{subnet_id}", "subnet")
                segment_id = subnet.get("segment_id")
                return segment_id if _is_uuid(segment_id) else None
        return None

    def _physical_networks(self, port: Mapping[str, Any]) -> list[Any]:
        """Return those of a network, which has several if it has several segments."""
        network_id = port.get("network_id")
        if not _is_uuid(network_id):
            return []
        network = self._shared(f"/v2.0/networks/{network_id}", "network")
        segments = network.get("segments")
        several = segments if isinstance(segments, list) else [network]
        return [each.get(_PHYSICAL) for each in several if isinstance(each, dict)]


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and bool(uuidutils.is_uuid_like(value))
