# SPDX-License-Identifier: Apache-2.0
"""The entries of a decision record: a filter's step, a claim attempt, an instance."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Final

#: The number of best hosts that a record describes.
TOP_HOSTS: Final = 5
#: The number of instances of one request whose best hosts a record describes, and
#: which its log line names.
TOP_INSTANCES: Final = 20

# Results of claim attempts in addition to the values of `ClaimResult`, and details.

#: The claim was released: the request or an attempt of it failed, or a check refused
#: the granted claim.
RELEASED: Final = "released"
#: The start of the details of releases because of a server group's policy, and because
#: of a rule about places, which follows.
MEMBER_CLAIMED_FIRST: Final = "a member of its server group claimed first"
OTHER_CLAIMED_FIRST: Final = "another instance claimed first: "
#: The chosen host had changed since it was read, and was not claimed.
OUTDATED: Final = "outdated"
#: Placement gave no answer that could be used; the details are the error.
FAILED: Final = "failed"
#: The claim was released, as another instance had got its CPUs or devices before.
COLLIDED: Final = "collided"
#: The detail of `OUTDATED` and `COLLIDED` if another instance had got the CPUs or
#: devices of the guest before.
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
        step restricts the whole request, or an earlier release of Moorage recorded it.
    """

    name: str
    n_in: int
    n_out: int
    reason: str
    instance: int | None = None


def runs_of(steps: Iterable[FilterStep]) -> list[list[FilterStep]]:
    """Return the steps of each run of the filters, in order.

    Filters run for one instance after another, and again for an instance whose
    host was not granted. The first run also has the request's restrictions.
    """
    runs: list[list[FilterStep]] = []
    names: set[str] = set()
    for step in steps:
        is_other = runs and runs[-1][-1].instance not in (None, step.instance)
        if not runs or is_other or step.name in names:
            runs.append([])
            names.clear()
        runs[-1].append(step)
        names.add(step.name)
    return runs


# Not frozen: a decision creates some 60 of them, and creating a frozen one takes three
# times as long.
@dataclasses.dataclass(slots=True)
class WeigherPart:
    """One weigher's part of a host's weight."""

    name: str
    raw: float
    normalized: float
    weighted: float


@dataclasses.dataclass(frozen=True, slots=True)
class WeighedHost:
    """One of the best hosts, its weight, and each weigher's part of the weight."""

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
        """The host, with its node unless the node is called host.domain."""
        is_same_name = not self.node or self.node.startswith(f"{self.host}.")
        return self.host if is_same_name else f"{self.host}/{self.node}"

    def is_on(self, host: WeighedHost) -> bool:
        """Return whether `host`, one of the best hosts, was chosen for the instance."""
        return (host.host, host.node) == (self.host, self.node or self.host)


@dataclasses.dataclass(frozen=True, slots=True)
class AttachmentRecord:
    """A volume or a port to which a request was to be near.

    Attributes
    ----------
    hint : str
        The hint that names the volume or port, such as near_volume; "boot_volume" or
        "ports" if the scheduler has looked it up without a hint.
    uuid : str
        The UUID of the volume or port; of the instance if its boot volume could not be
        determined.
    level : str
        The level at which the request must be near; empty: nearness was preferred.
    places : tuple of (level, place)
        Where the volume or port is; the level of service hosts is "host".
    problem : str
        Why the volume or port did not count, for end users; empty: it counted.
    detail : str
        Why the volume or port did not count, for operators.
    """

    hint: str
    uuid: str
    level: str
    places: tuple[tuple[str, str], ...] = ()
    problem: str = ""
    detail: str = ""

    def __str__(self) -> str:
        name = f"{self.hint} {self.uuid}"
        if self.problem:
            return f"{name} {'failed' if self.level else 'dropped'}: {self.detail}"
        return f"{name}: {', '.join(' '.join(place) for place in self.places)}"


@dataclasses.dataclass(frozen=True, slots=True)
class ReplayKey:
    """The values with which a decision can be repeated on its stored view.

    Attributes
    ----------
    view : str
        The id of the view.
    at : float
        When the last attempt of the decision began, seconds since the epoch.
    return_alternates : bool
        Whether the caller asked for alternates.
    random_seed : int or None
        The seed of all random choices; None: nothing was chosen at random.
    contention : float
        The share of refused claims, which widens the choice of hosts.
    n_claims : int
        The number of claims that earlier attempts of the decision recorded.
    """

    view: str
    at: float
    return_alternates: bool
    random_seed: int | None
    contention: float
    n_claims: int
