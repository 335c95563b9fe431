# SPDX-License-Identifier: Apache-2.0
"""The server group of a request, and the one policy that applies to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import get_field

if TYPE_CHECKING:
    from ...objects import InstanceGroup

AFFINITY: Final = "affinity"
ANTI_AFFINITY: Final = "anti-affinity"
SOFT_AFFINITY: Final = "soft-affinity"
SOFT_ANTI_AFFINITY: Final = "soft-anti-affinity"

_POLICIES: Final = (AFFINITY, ANTI_AFFINITY, SOFT_AFFINITY, SOFT_ANTI_AFFINITY)
_RULE: Final = "max_server_per_host"


@dataclass(frozen=True, slots=True)
class ServerGroup:
    """A server group.

    Attributes
    ----------
    uuid : str or None
        None: the request does not have the group's UUID.
    policy : str or None
        One of the four policies; None: the group has none of them.
    members : frozenset of str
        UUIDs of its instances.
    hosts : frozenset of str
        Service hosts of its instances, as far as the conductor knows them.
    max_per_host : int
        The most members that policy anti-affinity allows on one host.
    """

    policy: str | None
    uuid: str | None = None
    members: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    max_per_host: int = 1

    @classmethod
    def read(cls, group: InstanceGroup) -> Self:
        """Read the InstanceGroup of a request.

        Raises
        ------
        InvalidRequest
            The rule of policy anti-affinity is not a number of at least 1.
        """
        policy = _policy(group)
        return cls(
            policy=policy,
            uuid=get_field(group, "uuid"),
            members=frozenset(get_field(group, "members") or ()),
            hosts=frozenset(get_field(group, "hosts") or ()),
            max_per_host=_max_per_host(group) if policy == ANTI_AFFINITY else 1,
        )


def _policy(group: InstanceGroup) -> str | None:
    """Return the field ``policy`` or, without it, the first known of ``policies``.

    nova 34 sends both, and they agree; before InstanceGroup 1.11 there was only the
    list ``policies``, which could also have "legacy". Where both fields are set and
    disagree, ``policy`` counts, because the list is outdated.
    """
    policy_field = get_field(group, "policy")
    policies = [policy_field] if policy_field else get_field(group, "policies") or ()
    return next((policy for policy in policies if policy in _POLICIES), None)


def _max_per_host(group: InstanceGroup) -> int:
    # Rules are text on the wire.
    text = (get_field(group, "_rules") or {}).get(_RULE, "1")
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise InvalidRequest(
            f"instance_group.rules: {_RULE} is {excerpt(text)}; it must be a number "
            "of at least 1"
        )
    return number
