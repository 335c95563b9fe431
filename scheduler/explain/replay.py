# SPDX-License-Identifier: Apache-2.0
"""Make decisions again on their stored views, and compare them with their records."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from ...objects import RequestSpec
from ..drivers.attachment_finder import RecordedAttachments
from ..drivers.claims.recorded import RecordedClaims
from ..drivers.decision import Decision
from ..drivers.prepared import Caller
from ..drivers.record import (
    TOP_HOSTS,
    DecisionRecord,
    Outcome,
    ReplayKey,
    WeigherPart,
    runs_of,
)
from ..errors import SchedulerError
from ..views import OfflineParts, UnreadableView
from .funnel import with_funnel


@dataclasses.dataclass(frozen=True, slots=True)
class Difference:
    """A value that differs between a decision and its replay.

    Attributes
    ----------
    what : str
        Such as "outcome", or "filter ComputeFilter".
    """

    what: str
    recorded: Any
    replayed: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Replay:
    """A decision and its repetition.

    Attributes
    ----------
    n_assumed : int
        Claims of the replay that the decision did not make; each counts as granted.
    """

    recorded: DecisionRecord
    replayed: DecisionRecord
    differences: tuple[Difference, ...]
    n_assumed: int

    @property
    def is_identical(self) -> bool:
        """Whether decision and replay are the same, to the last bit."""
        return not self.differences

    @property
    def is_elsewhere(self) -> bool:
        """Whether decision and replay differ in the hosts that they select."""
        return hosts_of(self.recorded) != hosts_of(self.replayed)

    def to_dict(self) -> dict[str, Any]:
        """Return both decisions and the differences as plain data."""
        return {
            "recorded": with_funnel(self.recorded),
            "replayed": with_funnel(self.replayed),
            "differences": [
                dataclasses.asdict(difference) for difference in self.differences
            ],
            "identical": self.is_identical,
            "assumed_claims": self.n_assumed,
        }


def replay(
    offline: OfflineParts, key: ReplayKey, record: DecisionRecord, spec: RequestSpec
) -> Replay:
    """Repeat the last pass of a decision on its view, at the time at which it began.

    Each claim gets its recorded answer. With the options of the view the result is the
    same to the last bit, unless the decision read what the record lacks: the allocation
    that an instance held before, or a member of its server group on a host that only
    Placement knew.

    Parameters
    ----------
    spec : RequestSpec
        The request; it may be changed.

    Raises
    ------
    UnreadableView
        Plugins or files of the decision are missing, as a view has neither.
    """
    claims = RecordedClaims(record.claims[key.n_claims :])
    replayed = repeat_decision(offline, key, record, spec, claims)
    return Replay(record, replayed, tuple(_compare(record, replayed)), claims.n_assumed)


def repeat_decision(
    offline: OfflineParts,
    key: ReplayKey,
    record: DecisionRecord,
    spec: RequestSpec,
    claims: RecordedClaims,
    *,
    n_top_hosts: int = TOP_HOSTS,
) -> DecisionRecord:
    """Return the record of the last pass of a decision, made again on its view.

    See `replay`.

    Parameters
    ----------
    n_top_hosts : int
        The number of best hosts that the new record describes.

    Raises
    ------
    UnreadableView
        Plugins or files of the decision are missing, as a view has neither.
    """
    if offline.left_out:
        raise UnreadableView(
            f"the decision was made with {', '.join(offline.left_out)}, which a view "
            "does not have: give its configuration with --config-file"
        )
    offline.now = key.at
    parts = dataclasses.replace(
        offline.parts,
        attachments=RecordedAttachments(tuple(record.attachments)),
        n_top_hosts=n_top_hosts,
    )
    new_record = DecisionRecord(
        record.request_id,
        record.instance_uuids,
        record.n_instances,
        started_at=key.at,
        project_id=record.project_id,
        n_known_hosts=len(parts.table),
    )
    decision = Decision(
        parts,
        Caller(request_id=record.request_id, project_id=record.project_id),
        spec,
        # None: an old conductor, for which nothing was claimed.
        record.instance_uuids or None,
        new_record,
        return_alternates=key.return_alternates,
        recorded=claims if record.instance_uuids else None,
        repeated=key,
    )
    try:
        with decision.concluding():
            decision.run()
    except SchedulerError as e:
        if e.is_unexpected:
            raise
        # An expected error is the outcome of the decision, which the record has.
    return new_record


def _compare(
    recorded: DecisionRecord, replayed: DecisionRecord
) -> Iterator[Difference]:
    """Yield how a replay differs, the outcome first."""
    yield from _unequal("outcome", recorded.outcome, replayed.outcome)
    yield from _unequal("hosts", hosts_of(recorded), hosts_of(replayed))
    nodes = (
        [instance.node for instance in record.instances]
        for record in (recorded, replayed)
    )
    yield from _unequal("nodes", *nodes)
    if Outcome.SELECTED not in (recorded.outcome, replayed.outcome):
        yield from _unequal("reason", recorded.reason, replayed.reason)
        yield from _unequal("message", recorded.user_message, replayed.user_message)
    yield from _unequal(
        "alternates",
        [list(instance.alternates) for instance in recorded.instances],
        [list(instance.alternates) for instance in replayed.instances],
    )
    for name in ("n_candidates", "is_truncated", "n_hosts", "n_without_row"):
        what = name.replace("_", " ").removeprefix("n ").removeprefix("is ")
        yield from _unequal(what, getattr(recorded, name), getattr(replayed, name))
    yield from _compare_steps(recorded, replayed)
    yield from _compare_scores(recorded, replayed)


def _unequal(what: str, recorded: Any, replayed: Any) -> Iterator[Difference]:  # noqa: ANN401 - plain data
    if recorded != replayed:
        yield Difference(what, recorded, replayed)


def _compare_steps(
    recorded: DecisionRecord, replayed: DecisionRecord
) -> Iterator[Difference]:
    recorded_counts, replayed_counts = _counts(recorded), _counts(replayed)
    for run, name in dict.fromkeys((*recorded_counts, *replayed_counts)):
        counts = recorded_counts.get((run, name)), replayed_counts.get((run, name))
        run_suffix = f", run {run + 1}" if run else ""
        yield from _unequal(f"filter {name}{run_suffix}", *counts)
    order = [
        [name for run, name in steps if not run]
        for steps in (recorded_counts, replayed_counts)
    ]
    if sorted(order[0]) == sorted(order[1]):
        yield from _unequal("order of filters", *order)


def _counts(record: DecisionRecord) -> dict[tuple[int, str], list[int]]:
    """Return the hosts before and after each filter, by its run and name."""
    return {
        (i, step.name): [step.n_in, step.n_out]
        for i, run in enumerate(runs_of(record.steps))
        for step in run
    }


def _compare_scores(
    recorded: DecisionRecord, replayed: DecisionRecord
) -> Iterator[Difference]:
    """Yield which weigher gives a host another weight, and how the ranking moved."""
    for recorded_instance, replayed_instance in zip(
        recorded.instances, replayed.instances, strict=False
    ):
        of_instance = (
            f" of {recorded_instance.instance_uuid}"
            if len(recorded.instances) > 1
            else ""
        )
        yield from _unequal(
            f"weight{of_instance}", recorded_instance.weight, replayed_instance.weight
        )
        yield from _unequal(
            f"ranking{of_instance}",
            [[scored.host, scored.weight] for scored in recorded_instance.top_hosts],
            [[scored.host, scored.weight] for scored in replayed_instance.top_hosts],
        )
        parts = {scored.node: scored.parts for scored in replayed_instance.top_hosts}
        for host in recorded_instance.top_hosts:
            recorded_parts = {part.name: part for part in host.parts}
            replayed_parts = {part.name: part for part in parts.get(host.node, ())}
            # The store omits the parts of weights for most instances of a request.
            for name in (
                dict.fromkeys((*recorded_parts, *replayed_parts))
                if recorded_parts and replayed_parts
                else ()
            ):
                yield from _unequal(
                    f"{name} on {host.host}{of_instance}",
                    _score(recorded_parts.get(name)),
                    _score(replayed_parts.get(name)),
                )


def _score(part: WeigherPart | None) -> dict[str, float] | None:
    if part is None:
        return None
    return {name: getattr(part, name) for name in ("raw", "normalized", "weighted")}


def hosts_of(record: DecisionRecord) -> list[str]:
    """Return the host of each instance; empty: no host was found."""
    return [instance.host for instance in record.instances]


@dataclasses.dataclass(slots=True)
class ReplaySummary:
    """What another configuration would have changed, over many decisions.

    Each decision is repeated on its own view: if the replay of an earlier decision
    selects other hosts, this does not change the view of a later decision.

    Attributes
    ----------
    n_elsewhere : int
        Decisions in which an instance got another host.
    n_found, n_lost : int
        Decisions that found hosts only in the replay, and only in the record.
    fills : tuple of list of float
        The used share of memory of each selected host, including its new instance: in
        the record, in the replay.
    hosts : tuple of set of str
        The selected hosts: in the record, in the replay.
    """

    n_replayed: int = 0
    n_identical: int = 0
    n_elsewhere: int = 0
    n_found: int = 0
    n_lost: int = 0
    n_failed: int = 0
    first_failure: str = ""
    fills: tuple[list[float], list[float]] = dataclasses.field(
        default_factory=lambda: ([], [])
    )
    hosts: tuple[set[str], set[str]] = dataclasses.field(
        default_factory=lambda: (set(), set())
    )

    def add(self, replayed: Replay, offline: OfflineParts, memory_mb: int) -> None:
        """Count a replay.

        Parameters
        ----------
        memory_mb : int
            The memory of the request's flavor.
        """
        self.n_replayed += 1
        if replayed.replayed.outcome is Outcome.FAILED:
            self.fail(replayed.replayed.reason)
            return
        recorded_hosts, replayed_hosts = (
            hosts_of(replayed.recorded),
            hosts_of(replayed.replayed),
        )
        self.n_identical += replayed.is_identical
        self.n_elsewhere += bool(
            recorded_hosts and replayed_hosts and recorded_hosts != replayed_hosts
        )
        self.n_found += bool(replayed_hosts and not recorded_hosts)
        self.n_lost += bool(recorded_hosts and not replayed_hosts)
        for side, names in enumerate((recorded_hosts, replayed_hosts)):
            self.hosts[side].update(names)
            self.fills[side].extend(_fills(offline, names, memory_mb))

    def fail(self, why: str) -> None:
        """Count a decision that could not be repeated."""
        self.n_failed += 1
        self.first_failure = self.first_failure or why

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as plain data; hosts and fill as recorded and replayed."""
        sides = ("recorded", "replayed")
        return {
            "replayed": self.n_replayed,
            "identical": self.n_identical,
            "elsewhere": self.n_elsewhere,
            "found": self.n_found,
            "lost": self.n_lost,
            "failed": self.n_failed,
            "first_failure": self.first_failure,
            "hosts": dict(zip(sides, map(len, self.hosts), strict=True)),
            "memory_fill": dict(zip(sides, map(_mean, self.fills), strict=True)),
        }


def _fills(
    offline: OfflineParts, names: Sequence[str], memory_mb: int
) -> Iterator[float]:
    table = offline.parts.table
    n_placed: Counter[str] = Counter()
    for name in names:
        n_placed[name] += 1
        hosts = table.batch(table.nodes_of(name))
        total_mb = int(hosts.total_usable_ram_mb.sum())
        if total_mb:
            used_mb = (
                total_mb - int(hosts.free_ram_mb.sum()) + memory_mb * n_placed[name]
            )
            yield used_mb / total_mb


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
