# SPDX-License-Identifier: Apache-2.0
"""Server groups whose members are claimed concurrently, in one or several processes.

A filter decides by the members that the table knows. Two schedulers that decide at the
same time do not know of each other, but Placement does: once its own claim is granted,
each reads where the other members are. Claims are atomic, so at least the later one
sees the earlier one. A member that finds no conflicting member stays. One that does
leaves, except that the one with the lowest UUID first waits for the others to leave,
and then stays. A member of an affinity group that has left follows the others to their
host, which may be one that it left before. If they stay on several hosts, no host is
right: the member is refused.

The policies are about service hosts, as in nova: all nodes of an Ironic service are one
host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from types import MappingProxyType
from typing import Any, Final

from ....filters import BaseHostFilter
from ...candidates import AllocationRequest
from ...errors import PlacementUnavailable
from ...hosts import HostTable
from ...placement.allocations.limits import (
    ANTI_GROUP_MAX_ROUNDS,
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
    GROUP_SPLIT_PAUSES_S,
)
from ...placement.client import PlacementClient
from ...request.server_group import AFFINITY, ANTI_AFFINITY, ServerGroup
from ...waiting import Waiter

_POLICY_OF: Final = MappingProxyType(
    {
        "ServerGroupAntiAffinityFilter": ANTI_AFFINITY,
        "ServerGroupAffinityFilter": AFFINITY,
    }
)


class GroupCheck:
    """Ensures that a granted claim conforms to the policy of its server group.

    Only hard policies are checked: "affinity" where the group is on no host yet, and
    "anti-affinity" with its rule ``max_server_per_host``.

    Parameters
    ----------
    filters : iterable of BaseHostFilter
        Those that apply to the request: a policy that none of them enforces, such as
        where a host is forced, is not enforced here either.
    own : collection of str
        The request's own instances: filters handle what is decided together.
    table : HostTable
        Where the members are that it knows, and the nodes of a host.
    """

    def __init__(
        self,
        placement: PlacementClient,
        group: ServerGroup | None,
        filters: Iterable[BaseHostFilter],
        own: Collection[str],
        *,
        table: HostTable,
        waiter: Waiter,
        global_request_id: str | None = None,
    ) -> None:
        self._placement = placement
        self._waiter = waiter
        self._global_request_id = global_request_id
        self._nodes_beside = table.nodes_beside
        policies = {_POLICY_OF.get(type(each).__name__) for each in filters}
        self._policy = group.policy if group and group.policy in policies else None
        self._max_here = 1 if group is None else group.max_per_host
        self._own = frozenset(own)
        self._others = frozenset() if group is None else group.members - self._own
        #: Where the table has other members, read before the filters run: they may not
        #: have seen a member that is added later.
        self._known = {
            member: table.instances.hosts_of(member) for member in self._others
        }
        self._is_somewhere = bool(group and group.hosts)
        #: Providers that the group uses, where the instance must follow it.
        self._targets: frozenset[str] = frozenset()
        #: The pauses that are left for the others to gather on one host.
        self._split_pauses = iter(GROUP_SPLIT_PAUSES_S)
        self._is_split = False
        self._has_left = False
        #: The nodes of the hosts that were left in the current round.
        self._left: frozenset[str] = frozenset()
        #: Providers on which a member of this request stays.
        self._settled: frozenset[str] = frozenset()

    def may_try(self, node_uuid: str) -> bool:
        """Return whether the group's policy allows to try a host."""
        if self._is_split or node_uuid in self._left:
            return False
        return not self._targets or node_uuid in self._targets

    @property
    def max_rounds(self) -> int:
        """The number of rounds over all hosts for a member that had to leave one."""
        return GROUP_MAX_ROUNDS if self._policy == AFFINITY else ANTI_GROUP_MAX_ROUNDS

    def retarget_after_leaving(self) -> bool:
        """Return whether a member left a host since the last call, and may try again.

        If so, wait briefly, and restrict an affinity group to its current host; while
        it is on several, wait for members that are about to leave. No host may be
        tried if it stays split.
        """
        if not self._has_left:
            return False
        self._has_left = False
        self._left = frozenset()
        self._waiter.sleep(GROUP_PAUSE_S)
        if self._policy == AFFINITY:
            self._targets = self._settled or self._host_of_others()
        return not self._is_split

    def may_stay(
        self,
        uuid: str,
        node_uuid: str,
        host: str,
        request: AllocationRequest,
    ) -> bool:
        """Return whether an instance may keep its claim.

        Parameters
        ----------
        request : mapping
            The granted allocations.

        Raises
        ------
        PlacementError
            Placement could not be read.
        """
        if not self._others or self._policy is None:
            return True
        # Resources of other providers, such as shared storage, do not identify a host.
        granted = request["allocations"].keys()
        providers = self._nodes_beside([node_uuid])
        if node_uuid not in granted:
            providers = frozenset(granted)
        if self._policy == ANTI_AFFINITY:
            here = {u for u, hosts in self._known.items() if host in hosts}
            knows = here | self._own
            stays = self._is_unopposed(
                uuid, lambda: self._too_many_on(providers, knows)
            )
            self._left |= frozenset() if stays else providers
            return stays
        if self._is_somewhere or self._settled & providers:
            return True
        strangers = dict.fromkeys(self._others, frozenset[str]())

        def elsewhere() -> Set[str]:
            # Members that come later see this one and leave: check only those seen.
            held = self._held(strangers)
            seen = {u: on for u, on in held.items() if not on & providers}
            strangers.clear()
            strangers.update(seen)
            return strangers.keys()

        if self._is_unopposed(uuid, elsewhere):
            self._settled = providers
            return True
        self._targets = self._nodes_of_lowest(strangers)
        return False

    def _is_unopposed(self, uuid: str, strangers: Callable[[], Set[str]]) -> bool:
        """Return whether there is no stranger, or none is left after a short wait."""
        for number in range(GROUP_MAX_READS):
            if number:
                self._waiter.sleep(GROUP_PAUSE_S)
            others = strangers()
            if not others:
                return True
            if uuid > min(others):
                break
        self._has_left = True
        return False

    def _too_many_on(self, providers: Collection[str], known: Set[str]) -> Set[str]:
        """Return the strangers with which the group exceeds its limit on a host."""
        members = self._others | self._own
        here: set[str] = set()
        if len(providers) > len(members):
            held = self._held(members)
            here = {uuid for uuid, on in held.items() if not on.isdisjoint(providers)}
        else:
            for provider in providers:
                here |= self._consumers_of(provider) & members
        strangers = here - known
        return strangers if len(here) > self._max_here else frozenset()

    def _consumers_of(self, provider: str) -> Set[str]:
        body: Any = self._placement.read(
            f"/resource_providers/{provider}/allocations",
            global_request_id=self._global_request_id,
        )
        held = body.get("allocations") if isinstance(body, dict) else None
        if not isinstance(held, dict):
            raise PlacementUnavailable(
                f"GET /resource_providers/{provider}/allocations: the answer has no "
                "allocations by consumer, as Placement's has"
            )
        return held.keys()

    def _held(self, members: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the providers by member, for members that hold any."""
        found = {}
        for uuid in sorted(members):
            held = self._placement.allocations(
                uuid, global_request_id=self._global_request_id
            )
            if held.resources:
                found[uuid] = frozenset(held.resources)
        return found

    def _host_of_others(self) -> frozenset[str]:
        """Return the nodes of the host that all others are on, once they are."""
        while True:
            held = self._held(self._others)
            nodes = self._nodes_of_lowest(held)
            if all(not nodes.isdisjoint(on) for on in held.values()):
                return nodes
            pause_s = next(self._split_pauses, None)
            if pause_s is None:
                self._is_split = True
                return frozenset()
            self._waiter.sleep(pause_s)

    def _nodes_of_lowest(self, held: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the host of the member with the lowest UUID; empty: no members."""
        return self._nodes_beside(held[min(held)]) if held else frozenset()
