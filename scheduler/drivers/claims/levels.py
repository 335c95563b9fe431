# SPDX-License-Identifier: Apache-2.0
"""Rules about places, checked again after a claim against concurrent claims.

As for server groups on a host (:mod:`.groups`): the filter counts the instances that
the table has. Those that no host has reported may be elsewhere by now, as a claim that
another scheduler announced may come to nothing. So after the claim their allocations
are read, and the rules are evaluated once more with them. Claims are atomic, so at
least the later of two claims sees the earlier one.

Of the instances that break a rule together, only as many claims are released as must
be, those of the highest UUIDs. The other instances wait for that, and are released if
it does not happen, as they were claimed late. So the place with the fewest instances
never loses one, on which other decisions may rely by ``spread_level``. That rule
compares places: their instances are read until two readings agree, so that none is
counted at two places, or at none.

An instance whose claim is released is filtered again, with the other instances counted
where they are; if no place passes, it waits until claims of others are released. Where
it has to be in one place with members of its group that stay in several, it is refused.
"""

from __future__ import annotations

from ....filters.locality import LocalityFilter
from ...hosts import HostBatch
from ...locality import Resolution
from ...placement.allocations.claims import ClaimAnswer
from ...placement.allocations.limits import (
    GROUP_MAX_READINGS,
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
    GROUP_SPLIT_PAUSES_S,
)
from ..instances import Assignment, spec_of_instance
from ..prepared import PreparedRequest
from ..record import OTHER_CLAIMED_FIRST, RELEASED
from .checks import ClaimCheck, Excluded, Refusal


class LevelCheck(ClaimCheck):
    """Ensures that a granted claim conforms to the request's rules about places."""

    def __init__(self, prepared: PreparedRequest, rules: LocalityFilter) -> None:
        self._parts = parts = prepared.parts
        self._spec = prepared.request.spec_obj
        self._record = prepared.record
        self._global_request_id = prepared.caller.global_request_id
        self._filter = rules
        # The filter handles the instances of this request.
        instances = rules.instances - {*prepared.instance_uuids}
        #: Read before the filters run, which therefore count all others.
        self._unreported = parts.table.claims.unreported_instances(instances)
        self.is_counting = bool(self._unreported)
        #: The remaining pauses until members of the group are in one place.
        self._split_pauses = iter(GROUP_SPLIT_PAUSES_S)
        self._has_released = False
        #: The instances whose claims were released and that have no other host yet.
        self._need_other_host: set[str] = set()
        #: The hosts for the instance whose claim was released last.
        self._eligible: HostBatch | None = None
        self._has_kept_claim = False

    def may_try(self, assignment: Assignment) -> bool:
        """Return whether to try further hosts before the filter runs again."""
        return not self._has_released

    def may_retry(self, n_rounds: int) -> bool | None:
        """Return whether to try again if an instance lost its claim and has no host.

        If so, wait briefly, and count the other instances where they are now: those
        whose claims are about to be released may take up all places for a moment. If
        members that it has to be with stay apart, no host may be tried.
        """
        if not self._need_other_host:
            return None
        assert self._eligible is not None
        self._parts.waiter.sleep(GROUP_PAUSE_S)
        self._locate()
        while self._filter.is_group_split(self._eligible, self._spec):
            pause_s = next(self._split_pauses, None)
            if pause_s is None:
                return False
            self._parts.waiter.sleep(pause_s)
            self._locate()
        self._has_released = False
        return n_rounds < GROUP_MAX_ROUNDS

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return a refusal if a rule does not hold with the claims of other instances.

        Raises
        ------
        PlacementError
            Placement could not be read.
        """
        if not self._unreported:
            return None
        uuid = assignment.instance_uuid
        with self._record.timed("group"):
            why = self._why_not_kept(assignment, eligible)
        if why is None:
            self._has_kept_claim = True
            self._need_other_host.discard(uuid)
            return None
        self._has_released, self._eligible = True, eligible
        self._need_other_host.add(uuid)
        return Refusal(RELEASED, [f"{OTHER_CLAIMED_FIRST}{why}"], Excluded.NOTHING)

    def _why_not_kept(self, assignment: Assignment, eligible: HostBatch) -> str | None:
        """Return the rule for which a claim is released; None: the claim is kept."""
        spec_obj = spec_of_instance(self._spec, assignment.instance_uuid)
        rules, node_uuid, why = self._filter, assignment.value("uuid"), ""
        for number in range(GROUP_MAX_READS):
            if number:
                self._parts.waiter.sleep(GROUP_PAUSE_S)
            self._locate()
            resolution = rules.resolution(
                eligible, node_uuid, spec_obj, is_following=self._has_kept_claim
            )
            if resolution is Resolution.KEEP:
                return None
            why = rules.describe(eligible, node_uuid, spec_obj)
            if resolution is Resolution.MOVE:
                break
        return why

    def _locate(self) -> None:
        """Have the filter count the others where Placement has them now, if at all."""
        # Those that a host has reported by now are there for good: they count there.
        unreported = self._parts.table.claims.unreported_instances(self._unreported)
        nodes = {uuid: self._nodes_of(uuid) for uuid in unreported}
        if self._filter.compares_places:
            for _ in range(GROUP_MAX_READINGS - 1):
                before = nodes
                # Instances that are claimed later count this one.
                nodes = {u: on and self._nodes_of(u) for u, on in before.items()}
                if nodes == before:
                    break
        is_granted = self._parts.table.claims.is_granted
        answered = {
            uuid
            for uuid, of_instance in nodes.items()
            if any(is_granted(node, uuid) for node in of_instance)
        }
        self._filter.locate(nodes, answered)

    def _nodes_of(self, uuid: str) -> frozenset[str]:
        """Return the compute nodes on which an instance holds allocations.

        One that was evacuated has two until its old host is up again.
        """
        held = self._parts.placement.allocations(
            uuid, global_request_id=self._global_request_id
        )
        return frozenset(filter(self._parts.table.has_node, held.resources))
