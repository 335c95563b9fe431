# SPDX-License-Identifier: Apache-2.0
"""The PCI devices that a guest requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ...objects import InstancePCIRequest, InstancePCIRequests

#: What a property of a pool or of a request's spec can be; a list is a tuple of these.
Value = str | int | None | tuple["Value", ...]
#: A mapping that can be hashed: (key, value) pairs by ascending key.
Items = tuple[tuple[str, Value], ...]

LEGACY: Final = "legacy"
PREFERRED: Final = "preferred"
REQUIRED: Final = "required"
SOCKET: Final = "socket"


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A request for `count` devices, each of which matches one of the specs.

    Attributes
    ----------
    specs : tuple of tuple of (str, value)
        Each spec's pairs as requested, by ascending key.
    numa_policy : str
        How near the devices have to be to the guest's NUMA cells: required, preferred,
        legacy or socket.
    is_from_port : bool
        Whether a Neutron port requests it, and not an alias of the flavor.
    rp_uuids : tuple of str
        The provider of each device, if an earlier decision wrote them into the specs.
    """

    count: int
    specs: tuple[Items, ...]
    numa_policy: str = LEGACY
    request_id: str | None = None
    is_from_port: bool = False
    rp_uuids: tuple[str, ...] = ()

    @classmethod
    def read(cls, request: InstancePCIRequest) -> PciRequest:
        """Read the InstancePCIRequest of a request."""
        specs = (request.spec if "spec" in request else None) or ()
        rp_uuids_text = (specs[0].get("rp_uuids") if specs else None) or ""
        return cls(
            count=request.count,
            specs=tuple(_items(spec) for spec in specs),
            numa_policy=request.numa_policy or LEGACY,
            request_id=request.request_id,
            is_from_port=request.source == request.NEUTRON_PORT,
            rp_uuids=tuple(rp_uuids_text.split(",")) if rp_uuids_text else (),
        )

    def groups_among(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the names of the request groups of this PCI request, in their order.

        They are ``<request_id>-<index>``, one for each device. A port's request has no
        such group.
        """
        prefix = self.request_id
        if self.is_from_port or prefix is None:
            return ()
        return tuple(name for name in names if name.startswith(prefix))

    def describe(self) -> str:
        """Return one line for users."""
        pairs = (", ".join(f"{k} {v}" for k, v in spec) for spec in self.specs)
        specs = " or ".join(pair or "any" for pair in pairs) or "of no spec"
        noun = "device" if self.count == 1 else "devices"
        return f"{self.count} PCI {noun} ({specs}; NUMA policy {self.numa_policy})"


def read_requests(requests: InstancePCIRequests | None) -> tuple[PciRequest, ...]:
    """Read all PCI requests of a guest, in their order."""
    if requests is None or "requests" not in requests:
        return ()
    return tuple(PciRequest.read(request) for request in requests.requests or ())


def providers_of(
    request: PciRequest, mappings: Mapping[str, Sequence[str]] | None
) -> tuple[str, ...]:
    """Return the resource providers of a request's devices, one for each device.

    The tuple is empty where Placement does not track the devices: any pool may then
    give them. The rule is nova's ``_get_rp_uuids_for_request``.

    Parameters
    ----------
    mappings : mapping or None
        The providers by request group that an allocation candidate assigns; a group of
        a PCI request has one. None: the candidate was claimed already, and its
        providers are in the specs.
    """
    if request.is_from_port:
        return ()
    if not mappings:
        return request.rp_uuids
    providers = (mappings[group] for group in request.groups_among(mappings))
    return tuple(uuids[0] for uuids in providers if uuids)


def _items(spec: Mapping[str, Any]) -> Items:
    return tuple((key, hashable(value)) for key, value in sorted(spec.items()))


def hashable(value: object) -> Value:
    """Return a property as versioned objects have it: a text or None, lists as tuples.

    Raises
    ------
    TypeError
        If it is neither a text, a number, None, nor a list of these.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        return tuple(hashable(item) for item in value)
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(f"{value!r} is not a property of PCI devices")
