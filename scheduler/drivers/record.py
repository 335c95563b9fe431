# SPDX-License-Identifier: Apache-2.0
"""The record of a decision, which explains it to operators, and its entries."""

from __future__ import annotations

import dataclasses
import enum
import time
from collections.abc import Iterable
from typing import Any, Final

from ...objects import RequestSpec

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


@dataclasses.dataclass(slots=True)
class DecisionRecord:
    """One call of select_destinations, step by step.

    Attributes
    ----------
    started_at : float
        Seconds since the epoch.
    queries : list of str
        The queries that were sent to Placement.
    n_candidates : int or None
        Allocation candidates in all answers; None: there was no answer.
    no_answer : str
        Why there was no answer, if that is known.
    is_truncated : bool
        Whether the limit may have truncated an answer.
    n_hosts : int
        Hosts of the candidates that have a row in the host table.
    n_without_row : int
        Root providers of candidates without a row in the host table: sharing providers,
        and hosts that the source does not know.
    view_revision : int or None
        The revision of the host table that was read.
    view_age_s : float or None
        Seconds since the oldest part of the host table was read from the source; None:
        the source guarantees that the table is current.
    steps : list of FilterStep
        The request's restrictions and the filters that ran, in order: first those for
        the first instance, then those for later instances. See `runs_of`.
    times_ms : dict
        Milliseconds by step; "total" is the whole decision.
    reason : str
        Why no hosts were selected, for operators: it may contain host names.
    user_message : str
        The message of the error that the caller got, which may reach an end user.
    n_known_hosts : int
        All hosts that the scheduler knew.
    note : str
        How the driver chose the hosts, if the driver has noted it.
    origins : dict
        By weigher, where its multiplier comes from if not from its option, and which
        version of flavors it used; weighers without either are not in it.
    replay : ReplayKey or None
        The values with which the decision can be replayed; None: no view is stored of
        the decision.
    attachments : list of AttachmentRecord
        The volumes and ports that were looked up, each with its places or the reason
        why it did not count.
    request : RequestSpec or None
        The request as the caller sent it, apart from the providers that a claim has
        set, and with the members of other server groups that its hints name. A
        `DecisionLog` removes it once all subscribers have read it: the requests of a
        thousand records would need tens of megabytes.
    """

    request_id: str | None
    instance_uuids: tuple[str, ...]
    n_instances: int
    started_at: float
    queries: list[str] = dataclasses.field(default_factory=list)
    n_candidates: int | None = None
    no_answer: str = ""
    is_truncated: bool = False
    n_hosts: int = 0
    n_without_row: int = 0
    view_revision: int | None = None
    view_age_s: float | None = None
    steps: list[FilterStep] = dataclasses.field(default_factory=list)
    instances: list[InstanceRecord] = dataclasses.field(default_factory=list)
    claims: list[ClaimAttempt] = dataclasses.field(default_factory=list)
    times_ms: dict[str, float] = dataclasses.field(default_factory=dict)
    outcome: Outcome | None = None
    reason: str = ""
    user_message: str = ""
    project_id: str | None = None
    n_known_hosts: int = 0
    request: RequestSpec | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    # New fields come last, so that stored records are compressed as well as before.
    replay: ReplayKey | None = None
    attachments: list[AttachmentRecord] = dataclasses.field(default_factory=list)
    note: str = ""
    origins: dict[str, str] = dataclasses.field(default_factory=dict)

    def timed(self, step: str) -> _Timed:
        """Return a context manager that adds its duration to the time of a step."""
        return _Timed(self.times_ms, step)

    def elapsed_ms(self, now: float) -> float:
        """Return the milliseconds from `started_at` to `now`."""
        return round(max(0.0, now - self.started_at) * 1000, 1)

    def restart(self) -> None:
        """Remove filter steps, instances and note, before hosts are selected again.

        Called when a decision is repeated with newer candidates. Queries, claims and
        times stay: they describe the whole call.
        """
        self.steps.clear()
        self.instances.clear()
        self.note = ""

    def position_of(self, instance_uuid: str, default: int) -> int:
        """Return the position of an instance in the request.

        Parameters
        ----------
        default : int
            The position if all instances are placed in order; returned if the request
            does not name the instance.
        """
        uuids = self.instance_uuids
        if uuids[default : default + 1] == (instance_uuid,):
            return default
        return uuids.index(instance_uuid) if instance_uuid in uuids else default

    def to_dict(self) -> dict[str, Any]:
        """Return the record without the request, as plain data for JSON."""
        data = dataclasses.asdict(dataclasses.replace(self, request=None))
        del data["request"]
        return data

    def __str__(self) -> str:
        return self.summary()

    def summary(self) -> str:
        """Return the record as one line, for operators: it contains host names."""
        why = f" ({self.reason.strip()})" if self.reason.strip() else ""
        dropped = "".join(f"; {a}" for a in self.attachments if a.problem)
        note = f"{self.note}; " if self.note else ""
        n_attempts = sum(claim.n_attempts for claim in self.claims)
        claimed = f"{n_attempts} claim attempt(s)" if self.claims else "nothing claimed"
        times = ", ".join(f"{step} {ms:.1f} ms" for step, ms in self.times_ms.items())
        hint = ""
        if self.outcome is not Outcome.SELECTED and self.request_id:
            hint = f'; see "moorage explain {self.request_id}"'
        return (
            f"{self.request_id or '-'}: {self.n_instances} instance(s) "
            f"{self.outcome or 'open'}{why}; {self._funnel()}{self._chosen()}"
            f"{dropped}; {note}{claimed}; {times}{hint}"
        )

    def _funnel(self) -> str:
        truncated = " (truncated)" if self.is_truncated else ""
        answer = (
            self.no_answer or "Placement not queried"
            if self.n_candidates is None
            else f"{self.n_candidates} candidate(s){truncated}"
        )
        # A step that is repeated for later instances is written once.
        n_hosts: dict[str, list[str]] = {}
        for step in self.steps:
            counts = n_hosts.setdefault(step.name, [])
            if counts[-1:] != [str(step.n_out)]:
                counts.append(str(step.n_out))
        funnel = "".join(f" > {name} {'/'.join(n)}" for name, n in n_hosts.items())
        age = "" if self.view_age_s is None else f" {self.view_age_s:.1f} s old"
        return f"{answer}, {self.n_hosts} host(s){age}{funnel}"

    def _chosen(self) -> str:
        chosen = "".join(
            f"; {i.instance_uuid} on {i.host_and_node} ({i.weight:.3f}), "
            f"alternates [{', '.join(i.alternates)}]"
            for i in self.instances[:TOP_INSTANCES]
        )
        n_unnamed = len(self.instances) - TOP_INSTANCES
        return f"{chosen}; and {n_unnamed} more" if n_unnamed > 0 else chosen


@dataclasses.dataclass(slots=True)
class _Timed:
    """A context manager that adds its duration to the time of a step.

    A generator with `contextmanager` would take twice as long, and a decision times a
    dozen blocks.
    """

    times_ms: dict[str, float]
    step: str
    started: float = 0.0

    def __enter__(self) -> None:
        self.started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        elapsed_ms = (time.perf_counter() - self.started) * 1000
        self.times_ms[self.step] = self.times_ms.get(self.step, 0.0) + elapsed_ms
