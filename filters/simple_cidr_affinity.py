# SPDX-License-Identifier: Apache-2.0
"""Is the host's address in the network that the request's hints name?"""

from __future__ import annotations

import socket
from collections.abc import Iterator

import netaddr  # type: ignore[import-untyped]  # ships none

from ..objects import RequestSpec
from ..scheduler.errors import InvalidRequest, excerpt
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy

_DEFAULT_CIDR = "/24"

#: The type of a packed address: a byte for the IP version, then the address. Packed
#: addresses compare as the addresses do.
_PACKED = "S17"


class SimpleCIDRAffinityFilter(BaseHostFilter):
    """Pass hosts in the network of the hints ``build_near_host_ip`` and ``cidr``.

    ``cidr`` is a prefix length, "/24" by default. The slash is optional; without it,
    nova appends the digits to the address, and so uses the network of another address.
    Hints that do not form a network are reported as an invalid request; nova fails with
    an exception of netaddr. A host whose address is unknown does not pass; nova fails
    if there is such a host.

    Raises
    ------
    InvalidRequest
        The hints do not form a network.
    """

    REASON = "not in the network of the hints build_near_host_ip and cidr"
    run_filter_once_per_request = True
    ROWWISE = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts are in the network, shape (n_hosts,)."""
        network = _network(spec_obj)
        if network is None:
            return all_hosts(hosts)
        addresses = hosts.map_distinct("host_ip", _packed, _PACKED, cache_key=_packed)
        first_address = netaddr.IPAddress(network.first, network.version)
        last_address = netaddr.IPAddress(network.last, network.version)
        passing: Mask = (_pack(first_address) <= addresses) & (
            addresses <= _pack(last_address)
        )
        return passing

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the host's address and the network."""
        return "host_ip", f"in {_network(spec_obj)}", host_state.host_ip

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the request without its hints about the network."""
        text = (
            "without hint build_near_host_ip, or with a network other than "
            f"{_network(spec_obj)}"
        )
        yield Remedy(rejected, text, hints=("build_near_host_ip", "cidr"))


def _network(spec_obj: RequestSpec) -> netaddr.IPNetwork | None:
    """Return the network that the hints form; None if they name none."""
    address = spec_obj.get_scheduler_hint("build_near_host_ip")
    if not address:
        return None
    cidr = spec_obj.get_scheduler_hint("cidr", _DEFAULT_CIDR)
    cidr = _DEFAULT_CIDR if cidr == [] else cidr
    if isinstance(cidr, str) and cidr and not cidr.startswith("/"):
        cidr = f"/{cidr}"
    try:
        # A hint with several values is a list, for which join fails.
        return netaddr.IPNetwork("".join((address, cidr)))
    except (netaddr.AddrFormatError, ValueError, TypeError) as e:
        raise InvalidRequest(
            f"scheduler_hints: build_near_host_ip {excerpt(address)} and cidr "
            f"{excerpt(cidr)} must be one IP address and one prefix length such as "
            "'/24'"
        ) from e


def _packed(host_ip: str | None) -> bytes:
    # The parser of the socket module: the one of netaddr takes 100 times as long.
    for version, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
        try:
            return bytes([version, *socket.inet_pton(family, host_ip or "")])
        except (OSError, ValueError):
            continue
    return b""


def _pack(address: netaddr.IPAddress) -> bytes:
    return bytes([address.version, *address.packed])
