# SPDX-License-Identifier: Apache-2.0
"""Read where a port and a volume are from Neutron and Cinder.

For a port, these are the host that it is bound to, its segment and its physical
network. For a volume, it is the backend, as Cinder names it to administrators.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import requests
from cachetools import TTLCache, cached
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1.adapter import Adapter
from oslo_config import cfg
from oslo_utils import uuidutils

from ..conf.cinder import cinder_adapter
from ..conf.neutron import neutron_adapter
from ..decoding import loads
from ..failures import cause_of
from ..waiting import Spawner, Waiter
from .lookups import (
    BACKEND_KEY,
    HOST_CLUE,
    LOOKUP_MAX_AGE_S,
    PHYSICAL_NETWORK_KEY,
    SEGMENT_KEY,
    Attachment,
    Clue,
    LookupFailed,
)

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
    """Reads ports, and the subnets, segments and networks that many ports share.

    Parameters
    ----------
    max_age_s : float
        Seconds for which subnets, segments and networks are not read again.
    """

    def __init__(
        self, objects: ObjectReader, max_age_s: float, waiter: Waiter, spawner: Spawner
    ) -> None:
        self._objects = objects
        cache: TTLCache[Any, Mapping[str, Any]]
        cache = TTLCache(_MAX_KEPT, max_age_s, timer=waiter.monotonic)
        cache_answers = cached(cache, lock=spawner.lock())
        self._shared: Callable[[str, str], Mapping[str, Any]] = cache_answers(
            objects.get
        )

    def __call__(self, uuid: str) -> Attachment:
        """Return a port; besides its own GET, this takes two more GETs at most.

        Raises
        ------
        LookupFailed
            Neutron has no such port, or does not return what is needed.
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
            network_names = [segment.get("physical_network")]
        else:
            network_names = self._physical_networks(port)
        physical_networks = frozenset(
            name for name in network_names if isinstance(name, str) and name
        )
        if physical_networks:
            yield Clue(PHYSICAL_NETWORK_KEY, physical_networks)

    def _segment_id(self, port: Mapping[str, Any]) -> str | None:
        """Return the segment of a port's first address; None: there is none."""
        match port.get("fixed_ips"):
            case [{"subnet_id": str(subnet_id)}, *_] if _is_uuid(subnet_id):
                subnet = self._shared(f"/v2.0/subnets/{subnet_id}", "subnet")
                segment_id = subnet.get("segment_id")
                return segment_id if _is_uuid(segment_id) else None
        return None

    def _physical_networks(self, port: Mapping[str, Any]) -> list[Any]:
        """Return the physical networks of a port's network, one for each segment."""
        network_id = port.get("network_id")
        if not _is_uuid(network_id):
            return []
        network = self._shared(f"/v2.0/networks/{network_id}", "network")
        segments = network.get("segments")
        segments_or_network = segments if isinstance(segments, list) else [network]
        return [
            segment.get(_PHYSICAL)
            for segment in segments_or_network
            if isinstance(segment, dict)
        ]


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and bool(uuidutils.is_uuid_like(value))


_HOST: Final = "os-vol-host-attr:host"
_PROJECT: Final = "os-vol-tenant-attr:tenant_id"


def make_volume_reader(conf: cfg.ConfigOpts) -> VolumeReader | None:
    """Return a reader configured by ``[cinder]``; None if that has no endpoint.

    Raises
    ------
    ConfigurationError
        An option is invalid.
    """
    adapter = cinder_adapter(conf, timeout_s=conf.locality.lookup_timeout)
    if adapter is None:
        return None
    return VolumeReader(ObjectReader("Cinder", "cinder", adapter))


class VolumeReader:
    """Reads volumes."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects

    def __call__(self, uuid: str) -> Attachment:
        """Return a volume.

        Raises
        ------
        LookupFailed
            Cinder has no such volume, or does not return what is needed.
        """
        path = f"/volumes/{uuid}"
        volume = self._objects.get(path, "volume")
        host, project_id = volume.get(_HOST), volume.get(_PROJECT)
        # The host is None as long as the volume has no backend.
        if _HOST not in volume or not isinstance(host, str | None):
            raise self._objects.malformed(path, f"no {_HOST}")
        if not isinstance(project_id, str):
            raise self._objects.malformed(path, f"no {_PROJECT}")
        return Attachment(project_id, _clues(host) if host else ())


def _clues(host: str) -> tuple[Clue, ...]:
    """Return the clues of a volume's ``host@backend#pool``, the most exact first.

    A backend on a compute host, such as LVM, is in that host's places.
    """
    backend, service = host.partition("#")[0], host.partition("@")[0]
    names = dict.fromkeys((host, backend, service))
    backend_clues = (Clue(BACKEND_KEY, frozenset({name})) for name in names)
    return (*backend_clues, Clue(HOST_CLUE, frozenset({service})))


#: The most bytes of an answer: a network of Neutron has some kilobytes.
MAX_BYTES: Final = 256 * 1024
_CHUNK: Final = 1024
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}

_REFUSALS: Final = (
    ksa_errors.AuthorizationFailure,
    ksa_errors.AuthPluginException,
    ksa_errors.EndpointNotFound,
    ksa_errors.MissingAuthPlugin,
    ksa_errors.Unauthorized,
)


class ObjectReader:
    """Reads objects of one service.

    Parameters
    ----------
    service : str
        The service's name in messages, such as "Cinder".
    group : str
        The group of the service's options, for messages.
    """

    def __init__(self, service: str, group: str, adapter: Adapter) -> None:
        self.service = service
        self._group = group
        self._adapter = adapter

    def get(self, path: str, name: str) -> Mapping[str, Any]:
        """Return the object under the key `name` in the answer to a GET of `path`.

        Raises
        ------
        LookupFailed
            The service gives no answer, or none that can be used.
        """
        try:
            # log=False: keystoneauth1 would read the body of any size.
            response = self._adapter.get(
                path, raise_exc=False, stream=True, log=False, headers=_HEADERS
            )
            with contextlib.closing(response):
                status, body = response.status_code, self._body(response, path)
        except LookupFailed:
            raise
        except _REFUSALS as e:
            raise LookupFailed(
                f"Authenticating for {self.service} failed: {cause_of(e)}. Check the "
                f"options of [{self._group}]",
                is_outage=True,
            ) from e
        except Exception as e:
            # Auth plugins, keystoneauth1, requests and urllib3 have their own errors.
            raise LookupFailed(
                f"GET {path} of {self.service} got no answer: {cause_of(e)}",
                is_outage=True,
            ) from e
        self._check(status, path)
        return self._object(body, path, name)

    def _body(self, response: requests.Response, path: str) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                raise self.malformed(path, f"more than {MAX_BYTES} bytes")
        return bytes(body)

    def _check(self, status: int, path: str) -> None:
        if status == requests.codes.ok:
            return
        if status == requests.codes.not_found:
            raise LookupFailed(f"{self.service} has no {path}", is_unknown=True)
        advice = ""
        if status in (requests.codes.unauthorized, requests.codes.forbidden):
            advice = f": the user of [{self._group}] needs the role admin"
        raise LookupFailed(f"GET {path} of {self.service} answered {status}{advice}")

    def _object(self, body: bytes, path: str, name: str) -> Mapping[str, Any]:
        try:
            content = loads(body)
        except (ValueError, RecursionError) as e:
            raise self.malformed(path, "no JSON") from e
        item = content.get(name) if isinstance(content, dict) else None
        if not isinstance(item, dict):
            raise self.malformed(path, f"no {name!r}")
        return item

    def malformed(self, path: str, what: str) -> LookupFailed:
        """Return the error of an answer that cannot be used."""
        return LookupFailed(
            f"GET {path} of {self.service} answered {what}: check the endpoint in "
            f"[{self._group}], and that its user has the role admin"
        )
