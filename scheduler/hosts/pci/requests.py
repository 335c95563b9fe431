# SPDX-License-Identifier: Apache-2.0
"""What PCI devices a guest asks for, and which kinds of pools match."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from oslo_utils.strutils import bool_from_string

from ....objects import InstancePCIRequest, InstancePCIRequests
from .pool import Items, PoolKind, Value, hashable

LEGACY: Final = "legacy"
PREFERRED: Final = "preferred"
REQUIRED: Final = "required"
SOCKET: Final = "socket"

#: Keys of a spec that Placement matches, or that are matched by provider. nova intends
#: the last for pools only, but shares one list (``PciDeviceStats.ignored_spec_tags``).
_IGNORED: Final = frozenset({"resource_class", "traits", "rp_uuids", "rp_uuid"})


@dataclass(frozen=True, slots=True)
class PciRequest:
    """So many devices, each of which answers one of the specs.

    Attributes
    ----------
    specs : tuple of tuple of (str, value)
        Each spec's pairs as they were asked for, by ascending key.
    numa_policy : str
        How near the devices have to be: required, preferred, legacy or socket.
    is_from_port : bool
        Whether a Neutron port asks, and not an alias of the flavor.
    rp_uuids : tuple of str
        The providers, one a device, that an earlier decision wrote into the specs.
    """

    count: int
    specs: tuple[Items, ...]
    numa_policy: str = LEGACY
    request_id: str | None = None
    is_from_port: bool = False
    rp_uuids: tuple[str, ...] = ()

    @classmethod
    def read(cls, request: InstancePCIRequest) -> PciRequest:
        """Read the object in a request."""
        specs = (request.spec if "spec" in request else None) or ()
        written = (specs[0].get("rp_uuids") if specs else None) or ""
        return cls(
            count=request.count,
            specs=tuple(_items(spec) for spec in specs),
            numa_policy=request.numa_policy or LEGACY,
            request_id=request.request_id,
            is_from_port=request.source == request.NEUTRON_PORT,
            rp_uuids=tuple(written.split(",")) if written else (),
        )

    def match(self, kind: PoolKind) -> Match:
        """Return whether a kind of pools matches the specs, and is usable for them."""
        return _wanted(self.specs).match(kind)

    def groups_among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the request groups that are this request's, in their order.

        They are named ``<request_id>-<index>``, each for one device. A port has none.
        """
        prefix = self.request_id
        if self.is_from_port or prefix is None:
            return ()
        return tuple(name for name in names if name.startswith(prefix))

    def describe(self) -> str:
        """Return one line for users."""
        pairs = (", ".join(f"{k} {v}" for k, v in spec) for spec in self.specs)
        wanted = " or ".join(pair or "any" for pair in pairs) or "of no spec"
        noun = "device" if self.count == 1 else "devices"
        return f"{self.count} PCI {noun} ({wanted}; NUMA policy {self.numa_policy})"


def read_requests(requests: InstancePCIRequests | None) -> tuple[PciRequest, ...]:
    """Read all PCI requests of a guest, in their order."""
    if requests is None or "requests" not in requests:
        return ()
    return tuple(PciRequest.read(request) for request in requests.requests or ())


def providers_of(
    request: PciRequest, mappings: Mapping[str, Sequence[str]] | None
) -> tuple[str, ...]:
    """Return the resource providers of a request's devices, one a device.

    An empty tuple where Placement does not track the devices: any pool will do. nova's
    ``_get_rp_uuids_for_request``.

    Parameters
    ----------
    mappings : mapping or None
        Of an allocation candidate: providers by request group, of which a PCI request's
        have one each. None: the candidate was claimed already, and its providers are
        in the specs.
    """
    if request.is_from_port:
        return ()
    if not mappings:
        return request.rp_uuids
    found = (mappings[group] for group in request.groups_among(mappings))
    return tuple(uuids[0] for uuids in found if uuids)


class Match(NamedTuple):
    """Whether the devices of a kind of pools can be given to a request.

    Attributes
    ----------
    matches : bool
        It has all that one of the specs asks for.
    is_usable : bool
        It is not special, or the specs ask for what it is. Special are PFs, VDPA and
        remote-managed devices, and devices that can, or cannot, be live-migrated.
    """

    matches: bool
    is_usable: bool


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What specs ask for, prepared to be compared with many kinds."""

    specs: tuple[Items, ...]
    allows_pf: bool
    allows_vdpa: bool
    allows_remote_managed: bool
    live_migratable: str | None

    def match(self, kind: PoolKind) -> Match:
        has = dict(kind.items)
        return Match(any(_has_all(has, s) for s in self.specs), self._allow(has))

    def _allow(self, properties: Mapping[str, Value]) -> bool:
        dev_type = properties.get("dev_type")
        if dev_type == "type-PF" and not self.allows_pf:
            return False
        if dev_type == "vdpa" and not self.allows_vdpa:
            return False
        if not self.allows_remote_managed and _is_true(properties, "remote_managed"):
            return False
        wanted = self.live_migratable
        return wanted is None or properties.get("live_migratable") == wanted


@functools.lru_cache(512)
def _wanted(specs: tuple[Items, ...]) -> _Wanted:
    asked = [dict(spec) for spec in specs]
    movable = {spec.get("live_migratable") for spec in asked}
    return _Wanted(
        # A spec's count is a text, which never equals a pool's count.
        specs=tuple(_comparable(spec) for spec in specs if "count" not in dict(spec)),
        allows_pf=any(spec.get("dev_type") == "type-PF" for spec in asked),
        allows_vdpa=any(spec.get("dev_type") == "vdpa" for spec in asked),
        allows_remote_managed=any(_is_true(spec, "remote_managed") for spec in asked),
        live_migratable=next(
            (value for value in ("true", "false") if movable == {value}), None
        ),
    )


def _is_true(properties: Mapping[str, Value], key: str) -> bool:
    value = properties.get(key)
    return value is not None and bool(bool_from_string(value))


def _items(spec: Mapping[str, Any]) -> Items:
    return tuple((key, hashable(value)) for key, value in sorted(spec.items()))


def _comparable(spec: Items) -> Items:
    return tuple((key, _lowered(value)) for key, value in spec if key not in _IGNORED)


def _lowered(value: Value) -> Value:
    return value.lower() if isinstance(value, str) else value


def _has_all(properties: Mapping[str, Value], spec: Items) -> bool:
    return all(_answers(properties.get(key), wanted) for key, wanted in spec)


def _answers(present: Value, wanted: Value) -> bool:
    """Compare as nova's ``pci_device_prop_match``: lists by subset, texts in any case.

    An absent property equals None.
    """
    if isinstance(present, tuple) and isinstance(wanted, tuple):
        return all(each in present for each in wanted)
    return _lowered(present) == wanted
