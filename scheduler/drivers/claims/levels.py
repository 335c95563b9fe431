# SPDX-License-Identifier: Apache-2.0
"""Rules about places, checked again after a claim against concurrent claims.

The filter `LocalityFilter` counts the instances in the host table. Instances that no
host has reported yet may be elsewhere by now: a claim that another scheduler announced
may have been refused or released. So after a claim, the allocations of such instances
are read from Placement, and the rules are evaluated again with them. Claims are atomic,
so that the scheduler of the later of two claims, or both, see the other claim. (The
checks of server groups on a host, in :mod:`.groups`, work likewise.)

If instances break a rule together, no more claims than necessary are released, those of
the instances with the highest UUIDs. The other instances wait until that has happened;
if it does not happen, their claims are released, too, as they were the later ones.
Thus the place with the fewest instances never loses an instance, and other decisions
can rely on it for ``spread_level``. That rule compares places: the instances of the
places are read until two readings agree, so that no instance is counted in two places,
or in none.

An instance whose claim was released is filtered again, with the other instances counted
where they are now. If no host passes, it waits until claims of others are released. If
it must be in one place with members of its group, and these stay in several places, no
host is selected for it.
"""

from __future__ import annotations

import functools

from ....filters.locality import LocalityFilter
from ...candidates import Offer
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
from .checks import ClaimCheck, Excluded, Refusal, read_roots


class LevelCheck(ClaimCheck):
    """Ensures that a granted claim conforms to the request's rules about places."""

    def __init__(
        self, prepared: PreparedRequest, offer: Offer, rules: LocalityFilter
    ) -> None:
        self._parts = parts = prepared.parts
        self._spec = prepared.request.spec_obj
        self._record = prepared.record
        self._prepared = prepared
        self._offer = offer
        self._filter = rules
        # The filter checks the instances of this request against each other. What the
        # table has of them, an earlier request had claimed, which has failed since.
        self._own = dict.fromkeys(prepared.instance_uuids, frozenset[str]())
        rules.locate(self._own, ())
        instances = rules.instances - self._own.keys()
        #: The instances of rules whose hosts have not all reported them. They are read
        #: before the filters run, which therefore count all others.
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

        Return None if there is no such instance. Otherwise, wait briefly, and have the
        filter count the other instances where they are now: instances whose claims are
        about to be released may occupy all places for a moment. Return False if members
        of the group that must be in one place stay in several.
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
        """Return which rule a claim breaks; None: the claim is kept."""
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
        """Have the filter count unreported instances where they are allocated now."""
        # Instances that a host has reported meanwhile stay there, and count there.
        unreported = self._parts.table.claims.unreported_instances(self._unreported)
        # An evacuated instance has two nodes until its old host is up again. One that
        # has left the table counts where this decision has it. Roots that are no nodes,
        # such as shared storage, have no place.
        read = functools.partial(read_roots, self._prepared, self._offer)
        nodes = {uuid: read(uuid) for uuid in unreported}
        if self._filter.compares_places:
            for _ in range(GROUP_MAX_READINGS - 1):
                previous_nodes = nodes
                # Instances that are claimed later count this one.
                nodes = {
                    uuid: previous and read(uuid)
                    for uuid, previous in previous_nodes.items()
                }
                if nodes == previous_nodes:
                    break
        table = self._parts.table
        # Where a host has reported an instance, it counts, too: it may be moving.
        reported = {
            uuid: frozenset(
                node
                for host in table.instances.reported_hosts_of(uuid)
                for node in table.nodes_of(host)
            )
            for uuid in nodes
        }
        answered = {
            uuid
            for uuid, of_instance in nodes.items()
            if reported[uuid]
            or any(table.claims.is_granted(node, uuid) for node in of_instance)
        }
        nodes = {uuid: nodes[uuid] | reported[uuid] for uuid in nodes}
        self._filter.locate({**nodes, **self._own}, answered)
