# SPDX-License-Identifier: Apache-2.0
"""The status of a scheduler: whether it is ready, and its counts, all without I/O."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from oslo_config import cfg

from .decision_store import DecisionStore
from .drivers.parts import Parts
from .explain import HostCondition, host_conditions
from .kafka_peers import KafkaPeers
from .reload_result import ReloadResult


@dataclasses.dataclass(frozen=True, slots=True)
class ComponentState:
    """The state of one component that decisions or the page depend on.

    Attributes
    ----------
    name : str
        Such as "Placement".
    problem : str
        What does not work, and since when; "": nothing is known.
    detail : str
        A measure of its state, such as how old the state of hosts is; "": none.
    """

    name: str
    problem: str
    detail: str = ""


class SchedulerStatus:
    """The state of a scheduler for operators and telemetry.

    Attributes
    ----------
    decisions : DecisionLog
        The newest decision records; it publishes each to its subscribers.
    store : DecisionStore or None
        The store of decisions, if there is one.
    """

    def __init__(
        self,
        conf: cfg.ConfigOpts,
        parts: Parts,
        store: DecisionStore | None = None,
        peers: KafkaPeers | None = None,
    ) -> None:
        self.conf = conf
        self.table = parts.table
        self.decisions = parts.decisions
        self.candidates = parts.candidates
        self.store = store
        self._peers = peers
        self._source = parts.source
        self._orphans = parts.orphans
        self._journal = parts.journal
        self._health = parts.placement.health
        self._clock = parts.clock
        self._checks: dict[str, Callable[[], str]] = {}
        self._optional_checks: dict[str, Callable[[], str]] = {}
        self._reloads: ReloadResult | None = None

    def add_check(
        self, name: str, check: Callable[[], str], *, is_required: bool = True
    ) -> None:
        """Add the check of a component.

        Parameters
        ----------
        name : str
            The name of the component.
        check : callable
            Returns the problem, or an empty text; must return at once, without I/O.
        is_required : bool
            Whether the problem makes this process not ready.
        """
        (self._checks if is_required else self._optional_checks)[name] = check

    def components(self) -> list[ComponentState]:
        """Return the state of what this process depends on, without I/O."""
        states = [
            ComponentState(name, check())
            for checks in (self._optional_checks, self._checks)
            for name, check in checks.items()
        ]
        problem = "" if self._health.is_ready else self._health.note
        states.append(ComponentState("Placement", problem))
        if (stats := self.candidates.following_stats()) is not None:
            detail = f"read {stats.age_s:.0f} s ago" if stats.n_read else ""
            states.append(ComponentState("providers in memory", stats.trouble, detail))
        problems = [self._staleness(), *self._source.troubles()]
        states.append(
            ComponentState(
                "source of hosts",
                " ".join(problem for problem in problems if problem),
                self._lag(),
            )
        )
        return states

    def _lag(self) -> str:
        """Return how far the source is behind; "": its state does not age."""
        age_s, parts = self.view_age_s, []
        if age_s is not None:
            limit_s = self.conf.moorage.max_view_age
            limit = f", limit {limit_s:.0f} s" if limit_s else ""
            parts.append(f"{max(0.0, age_s):.0f} s old{limit}")
        if self.n_unread:
            parts.append(f"{self.n_unread:,} messages unread")
        return "; ".join(parts)

    def show_reloads(self, result: ReloadResult) -> None:
        """Show the result of the reloads of a service from now on."""
        self._reloads = result

    @property
    def reload_failure(self) -> str:
        """Why the last reload failed, or ""; the previous state then remains in use."""
        return self._reloads.failure if self._reloads else ""

    @property
    def is_ready(self) -> bool:
        """Whether requests can be served.

        Placement must answer, the database of Placement that is read directly must not
        lag behind it, the state of hosts must be recent enough, the source must report
        no problem, and the added checks must succeed.
        """
        return self._health.is_ready and not any(self._problems())

    @property
    def readiness_note(self) -> str:
        """Why the scheduler is not ready and since when, with other notes; or ""."""
        notes = [
            self._health.note,
            *self._problems(),
            *self._source.notes(),
            self._journal.note,
            self._orphans.note,
        ]
        if self.reload_failure:
            notes.append(
                f"The last reload failed, and what was loaded before remains in use: "
                f"{self.reload_failure}."
            )
        return " ".join(dict.fromkeys(note for note in notes if note))

    def _problems(self) -> Iterator[str]:
        """Yield all problems except those of Placement's health, or empty texts."""
        yield self._staleness()
        if (stats := self.candidates.following_stats()) is not None:
            yield stats.trouble
        yield from self._source.troubles()
        for check in self._checks.values():
            yield check()

    @property
    def view_age_s(self) -> float | None:
        """Seconds since the oldest part of the hosts' state was read.

        None: the source's state does not age.
        """
        return self._source.age_s(self._clock())

    def _staleness(self) -> str:
        age_s, limit_s = self.view_age_s, self.conf.moorage.max_view_age
        if age_s is None or not limit_s or age_s <= limit_s:
            return ""
        return (
            f"The state of hosts is {age_s:.0f} s old, more than [moorage] "
            f"max_view_age, {limit_s:.0f} s."
        )

    @property
    def report_counts(self) -> Mapping[str, int]:
        """The numbers of host reports by outcome; empty if the source receives none."""
        return self._source.report_counts()

    @property
    def announcement_counts(self) -> Mapping[str, int]:
        """The numbers of claims that are exchanged through Kafka, by result."""
        return {} if self._peers is None else self._peers.result_counts()

    def hosts_by_cell_and_state(self) -> Mapping[tuple[str, str], int]:
        """Return the numbers of hosts that are up, down or disabled, by cell UUID."""
        hosts = self.table.batch()
        limit_s = self.conf.service_down_time
        states = host_conditions(hosts, self._clock(), limit_s).tolist()
        return Counter(
            (cell, "down" if state is HostCondition.FORCED_DOWN else state.value)
            for cell, state in zip(hosts.cell_uuid.tolist(), states, strict=True)
        )

    @property
    def n_unread(self) -> int:
        """The number of messages of the source that are not read yet."""
        return self._source.n_unread()

    @property
    def n_orphans(self) -> int:
        """The number of allocations that may be held without an answered request."""
        return len(self._orphans)

    @property
    def claim_faults(self) -> Mapping[str, int]:
        """The numbers of faults in recording and settling claims, by what failed."""
        return {
            "journal": self._journal.n_failures,
            "thread": self._orphans.n_not_started,
            "check": self._orphans.n_failed_checks,
        }

    @property
    def suspected_orphans(self) -> Sequence[str]:
        """Instances whose allocations no evidence explains; see `Orphans`."""
        return self._orphans.suspected
