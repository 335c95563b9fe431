# SPDX-License-Identifier: Apache-2.0
"""What Placement does not check when it grants a claim: one interface for all of it.

may_try ▸ before ▸ Placement ▸ after
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer
from ..instances import Assignment


class Excluded(enum.Enum):
    """What an attempt does not try again after a refusal."""

    #: Nothing: another host is tried first.
    NOTHING = enum.auto()
    CANDIDATE = enum.auto()
    #: The candidate, for later requests with the same answer of Placement as well.
    CANDIDATE_OF_ANSWER = enum.auto()
    HOST = enum.auto()


@dataclasses.dataclass(frozen=True, slots=True)
class Refusal:
    """Why an instance does not get a candidate.

    Attributes
    ----------
    result : str
        As that of a `ClaimAttempt`.
    details : sequence of str
        One an attempt in the record.
    """

    result: str
    details: Sequence[str]
    excluded: Excluded


class ClaimCheck:
    """A rule that `Claims` checks for each claim; by default it allows everything.

    Attributes
    ----------
    is_counting : bool
        Whether it makes filters count instances that other requests place at the same
        time: they run again before each further round over all hosts.
    """

    is_counting = False

    def read(self, assignments: Sequence[Assignment]) -> None:
        """Read at once what `before` needs of each; called for several instances."""

    def may_try(self, assignment: Assignment) -> bool:
        """Return whether to try a host now; called for instances claimed singly."""
        return True

    def before(self, assignment: Assignment) -> Refusal | None:
        """Return why a claim is not sent; called directly before it is sent."""

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return why a claim that was granted is released.

        Parameters
        ----------
        eligible : HostBatch
            The hosts that passed the filters that do not depend on other instances,
            with the instances that are claimed together counted on them.
        """

    def undo(self, instance_uuid: str) -> None:
        """Undo what `before` did; called where a claim is not kept, maybe twice."""

    def may_retry(self, n_rounds: int) -> bool | None:
        """Return whether to try all hosts again, after so many rounds.

        Called once a round. None: no host was refused for a reason that may pass.
        """
