# SPDX-License-Identifier: Apache-2.0
"""The location of an instance, as far as the host source knows it."""

from __future__ import annotations

import dataclasses
import enum


class InstanceState(enum.Enum):
    """What the host source knows of an instance."""

    #: The source does not know.
    UNKNOWN = "unknown"
    #: A host reports it, or its row names the host.
    ON_HOST = "on a host"
    #: It is being built or moved, or its host has not reported it yet: check again.
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
