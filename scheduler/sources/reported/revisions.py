# SPDX-License-Identifier: Apache-2.0
"""Classification of reports by revision: new, unchanged, outdated, or after a gap."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ...hosts import ImageProperties
from ..report_columns import IDENTITY

#: Earlier incarnations that are remembered for a node.
_MAX_EARLIER: Final = 8


class ReportStatus(enum.Enum):
    """How a report relates to the known state of its node."""

    NEW = "it is the next state"
    UNCHANGED = "it repeats the known state: the node is alive"
    OUTDATED = "the known state is newer"
    GAP = "an earlier report was lost"


class Route(NamedTuple):
    """How the messages of a node reach this scheduler; many nodes share a route.

    Attributes
    ----------
    partitions : frozenset of (str, int)
        Topic and number of each partition that had messages of the node: one partition
        for each topic. Empty: the messages come by a message bus.
    is_relayed : bool
        Whether a relay writes the messages.
    """

    partitions: frozenset[tuple[str, int]]
    is_relayed: bool


@dataclass(slots=True)
class ReportedNode:
    """The state of one node, as built from its reports.

    Attributes
    ----------
    data : dict
        Values by column, in wire format.
    instances : set of str
    image_properties : dict
        Image properties by instance, as far as they were reported.
    seen_at : float
        When the node's newest message was received, seconds since the epoch.
    stored_at : float
        The `seen_at` that is in the store; 0: the store has none.
    is_relayed : bool
        Whether a relay reports the node. If so, the relay also removes the node, and
        silence does not.
    partitions : frozenset of (str, int)
        See `Route`.
    earlier : tuple of str
        Incarnations that this process knew before, the latest first: they order
        incarnations without a clock.
    """

    incarnation: str
    revision: int
    data: dict[str, Any]
    instances: set[str]
    seen_at: float
    stored_at: float = 0.0
    is_relayed: bool = False
    earlier: tuple[str, ...] = ()
    image_properties: dict[str, ImageProperties] = field(default_factory=dict)
    partitions: frozenset[tuple[str, int]] = frozenset()

    def succeed(self, before: ReportedNode) -> None:
        """Copy from the previous state what a whole report does not have."""
        self.stored_at = before.stored_at
        self.partitions = before.partitions
        incarnations = dict.fromkeys((before.incarnation, *before.earlier))
        incarnations.pop(self.incarnation, None)
        self.earlier = tuple(incarnations)[:_MAX_EARLIER]

    def is_continued_by(self, incarnation: str, data: Mapping[str, Any]) -> bool:
        """Return whether a report is of this incarnation and host, with all columns."""
        return (
            self.incarnation == incarnation
            and self.data.keys() <= data.keys()
            and all(data[name] == self.data[name] for name in IDENTITY)
        )

    def note_partition(self, partition: tuple[str, int]) -> None:
        """Record the partition of a message, in place of the topic's earlier partition.

        A node's messages move to another partition of a topic if partitions are added.
        """
        if partition not in self.partitions:
            other_topics = {p for p in self.partitions if p[0] != partition[0]}
            self.partitions = frozenset({*other_topics, partition})

    @property
    def route(self) -> Route:
        """How the node's messages reach this scheduler."""
        return Route(self.partitions, self.is_relayed)

    @property
    def host(self) -> str:
        """The host name of its compute service."""
        return str(self.data["host"])


def classify_report(
    known: ReportedNode | None, incarnation: str, revision: int
) -> ReportStatus:
    """Return the status of a whole report.

    A report of another incarnation is new: it is unknown which incarnation started
    later. If it was the known one, its next delta is a gap, which makes the scheduler
    request a whole report.
    """
    if known is None or known.incarnation != incarnation or known.revision < revision:
        return ReportStatus.NEW
    if known.revision == revision:
        return ReportStatus.UNCHANGED
    return ReportStatus.OUTDATED


def classify_delta(
    known: ReportedNode | None, incarnation: str, since: int, revision: int
) -> ReportStatus:
    """Return the status of a delta; it is new only if based on the known revision.

    A delta omits a column that changed and changed back since its base revision, so it
    cannot be applied to any revision in between.
    """
    if known is None or known.incarnation != incarnation:
        return ReportStatus.GAP
    if revision < known.revision:
        return ReportStatus.OUTDATED
    if revision == known.revision:
        return ReportStatus.UNCHANGED
    return ReportStatus.NEW if since == known.revision else ReportStatus.GAP
