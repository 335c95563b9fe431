# SPDX-License-Identifier: Apache-2.0
"""The entries of a decision record: a filter's step, a claim attempt, an instance."""

from __future__ import annotations

import dataclasses
import enum
from typing import Final

#: The number of best hosts that a record describes.
TOP_HOSTS: Final = 5
#: Instances of one request of which it does, and which the log line names.
TOP_INSTANCES: Final = 20

#: A further result of claims: released, as the request or its first attempt failed.
RELEASED: Final = "released"
#: The details of releases because of a server group's policy, and of a rule about
#: places, which follows.
MEMBER_CLAIMED_FIRST: Final = "a member of its server group claimed first"
OTHER_CLAIMED_FIRST: Final = "another instance claimed first: "
#: The same: the chosen host had changed since it was read, and was not claimed.
OUTDATED: Final = "outdated"
#: The same: Placement gave no answer that could be used; the details are the error.
FAILED: Final = "failed"
#: The same: released, as another instance got its CPUs or devices before.
COLLIDED: Final = "collided"
#: The detail of both where a guest's CPUs or devices were claimed before.
DEVICES_CLAIMED_FIRST: Final = "another instance got its CPUs or PCI devices first"


class Outcome(enum.StrEnum):
    """The outcome of a decision."""

    SELECTED = "selected"
    NO_VALID_HOST = "no valid host"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True, slots=True)
class FilterStep:
    """The numbers of hosts before and after one filter, and its reason to reject.

    Attributes
    ----------
    instance : int or None
        The position in the request of the instance for which the filter ran; None: the
        step restricts the whole request, or an earlier release recorded it.
    """

    name: str
    n_in: int
    n_out: int
    reason: str
    instance: int | None = None


# Not frozen: a decision creates some 60, and a frozen one takes three times as long.
@dataclasses.dataclass(slots=True)
class WeigherPart:
    """One weigher's part of a host's weight."""

    name: str
    raw: float
    normalized: float
    weighted: float


@dataclasses.dataclass(frozen=True, slots=True)
class WeighedHost:
    """One of the best hosts, with the parts that add up to its weight."""

    host: str
    node: str
    weight: float
    parts: tuple[WeigherPart, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ClaimAttempt:
    """Placement's answer to a claim, or why claims were released or not sent.

    Attributes
    ----------
    result : str
        A value of `ClaimResult`, or `FAILED`, `RELEASED`, `OUTDATED` or `COLLIDED`.
    at_ms : float or None
        Milliseconds from the start of the decision to the answer; None: unknown.
    """

    instance_uuids: tuple[str, ...]
    hosts: tuple[str, ...]
    result: str
    n_attempts: int
    detail: str
    at_ms: float | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class InstanceRecord:
    """The decision for one instance.

    Attributes
    ----------
    top_hosts : tuple of WeighedHost
        The best hosts; none for instances beyond the first `TOP_INSTANCES`.
    node : str
        The compute node; empty if it has the name of its host.
    """

    instance_uuid: str | None
    host: str
    weight: float
    top_hosts: tuple[WeighedHost, ...]
    alternates: tuple[str, ...] = ()
    node: str = ""

    @property
    def host_and_node(self) -> str:
        """The host, with its node unless that is the host's name with a domain."""
        is_own = not self.node or self.node.startswith(f"{self.host}.")
        return self.host if is_own else f"{self.host}/{self.node}"

    def is_on(self, host: WeighedHost) -> bool:
        """Return whether one of the best hosts was chosen."""
        return (host.host, host.node) == (self.host, self.node or self.host)


@dataclasses.dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """A volume or a port to which a request was to be near.

    Attributes
    ----------
    hint : str
        Such as near_volume; boot_volume and ports are automatic.
    uuid : str
        Of the volume or port; of the instance if its volume could not be read.
    level : str
        The level at which its place was required; empty: it was preferred.
    places : tuple of (level, place)
        Where it is; the level of service hosts is "host".
    problem : str
        Why it did not count, for end users; empty: it did.
    detail : str
        The same for operators.
    """

    hint: str
    uuid: str
    level: str
    places: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    detail: str = ""

    def __str__(self) -> str:
        named = f"{self.hint} {self.uuid}"
        if self.problem:
            return f"{named} {'failed' if self.level else 'dropped'}: {self.detail}"
        return f"{named}: {', '.join(' '.join(place) for place in self.places)}"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayKey:
    """By what a decision can be repeated on the view that is stored of it.

    Attributes
    ----------
    view : str
        The id of the view.
    at : float
        When the last pass of the decision began, seconds since the epoch.
    return_alternates : bool
    random_seed : int or None
        Of all that was chosen at random; None: nothing was.
    contention : float
        The share of refused claims, which widens the choice of hosts.
    n_claims : int
        Claim attempts of earlier passes.
    """

    view: str
    at: float
    return_alternates: bool
    random_seed: int | None
    contention: float
    n_claims: int
