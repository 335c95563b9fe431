# SPDX-License-Identifier: Apache-2.0
"""The interface of a request prefilter, which adds requirements to the Placement query.

Prefilters are called once for every request that queries Placement, before the query.
Our own are called first, in the order of ``DEFAULT_PREFILTERS``; those of third parties
follow. Options disable some of ours. A prefilter reads the request, the aggregates and
the options, and writes only to ``request.requirements``. It does no I/O other than
through ``request.network``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oslo_config import cfg

from ..errors import NoValidHost
from ..placement.query import Requirements
from .networks import NetworkLookup

if TYPE_CHECKING:
    from ...objects import RequestSpec


class AggregateFacts(Protocol):
    """The part of a host aggregate that prefilters read."""

    @property
    def uuid(self) -> str:
        """The UUID, which identifies the aggregate in Placement."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata that operators set."""
        ...


class Aggregates(Protocol):
    """The host aggregates, as prefilters read them."""

    def __iter__(self) -> Iterator[AggregateFacts]:
        """Iterate over all aggregates."""
        ...

    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        """Return the UUIDs of the aggregates whose `key` is exactly `value`."""
        ...


@dataclass(frozen=True, slots=True)
class PrefilterRequest:
    """The argument of a prefilter.

    Attributes
    ----------
    spec_obj : moorage.objects.RequestSpec
        The request; read-only.
    requirements : Requirements
        What the query for Placement requires; prefilters add to it.
    aggregates : Aggregates
        The host aggregates as they are now.
    conf : oslo_config.cfg.ConfigOpts
        The options.
    network : NetworkLookup or None
        Ports and networks, each fetched at most once a request; None where Neutron is
        not configured.
    min_service_version : int
        The lowest compute service version of all hosts; 0: no version is known.
    are_zones_checked : bool
        Whether the sender of requests has checked that their zone exists, as nova's API
        does.
    """

    spec_obj: RequestSpec
    requirements: Requirements
    aggregates: Aggregates
    conf: cfg.ConfigOpts
    network: NetworkLookup | None = None
    min_service_version: int = 0
    are_zones_checked: bool = True


class Prefilter(Protocol):
    """A function that adds the requirements of one rule to the query for Placement."""

    def __call__(self, request: PrefilterRequest) -> None:
        """Add to ``request.requirements``.

        Raises
        ------
        NoValidHost
            No host can serve the request. The error is that of :func:`no_valid_host`.
        """
        ...


def no_valid_host(reason: str) -> NoValidHost:
    """Return the NoValidHost to raise from a prefilter.

    The wording is nova 34's (``RequestFilterFailed``); `reason` may reach an end user.
    """
    return NoValidHost(f"Scheduling failed: {reason}")
