# SPDX-License-Identifier: Apache-2.0
"""The server group of a request, and the one policy that applies to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from ..errors import InvalidRequest, excerpt
from .flavor_and_image import set_field

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
        None: the request does not have it.
    policy : str or None
        One of the four policies; None: none that is known.
    members : frozenset of str
        UUIDs of its instances.
    hosts : frozenset of str
        Service hosts that it is on, as the conductor knows.
    max_per_host : int
        Most members on a host, by the rule of policy anti-affinity.
    """

    policy: str | None
    uuid: str | None = None
    members: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    max_per_host: int = 1

    @classmethod
    def read(cls, group: InstanceGroup) -> Self:
        """Read the object in a request.

        Raises
        ------
        InvalidRequest
            The rule of policy anti-affinity is not a number of at least 1.
        """
        policy = _policy(group)
        return cls(
            policy=policy,
            uuid=set_field(group, "uuid"),
            members=frozenset(set_field(group, "members") or ()),
            hosts=frozenset(set_field(group, "hosts") or ()),
            max_per_host=_max_per_host(group) if policy == ANTI_AFFINITY else 1,
        )


def _policy(group: InstanceGroup) -> str | None:
    """Return ``policy``, or else the first that is known of the old list ``policies``.

    nova 34 sends both, and they agree; before InstanceGroup 1.11 there was only the
    list, which could also have "legacy". Where they disagree, the list is the old one.
    """
    named = set_field(group, "policy")
    listed = [named] if named else set_field(group, "policies") or ()
    return next((policy for policy in listed if policy in _POLICIES), None)


def _max_per_host(group: InstanceGroup) -> int:
    # Rules are text on the wire.
    text = (set_field(group, "_rules") or {}).get(_RULE, "1")
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
