# SPDX-License-Identifier: Apache-2.0
"""Server groups whose members are claimed concurrently, in one or several processes.

A filter decides by the members in the host table. Two schedulers that decide at the
same time do not know of each other's claims, but Placement does: once its own claim is
granted, each scheduler reads from Placement where the other members are. Claims are
atomic, so that the scheduler of the later claim, or both, see the other claim.

A member that is in conflict with no other member keeps its claim. If there is a
conflict, the claim of the member is released. Only the member with the lowest UUID
first waits until the claims of the others are released; it then keeps its own.

A member of an affinity group whose claim was released follows the others to their host,
which may be a host on which its own claim was released before. If the others keep
claims on several hosts, no host is selected for the member.

The policies are about service hosts, as in nova: all nodes of an Ironic service are one
host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Set
from types import MappingProxyType
from typing import Final

from ...candidates import Offer
from ...hosts import HostBatch
from ...placement.allocations.claims import ClaimAnswer
from ...placement.allocations.limits import (
    ANTI_GROUP_MAX_ROUNDS,
    GROUP_MAX_READS,
    GROUP_MAX_ROUNDS,
    GROUP_PAUSE_S,
    GROUP_SPLIT_PAUSES_S,
)
from ...placement.members import read_as
from ...request.server_group import AFFINITY, ANTI_AFFINITY, ServerGroup
from ..instances import Assignment
from ..prepared import PreparedRequest
from ..record import MEMBER_CLAIMED_FIRST, RELEASED
from .checks import ClaimCheck, Excluded, Refusal, read_roots

#: The filters that enforce the policies that are checked.
FILTER_OF_POLICY: Final = MappingProxyType(
    {
        ANTI_AFFINITY: "ServerGroupAntiAffinityFilter",
        AFFINITY: "ServerGroupAffinityFilter",
    }
)


class GroupCheck(ClaimCheck):
    """Ensures that a granted claim conforms to the policy of its server group.

    Only hard policies are checked: "affinity" where the group is on no host yet, and
    "anti-affinity" with its rule ``max_server_per_host``.
    """

    def __init__(
        self, prepared: PreparedRequest, offer: Offer, group: ServerGroup
    ) -> None:
        self._prepared = prepared
        self._waiter = prepared.parts.waiter
        self._record = prepared.record
        self._offer = offer
        table = prepared.parts.table
        self._nodes_beside = table.nodes_beside
        self._policy = group.policy
        self._max_per_host = group.max_per_host
        #: The instances of this request: filters check them against each other.
        self._requested = frozenset(prepared.instance_uuids)
        self._other_members = group.members - self._requested
        #: The hosts of other members by the host table, read before the filters run,
        #: which may not count members that are added to the table later.
        self._known_hosts = {
            member: table.instances.hosts_of(member) for member in self._other_members
        }
        self._has_hosts = bool(group.hosts)
        #: The compute nodes to which an instance must follow its affinity group; empty:
        #: any.
        self._allowed_nodes: frozenset[str] = frozenset()
        #: The remaining pauses until all other members are on one host.
        self._split_pauses = iter(GROUP_SPLIT_PAUSES_S)
        self._is_split = False
        self._has_released = False
        #: The nodes of the hosts on which a claim was released in the current round.
        self._avoided_nodes: frozenset[str] = frozenset()
        #: The nodes of the host on which a member of this request keeps its claim.
        self._kept_on: frozenset[str] = frozenset()

    def may_try(self, assignment: Assignment) -> bool:
        """Return whether the group's policy allows to try a host."""
        node_uuid = assignment.value("uuid")
        if self._is_split or node_uuid in self._avoided_nodes:
            return False
        return not self._allowed_nodes or node_uuid in self._allowed_nodes

    def may_retry(self, n_rounds: int) -> bool | None:
        """Return whether to try all hosts again if a claim was released in this round.

        Return None if no claim was released. Otherwise, wait briefly; then restrict an
        affinity group to its current host. While the group is on several hosts, wait
        for claims that are about to be released. If it stays on several, return False.
        """
        if not self._has_released:
            return None
        self._has_released = False
        self._avoided_nodes = frozenset()
        self._waiter.sleep(GROUP_PAUSE_S)
        if self._policy == AFFINITY:
            self._allowed_nodes = self._kept_on or self._host_of_others()
            return n_rounds < GROUP_MAX_ROUNDS and not self._is_split
        return n_rounds < ANTI_GROUP_MAX_ROUNDS

    def after(
        self, assignment: Assignment, answer: ClaimAnswer, eligible: HostBatch
    ) -> Refusal | None:
        """Return a refusal if the policy does not hold with the other members.

        Raises
        ------
        PlacementError
            Placement could not be read.
        """
        with self._record.timed("group"):
            if not self._other_members:
                return None
            if self._may_keep(assignment):
                return None
        return Refusal(RELEASED, [MEMBER_CLAIMED_FIRST], Excluded.NOTHING)

    def _may_keep(self, assignment: Assignment) -> bool:
        """Return whether an instance may keep its claim."""
        uuid, node_uuid = assignment.instance_uuid, assignment.value("uuid")
        host = assignment.value("host")
        # Resources of other providers, such as shared storage, do not identify a host.
        nodes = self._nodes_beside([node_uuid])
        if self._policy == ANTI_AFFINITY:
            members_on_host = {
                u for u, hosts in self._known_hosts.items() if host in hosts
            }
            counted_members = members_on_host | self._requested
            granted = self._offer.request(assignment.candidate)["allocations"]
            uses_node = node_uuid in granted
            is_kept = self._is_unopposed(
                uuid, lambda: self._too_many_on(nodes, counted_members, uses_node)
            )
            self._avoided_nodes |= frozenset() if is_kept else nodes
            return is_kept
        if self._has_hosts or self._kept_on & nodes:
            return True
        members_to_read = dict.fromkeys(self._other_members, frozenset[str]())

        def members_on_other_hosts() -> Set[str]:
            # Members that are claimed later see this member: read again only those that
            # were elsewhere at the last reading.
            roots_of_member = self._read_roots(members_to_read)
            members_elsewhere = {
                u: roots for u, roots in roots_of_member.items() if not roots & nodes
            }
            members_to_read.clear()
            members_to_read.update(members_elsewhere)
            return members_to_read.keys()

        if self._is_unopposed(uuid, members_on_other_hosts):
            self._kept_on = nodes
            return True
        self._allowed_nodes = self._nodes_of_lowest(members_to_read)
        return False

    def _is_unopposed(
        self, uuid: str, read_conflicting: Callable[[], Set[str]]
    ) -> bool:
        """Return whether no member is in conflict with an instance.

        Only if the instance has the lowest UUID, wait until the others are released.

        Parameters
        ----------
        read_conflicting : callable
            Reads and returns the members that are in conflict with the instance.
        """
        for number in range(GROUP_MAX_READS):
            if number:
                self._waiter.sleep(GROUP_PAUSE_S)
            members = read_conflicting()
            if not members:
                return True
            if uuid > min(members):
                break
        self._has_released = True
        return False

    def _too_many_on(
        self, nodes: Collection[str], known: Set[str], uses_node: bool
    ) -> Set[str]:
        """Return the members on a host that filters did not count.

        Return no members if the group does not exceed its limit on the host.

        Parameters
        ----------
        nodes : collection of str
            The UUIDs of the nodes of the host.
        known : set of str
            The members that the filters have counted on the host.
        uses_node : bool
            Whether the instance uses the provider of its node; otherwise it uses
            children of it only, as the other members may.
        """
        members = self._other_members | self._requested
        members_on_host: set[str] = set()
        if uses_node and len(nodes) <= len(members):
            for node in nodes:
                members_on_host |= self._consumers_of(node) & members
        else:
            roots_of_member = self._read_roots(members)
            members_on_host = {
                uuid
                for uuid, roots in roots_of_member.items()
                if not roots.isdisjoint(nodes)
            }
        uncounted = members_on_host - known
        return uncounted if len(members_on_host) > self._max_per_host else frozenset()

    def _consumers_of(self, provider: str) -> Set[str]:
        consumers: Set[str] = read_as(
            self._prepared.parts.placement,
            f"/resource_providers/{provider}/allocations",
            lambda body: body["allocations"].keys(),
            self._prepared.caller.global_request_id,
        )
        return consumers

    def _read_roots(self, members: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the root providers of each member's allocations, if it has any."""
        roots_of_member = {}
        for uuid in sorted(members):
            if roots := read_roots(self._prepared, self._offer, uuid):
                roots_of_member[uuid] = roots
        return roots_of_member

    def _host_of_others(self) -> frozenset[str]:
        """Wait until all other members are on one host; return the nodes of the host.

        If they stay on several hosts, set `_is_split`, and return no nodes.
        """
        while True:
            roots_of_member = self._read_roots(self._other_members)
            nodes = self._nodes_of_lowest(roots_of_member)
            if all(not nodes.isdisjoint(roots) for roots in roots_of_member.values()):
                return nodes
            pause_s = next(self._split_pauses, None)
            if pause_s is None:
                self._is_split = True
                return frozenset()
            self._waiter.sleep(pause_s)

    def _nodes_of_lowest(self, held: Mapping[str, frozenset[str]]) -> frozenset[str]:
        """Return the nodes of the host of the member with the lowest UUID.

        Return none if there are no members.
        """
        return self._nodes_beside(held[min(held)]) if held else frozenset()
