# SPDX-License-Identifier: Apache-2.0
"""What a request prefilter is: it adds to the question that Placement is asked.

A prefilter is called once for every request that asks Placement, before it is asked,
in the order of ``DEFAULT_PREFILTERS``. It reads the request, the aggregates and the
options, and writes to nothing but ``request.requirements``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oslo_config import cfg

from ..errors import NoValidHost
from ..placement.query import Requirements

if TYPE_CHECKING:
    from ...objects import RequestSpec


class Aggregates(Protocol):
    """The host aggregates, as prefilters look them up."""

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
    """

    spec_obj: RequestSpec
    requirements: Requirements
    aggregates: Aggregates
    conf: cfg.ConfigOpts


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
