# SPDX-License-Identifier: Apache-2.0
"""Where an instance is, as far as the source of hosts knows."""

from __future__ import annotations

import dataclasses
import enum


class InstanceState(enum.Enum):
    """What is known of an instance."""

    #: The source does not know.
    UNKNOWN = "unknown"
    #: A host reports it, or its row names the host.
    ON_HOST = "on a host"
    #: It is being built or moved, or its host has not reported it yet: ask again.
    PENDING = "pending"
    #: Deleted, failed, or not known at all.
    GONE = "gone"


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceLocation:
    """The answer of `BaseHostSource.locate_instance`.

    Attributes
    ----------
    host : str
        The service host, where the state is ON_HOST.
    """

    state: InstanceState
    host: str = ""
