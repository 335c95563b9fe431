# SPDX-License-Identifier: Apache-2.0
"""Rules about places, checked again after a claim against concurrent claims.

As for server groups on a host (:mod:`.groups`): the filter counts the instances that
the table has. Those that no host has reported may be elsewhere by now, as a claim that
another scheduler announced may come to nothing. So after the claim their allocations
are read, and the rules are evaluated once more with them. Claims are atomic, so at
least the later of two claims sees the earlier one.

Of the instances that break a rule together, only as many leave as must, those with the
highest UUIDs; the others wait for that, and leave if it does not happen, as they came
late. So the place with the fewest instances never loses one, on which others may rely
by ``spread_level``. That rule compares places: their instances are read until two
readings agree, so that none is counted at two of its places, or at none.

An instance that has left is filtered again, with the others counted where they are; if
they are everywhere, it waits for some to leave. Where it has to be in one place with
members of its group that stay in several, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ....filters import BaseHostFilter
from ....filters.locality import LocalityFilter
from ....objects import RequestSpec
from ...hosts import HostBatch
from ...locality import Standing
from ...placement.allocations.limits import (
    GROUP_MAX_READINGS,
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
    GROUP_SPLIT_PAUSES_S,
)
from ..instances import spec_of_instance
from ..parts import Parts


class LevelCheck:
    """Ensures that a granted claim conforms to the request's rules about places.

    Parameters
    ----------
    filters : sequence of BaseHostFilter
        Those that apply to the request, prepared for it.
    own : collection of str
        The request's own instances: the filter handles what is decided together.
    eligible : callable
        Returns the hosts that passed all other filters for the current instance.
    """

    def __init__(
        self,
        parts: Parts,
        spec_obj: RequestSpec,
        filters: Sequence[BaseHostFilter],
        own: Collection[str],
        eligible: Callable[[], HostBatch],
        *,
        global_request_id: str | None = None,
    ) -> None:
        self._parts = parts
        self._spec = spec_obj
        self._eligible = eligible
        self._global_request_id = global_request_id
        ours = (each for each in filters if isinstance(each, LocalityFilter))
        self._filter = next(ours, None)
        others = (
            frozenset() if self._filter is None else self._filter.instances - {*own}
        )
        #: Read before the filters run, which therefore count all others.
        self._unreported = parts.table.unreported(others)
        #: The pauses that are left for members to gather in one place.
        self._split_pauses = iter(GROUP_SPLIT_PAUSES_S)
        self._has_left = False
        #: The instances that have left a host and have no other one yet.
        self._moving: set[str] = set()
        self._has_settled = False
        #: Why an instance had to leave, for the record.
        self.why = ""

    def may_try(self) -> bool:
        """Return whether to try further hosts before the filter runs again."""
        return not self._has_left

    def should_retry(self) -> bool:
        """Return whether an instance has left a host and has no other one yet.

        If so, wait briefly, and count the others where they are now: those that are
        about to leave may take up all places for a moment. If members stay apart that
        it has to be with, no host may be tried.
        """
        if not self._moving:
            return False
        assert self._filter is not None
        self._parts.waiter.sleep(GROUP_PAUSE_S)
        self._locate()
        while self._filter.is_group_split(self._eligible(), self._spec):
            pause_s = next(self._split_pauses, None)
            if pause_s is None:
                return False
            self._parts.waiter.sleep(pause_s)
            self._locate()
        self._has_left = False
        return True

    @property
    def is_active(self) -> bool:
        """Whether rules depend on instances that no host has reported."""
        return bool(self._unreported)

    @property
    def max_rounds(self) -> int:
        """The number of rounds for an instance that had to leave a host."""
        return GROUP_MAX_ROUNDS

    def may_stay(self, uuid: str, node_uuid: str) -> bool:
        """Return whether an instance may keep its claim on a compute node.

        Raises
        ------
        PlacementError
            Placement could not be read.
        """
        if self._filter is None or not self._unreported:
            return True
        mine = spec_of_instance(self._spec, uuid)
        for number in range(GROUP_MAX_READS):
            if number:
                self._parts.waiter.sleep(GROUP_PAUSE_S)
            self._locate()
            hosts = self._eligible()
            standing = self._filter.standing(
                hosts, node_uuid, mine, is_following=self._has_settled
            )
            if standing is Standing.STAYS:
                self._has_settled = True
                self._moving.discard(uuid)
                return True
            self.why = self._filter.describe(hosts, node_uuid, mine)
            if standing is Standing.LEAVES:
                break
        self._has_left = True
        self._moving.add(uuid)
        return False

    def _locate(self) -> None:
        """Have the filter count the others where Placement has them now, if at all."""
        assert self._filter is not None
        # Those that a host has reported by now have settled: they count there.
        unreported = self._parts.table.unreported(self._unreported)
        nodes = {uuid: self._nodes_of(uuid) for uuid in unreported}
        if self._filter.compares_places:
            for _ in range(GROUP_MAX_READINGS - 1):
                before = nodes
                # Those that come later see this one.
                nodes = {u: some and self._nodes_of(u) for u, some in before.items()}
                if nodes == before:
                    break
        is_granted = self._parts.table.claims.is_granted
        settled = {
            uuid
            for uuid, some in nodes.items()
            if any(is_granted(node, uuid) for node in some)
        }
        self._filter.locate(nodes, settled)

    def _nodes_of(self, uuid: str) -> frozenset[str]:
        """Return the compute nodes on which an instance holds allocations.

        One that was evacuated has two until its old host is up again.
        """
        held = self._parts.placement.allocations(
            uuid, global_request_id=self._global_request_id
        )
        return frozenset(filter(self._parts.table.has_node, held.resources))
