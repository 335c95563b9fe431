# SPDX-License-Identifier: Apache-2.0
"""Server groups and claims of others at the same time, in whichever process.

A filter judges by the members that the table knows. Two schedulers that decide at the
same time know nothing of each other, but Placement does: each looks, once its own claim
is granted, who else is there. Claims are atomic, so at least the later one sees the
earlier one. Whoever sees a stranger leaves; where both do, the lesser UUID waits for
the other to leave, and stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Set
from types import MappingProxyType
from typing import Any, Final

from ...filters import BaseHostFilter
from ...filters.server_group_anti_affinity import max_server_per_host
from ...objects import InstanceGroup, RequestSpec
from ..errors import PlacementUnavailable
from ..placement.candidates import AllocationRequest
from ..placement.client import PlacementClient

#: How often, and seconds apart, it is looked whether the other one has left.
_LOOKS: Final = 4
_LOOK_EVERY_S: Final = 0.1

#: Members of an affinity group whose allocations are looked at, a GET each.
_MAX_ASKED: Final = 20

_ANTI_AFFINITY: Final = "anti-affinity"
_AFFINITY: Final = "affinity"

_POLICY_OF: Final = MappingProxyType(
    {
        "ServerGroupAntiAffinityFilter": _ANTI_AFFINITY,
        "ServerGroupAffinityFilter": _AFFINITY,
    }
)


class GroupCheck:
    """See to it that a claim which was granted keeps the policy of its server group.

    Only hard policies are checked: "affinity" where the group is on no host yet, and
    "anti-affinity" with its rule ``max_server_per_host``.

    Parameters
    ----------
    filters : iterable of BaseHostFilter
        Those that judge the request: a policy that none of them asks for, as where a
        host is forced, is not enforced here either.
    own : collection of str
        The request's own instances: what is decided together is judged by filters.
    """

    def __init__(
        self,
        placement: PlacementClient,
        spec_obj: RequestSpec,
        filters: Iterable[BaseHostFilter],
        own: Collection[str],
        *,
        global_request_id: str | None = None,
    ) -> None:
        self._placement = placement
        self._global_request_id = global_request_id
        group = spec_obj.instance_group if "instance_group" in spec_obj else None
        policies = {_POLICY_OF.get(type(each).__name__) for each in filters}
        self._policy = _policy(group) if _policy(group) in policies else None
        self._max_here = 1 if group is None else max_server_per_host(group)
        members = group.members if group is not None and "members" in group else None
        self._own = frozenset(own)
        self._others = frozenset(members or ()) - self._own
        self._is_somewhere = bool(
            group is not None and "hosts" in group and group.hosts
        )
        self._elsewhere: frozenset[str] = frozenset()

    def may_try(self, node_uuid: str) -> bool:
        """Return whether a host is still one that the group may be on.

        An affinity group that came to be on a host meanwhile may be on no other.
        """
        return not self._elsewhere or node_uuid in self._elsewhere

    def may_stay(
        self,
        uuid: str,
        node_uuid: str,
        request: AllocationRequest,
        known: Callable[[], Set[str]],
    ) -> bool:
        """Return whether an instance may keep what it was granted.

        Parameters
        ----------
        request : mapping
            What was granted.
        known : callable
            Return the instances on the host that the filters knew of.

        Raises
        ------
        PlacementError
            Placement could not tell.
        """
        if not self._others or self._policy is None:
            return True
        # What it has of others beside, such as shared storage, says nothing of a host.
        granted = request["allocations"].keys()
        providers = {node_uuid} if node_uuid in granted else set(granted)
        if self._policy == _ANTI_AFFINITY:
            knows = known() | self._own
            return self._is_first(uuid, lambda: self._too_many_on(providers, knows))
        if self._is_somewhere:
            return True
        return self._is_first(uuid, lambda: self._on_others_than(providers))

    def _is_first(self, uuid: str, strangers: Callable[[], Set[str]]) -> bool:
        """Return whether no stranger is there, or none any more in a moment."""
        for number in range(_LOOKS):
            if number:
                time.sleep(_LOOK_EVERY_S)
            others = strangers()
            if not others:
                return True
            if uuid > min(others):
                return False
        return False

    def _too_many_on(self, providers: Collection[str], known: Set[str]) -> Set[str]:
        """Return the strangers that make the group too many on a host."""
        here: set[str] = set()
        for provider in providers:
            here |= self._consumers_of(provider) & (self._others | self._own)
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

    def _on_others_than(self, providers: Set[str]) -> Set[str]:
        """Return the strangers that are on other hosts, and remember which."""
        strangers, elsewhere = set(), set[str]()
        for uuid in sorted(self._others)[:_MAX_ASKED]:
            held = self._placement.allocations(
                uuid, global_request_id=self._global_request_id
            ).resources.keys()
            if held and not held & providers:
                strangers.add(uuid)
                elsewhere |= held
        self._elsewhere = frozenset(elsewhere)
        return strangers


def _policy(group: InstanceGroup | None) -> str | None:
    if group is None:
        return None
    if "policy" in group and group.policy:
        return str(group.policy)
    policies = group.policies if "policies" in group else None
    return str(policies[0]) if policies else None
