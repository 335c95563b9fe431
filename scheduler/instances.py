# SPDX-License-Identifier: Apache-2.0
"""The location of an instance, as far as the host source knows it."""

from __future__ import annotations

import dataclasses
import enum


class InstanceState(enum.Enum):
    """Where an instance is, as far as the host source knows."""

    #: The source does not know where the instance is.
    UNKNOWN = "unknown"
    #: A host reports it, or its row names the host.
    ON_HOST = "on a host"
    #: It is being built or moved, or its host has not reported it yet: check again.
    PENDING = "pending"
    #: It is on another host than the claimed one, and no operation moves it there.
    ELSEWHERE = "elsewhere"
    #: It was deleted, or has failed and is on no host.
    GONE = "gone"


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceLocation:
    """The answer of `BaseHostSource.locate_instance`.

    Attributes
    ----------
    host : str
        The service host, where the state is ON_HOST.
    also_on : tuple of str
        Other hosts that report it, as during a live migration, or after an evacuation
        from a host that is down.
    is_settled : bool
        Whether no request or move of the instance is under way, so that it stays there.
    """

    state: InstanceState
    host: str = ""
    is_settled: bool = False
    also_on: tuple[str, ...] = ()
