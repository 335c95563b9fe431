# SPDX-License-Identifier: Apache-2.0
"""What Cinder and Neutron say about one volume or port, and how they fail."""

from __future__ import annotations

import dataclasses
from typing import Final

from ..errors import SchedulerError

#: The metadata by which an aggregate that is a place is close to storage or a network.
BACKEND_KEY: Final = "moorage:volume_backend"
SEGMENT_KEY: Final = "moorage:segment"
PHYSICAL_NETWORK_KEY: Final = "moorage:physical_network"
#: The key of a clue whose values are service hosts.
HOST_CLUE: Final = "host"


@dataclasses.dataclass(frozen=True, slots=True)
class Clue:
    """Something that an operator may have mapped to places.

    Attributes
    ----------
    key : str
        A key of the aggregates' metadata, or `HOST_CLUE`.
    values : frozenset of str
        Places of each of them count.
    """

    key: str
    values: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Attachment:
    """A volume or a port.

    Attributes
    ----------
    project_id : str
        Its owner.
    clues : tuple of Clue
        The first one that leads to a place counts.
    """

    project_id: str
    clues: tuple[Clue, ...]


class LookupFailed(SchedulerError):
    """Raised when a volume or port cannot be looked up; names service and cause.

    Attributes
    ----------
    is_unknown : bool
        Whether there is none of that UUID.
    is_outage : bool
        Whether questions about others would fail, too, perhaps after a timeout.
    """

    def __init__(
        self, message: str, *, is_unknown: bool = False, is_outage: bool = False
    ) -> None:
        super().__init__(message)
        self.is_unknown = is_unknown
        self.is_outage = is_outage
