# SPDX-License-Identifier: Apache-2.0
"""What a request prefilter is: it adds to the question that Placement is asked.

A prefilter is called once for every request that asks Placement, before it is asked,
in the order of ``DEFAULT_PREFILTERS``; those of third parties follow. It reads the
request, the aggregates and the options, and writes to nothing but
``request.requirements``. Its I/O is what ``request.network`` does for it.
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
    """What prefilters read of one host aggregate."""

    @property
    def uuid(self) -> str:
        """Its UUID, which is its name in Placement."""
        ...

    @property
    def metadata(self) -> Mapping[str, str]:
        """What operators wrote into it."""
        ...


class Aggregates(Protocol):
    """The host aggregates, as prefilters look them up."""

    def __iter__(self) -> Iterator[AggregateFacts]:
        """Go through all of them."""
        ...

    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        """Return the UUIDs of the aggregates whose `key` is exactly `value`."""
        ...


@dataclass(frozen=True, slots=True)
class PrefilterRequest:
    """What a prefilter is given.

    Attributes
    ----------
    spec_obj : moorage.objects.RequestSpec
        The request; only read.
    requirements : Requirements
        What is added to the question; written to.
    aggregates : Aggregates
        The host aggregates as they are now.
    conf : oslo_config.cfg.ConfigOpts
        The options.
    network : NetworkLookup or None
        Answers about ports and networks, each asked for once a request; None where
        Neutron is not configured.
    min_service_version : int
        The least version of a compute service among all hosts; 0: none is known.
    are_zones_checked : bool
        Whether who sends requests has checked that their zone exists, as nova's API
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
    """A function that adds what one rule demands to the question for Placement."""

    def __call__(self, request: PrefilterRequest) -> None:
        """Add to ``request.requirements``.

        Raises
        ------
        NoValidHost
            No host can serve the request, made by :func:`fits_nowhere`.
        """
        ...


def fits_nowhere(reason: str) -> NoValidHost:
    """Return the error of a prefilter that finds a request to fit nowhere.

    The wording is nova 34's (``RequestFilterFailed``); `reason` may reach an end user.
    """
    return NoValidHost(f"Scheduling failed: {reason}")
