# SPDX-License-Identifier: Apache-2.0
"""The answers of the HTTP API as plain data, from the store and the explanations."""

from __future__ import annotations

import base64
import copy
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Final, Protocol, TypeVar

from ...objects import RequestSpec
from ..database import StoreUnavailable
from ..decision_store import DecisionPage, DecisionQuery, Demand, StoredDecision
from ..display import listed, safe
from ..errors import InvalidRequest, SchedulerError, excerpt
from ..explain import (
    UNKNOWN_ROOM,
    CapacityReport,
    CloudRoom,
    Explainer,
    FlavorRequest,
    HostPage,
    PastHost,
    cause_of,
    events_of_records,
    group_failures,
    request_of_flavor,
    requests_of_decisions,
    with_funnel,
)
from ..planner import (
    KnownRequest,
    check_plan,
    hosts_to_drain,
    moves_of,
    plan_defragment,
    plan_drain,
    plan_make_room,
)
from ..sources.base import NoFlavors
from ..status import ComponentState
from .specs import notes_on, read_flavor, read_request

#: The id that stands for the view of the present state, not for a stored view.
NOW: Final = "now"
#: Maximum number of whole decisions in an answer, and of instances in a short
#: decision.
MAX_WHOLE: Final = 20
#: The newest decisions whose flavors the capacity is computed for.
MAX_DECISIONS: Final = 200
#: The newest decisions on a host whose claims are listed.
MAX_EVENTS: Final = 50
#: The time for which requests of a flavor are counted, in seconds.
DEMAND_S: Final = 86400.0
#: Seconds for which a list waits for the part that the store has.
_LISTED_S: Final = 1.0
#: Flavors that an error names.
_MAX_NAMED: Final = 10
_NO_QUOTAS: Final = (
    "Quotas are not counted: nova and Keystone have those of the project."
)
#: The newest decisions without a host that are grouped; reading one takes 0.3 ms.
MAX_GROUPED: Final = 1000
#: Concurrent reads of the store, and seconds that a further read waits for one to end.
_MAX_READS: Final = 3
_WAIT_S: Final = 0.2

_T = TypeVar("_T")


class NotFound(SchedulerError):
    """Raised when there is no stored decision or request of that id."""


class ReadsDecisions(Protocol):
    """The part of the store of decisions that is read."""

    def page(self, query: DecisionQuery) -> DecisionPage:
        """Return decisions, the newest first, and how to continue."""

    def demand(
        self, query: DecisionQuery, flavors: Collection[str]
    ) -> Mapping[str, Demand]:
        """Return how many requests of a query were for each flavor."""

    def view(self, id_: str) -> bytes | None:
        """Return a stored view; None: there is none of that id any more."""


@dataclasses.dataclass(frozen=True, slots=True)
class _BoundedReads:
    """Limits concurrent reads of a store: one that hangs does not take all threads.

    Attributes
    ----------
    free : threading.BoundedSemaphore
        Acquired by each read.
    wait_s : float or None
        Seconds after `since_s` for which a caller waits; the read then continues in its
        own thread until the database's timeout. None: the caller waits until then, too.
    """

    store: ReadsDecisions
    free: threading.BoundedSemaphore
    wait_s: float | None = None
    since_s: float = 0.0

    def page(self, query: DecisionQuery) -> DecisionPage:
        """Return decisions, the newest first, and how to continue."""
        return self._read(lambda: self.store.page(query))

    def demand(
        self, query: DecisionQuery, flavors: Collection[str]
    ) -> Mapping[str, Demand]:
        """Return how many requests of a query were for each flavor."""
        return self._read(lambda: self.store.demand(query, flavors))

    def view(self, id_: str) -> bytes | None:
        """Return a stored view; None: there is none of that id any more."""
        return self._read(lambda: self.store.view(id_))

    def _read(self, read: Callable[[], _T]) -> _T:
        if self.wait_s is None:
            self._begin()
            try:
                return read()
            finally:
                self.free.release()
        timeout_error = StoreUnavailable(
            f"The store of decisions did not answer within {self.wait_s:g} s"
        )
        if time.monotonic() >= self.since_s + self.wait_s:
            raise timeout_error
        self._begin()
        reading: Future[_T] = Future()
        threading.Thread(
            target=self._complete, args=(reading, read), daemon=True, name="store read"
        ).start()
        remaining_s = max(0.0, self.since_s + self.wait_s - time.monotonic())
        try:
            return reading.result(remaining_s)
        except FutureTimeout:
            if reading.done():  # it has just ended, or has raised a timeout itself
                return reading.result()
            raise timeout_error from None

    def _complete(self, reading: Future[_T], read: Callable[[], _T]) -> None:
        try:
            reading.set_result(read())
        except Exception as e:  # the reader raises it
            reading.set_exception(e)
        finally:
            self.free.release()

    def _begin(self) -> None:
        if not self.free.acquire(timeout=_WAIT_S):
            raise StoreUnavailable(
                "The store of decisions is busy: earlier requests still wait for its "
                "answer. Try again later."
            )


class Answers:
    """Builds the answers of the API.

    Parameters
    ----------
    explainer : Explainer
    store : ReadsDecisions or None
        None: no decision is stored.
    max_reads : int
        Reads of the store at the same time: fewer than the threads that answer, so
        that a store that hangs does not stop the paths that do not need it.
    components : callable, optional
        Returns the state of what the process depends on.
    """

    def __init__(
        self,
        explainer: Explainer,
        store: ReadsDecisions | None,
        *,
        max_reads: int = _MAX_READS,
        components: Callable[[], Sequence[ComponentState]] = tuple,
    ) -> None:
        self.explainer = explainer
        self.components = components
        self._store: _BoundedReads | None = None
        if store is not None:
            free = threading.BoundedSemaphore(max_reads)
            self._store = _BoundedReads(store, free)

    def within(self, wait_s: float) -> Answers:
        """Return answers that wait for the store until `wait_s` seconds from now."""
        bounded = copy.copy(self)
        if self._store is not None:
            bounded._store = dataclasses.replace(  # noqa: SLF001 - its own class
                self._store, wait_s=wait_s, since_s=time.monotonic()
            )
        return bounded

    @property
    def store(self) -> ReadsDecisions:
        """The store of decisions.

        Raises
        ------
        NotFound
            No decision is stored.
        """
        if self._store is None:
            raise NotFound(
                "No decision is stored: [moorage] decision_store_connection is empty"
            )
        return self._store

    def decisions(self, query: DecisionQuery) -> dict[str, Any]:
        """Return a page of decisions in short, and the id to continue after."""
        page = self.store.page(query)
        return {
            "decisions": [self._short(decision) for decision in page.decisions],
            "next": _next(page),
            "max_view_age_s": self.explainer.max_view_age_s,
        }

    def failures(self, query: DecisionQuery) -> dict[str, Any]:
        """Return the newest decisions without a host by cause and what was requested.

        `failed` and `limit` of the query are replaced.
        """
        page = self.store.page(
            dataclasses.replace(query, failed=True, limit=MAX_GROUPED)
        )
        groups = group_failures(
            (decision.record, _readable_request(decision))
            for decision in page.decisions
        )
        return {
            "groups": [dataclasses.asdict(group) for group in groups],
            "n_decisions": len(page.decisions),
            "is_complete": page.next_id is None,
        }

    def decision(self, id_: str) -> dict[str, Any]:
        """Return the whole decisions of a request id or an instance, newest first.

        Raises
        ------
        NotFound
        """
        return {
            "decisions": [_whole(decision) for decision in self._find(id_)[:MAX_WHOLE]]
        }

    def records(self, id_: str | None, query: DecisionQuery) -> dict[str, Any]:
        """Return decisions with their requests, as they are stored, newest first.

        Parameters
        ----------
        id_ : str or None
            A request id or an instance, whose decisions are returned; None: those of
            the query.
        """
        if id_ is None:
            page = self.store.page(query)
        else:
            page = DecisionPage(self._find(id_), None)
        return {
            "records": [
                {"id": str(decision.id), "data": _base64(decision.data)}
                for decision in page.decisions
            ],
            "next": _next(page),
        }

    def view(self, id_: str) -> dict[str, Any]:
        """Return a stored view, or the state `NOW`.

        Raises
        ------
        NotFound
        """
        data = self.explainer.view() if id_ == NOW else self.store.view(id_)
        if data is None:
            raise NotFound(
                f"The view {id_} is not stored: [moorage] stored_views keeps only the "
                "newest ones, and those that could be written"
            )
        return {"data": _base64(data)}

    def why_not(self, host: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a verdict for each compute node of a host.

        Parameters
        ----------
        body : mapping
            With ``stored``, the id of a decision, or ``request``.
        """
        spec, context, notes = self._request(body)
        verdicts = self.explainer.why_not(context, spec, host)
        past_host = None
        if "stored" in body:
            past_host = PastHost.of_record(self._find(body["stored"])[0].record, host)
        return {
            "nodes": [verdict.to_dict() for verdict in verdicts],
            "then": None if past_host is None else past_host.to_dict(),
            "notes": notes,
        }

    def dry_run(self, count: int, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return where `count` instances would go now; see `why_not`."""
        spec, context, notes = self._request(body)
        record = self.explainer.dry_run(context, spec, count)
        return {"decision": with_funnel(record, spec), "notes": notes}

    def closest(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return what would have to change for a request to fit; see `why_not`.

        Parameters
        ----------
        body : mapping
            With ``count``, if any: the number of instances, which replaces that of a
            stored request.
        """
        spec, context, notes = self._request(body)
        if "count" in body:
            spec.num_instances = body["count"]
        report = self.explainer.closest(context, spec).to_dict()
        n_checked, n_known = report["n_checked"], report["n_known"]
        if n_checked < n_known:
            notes = [
                *notes,
                f"Only {n_checked} of {n_known} hosts were checked, those that fail "
                "the fewest filters: their providers were read from Placement, host by "
                "host",
            ]
        return {**report, "notes": notes}

    def capacity(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return how many more instances of flavors fit.

        Parameters
        ----------
        body : mapping
            With ``flavors`` or ``from``; ``name``, if any, restricts the flavors;
            ``project``, if any, is the project that asks; ``hosts`` is the maximum
            number of hosts that are listed for each flavor.
        """
        matching = self._flavors(body)
        project_id, notes = body.get("project"), []
        if project_id is not None:
            matching = [flavor.for_project(project_id) for flavor in matching]
            notes = [_NO_QUOTAS]
        report = self.explainer.capacity(matching, n_listed=body.get("hosts", 0))
        names = {flavor.name for flavor in matching if flavor.name}
        demand, problem = self._demand(names, project_id)
        answer = dataclasses.asdict(report)
        for flavor in answer["flavors"]:
            flavor["demand"] = demand.get(flavor["flavor"])
        return {**answer, "notes": [*notes, *problem, *self.explainer.unknowns()]}

    def _flavors(self, body: Mapping[str, Any]) -> list[FlavorRequest]:
        """Return the flavors that a body names.

        Raises
        ------
        NotFound
            There is none.
        """
        name = body.get("name")
        if "flavors" in body:
            flavors = [
                request_of_flavor(read_flavor(flavor)) for flavor in body["flavors"]
            ]
        elif body.get("from") == "nova":
            flavors = self.explainer.nova_flavors(None if name is None else [name])
        else:
            flavors = self._recent_flavors()
        matching = [flavor for flavor in flavors if name in (None, flavor.name)]
        if not matching:
            among = f" named {excerpt(name)}" if name else ""
            if flavors:
                known = {safe(flavor.name) for flavor in flavors if flavor.name}
                among += f" among {listed(sorted(known), _MAX_NAMED)}"
            elif "flavors" not in body and body.get("from") != "nova":
                among += (
                    f" in the {MAX_DECISIONS} newest stored decisions: pass flavors"
                )
            raise NotFound(f"There is no flavor{among}")
        return matching

    def _demand(
        self, names: Collection[str], project_id: str | None
    ) -> tuple[dict[str, dict[str, int]], list[str]]:
        """Return the demand of the last day by flavor, or a note why it is unknown."""
        query = DecisionQuery(
            project_id=project_id, since_s=self.explainer.now() - DEMAND_S
        )
        try:
            demand = self.within(_LISTED_S).store.demand(query, names)
        except (NotFound, StoreUnavailable) as e:
            return {}, [f"The requests of the last day are unknown: {e}"]
        return {name: dataclasses.asdict(asked) for name, asked in demand.items()}, []

    def plan_drain(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the moves that empty hosts.

        Parameters
        ----------
        body : mapping
            With ``hosts``, ``place`` or ``aggregate``; ``keep_up`` and ``parallel``, if
            any, are those of `planner.plan_drain`.
        """
        parts, view = self.explainer.state()
        named = {"hosts", "place", "aggregate"} & body.keys()
        hosts = hosts_to_drain(parts, **{name: body[name] for name in named})
        plan = plan_drain(
            parts,
            view,
            hosts,
            self._find_requests,
            keep_up=body.get("keep_up", 0),
            parallel=body.get("parallel", 1),
        )
        return dataclasses.asdict(plan)

    def plan_make_room(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fewest moves that make room; see `planner.plan_make_room`.

        Parameters
        ----------
        body : mapping
            With ``flavor``, and ``from`` as in `capacity`, if any.
        """
        named = {"from": body.get("from", "decisions"), "name": body["flavor"]}
        [flavor, *_] = self._flavors(named)
        parts, view = self.explainer.state()
        if "host" in body:
            [host] = hosts_to_drain(parts, hosts=[body["host"]])
        options = {k: body[k] for k in ("count", "seconds", "parallel") if k in body}
        plan = plan_make_room(
            parts,
            view,
            flavor,
            self._find_requests,
            host=host if "host" in body else "",
            **options,
        )
        return dataclasses.asdict(plan)

    def plan_defragment(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the moves that empty the most hosts; see `planner.plan_defragment`."""
        parts, view = self.explainer.state()
        return dataclasses.asdict(
            plan_defragment(parts, view, self._find_requests, **body)
        )

    def check_plan(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return which steps of a plan still hold; see `planner.check_plan`."""
        parts, view = self.explainer.state()
        checked = check_plan(
            parts,
            view,
            moves_of(body["steps"]),
            self._find_requests,
            hosts=body.get("hosts", ()),
            left=body.get("left", ()),
        )
        return dataclasses.asdict(checked)

    def _find_requests(
        self, host_of: Mapping[str, str]
    ) -> Mapping[str, KnownRequest | str]:
        """Return the request of each instance, or why it is unknown.

        The source of hosts is asked first, then the stored decisions.

        Parameters
        ----------
        host_of : mapping
            The service host that each instance is on.
        """
        specs = self.explainer.requests_of(list(host_of))
        known: dict[str, KnownRequest | str] = {
            uuid: KnownRequest(spec, "nova") for uuid, spec in specs.items()
        }
        problem = ""
        for uuid in host_of.keys() - known.keys():
            try:
                query = DecisionQuery(instance_uuid=uuid, failed=False, limit=1)
                decisions = [] if problem else self.store.page(query).decisions
            except (NotFound, StoreUnavailable) as e:
                problem = f"the source of hosts does not know its request. {e}"
            known[uuid] = problem or _request_on(decisions, uuid, host_of[uuid])
        return known

    def capacity_of(self, names: Collection[str]) -> CapacityReport:
        """Return the capacity of the flavors of these names that are found.

        They are flavors of nova's database or, if the source of hosts knows none, the
        newest flavor of each name in recent decisions.
        """
        try:
            flavors = self.explainer.nova_flavors(names)
        except NoFlavors:
            flavors = self._recent_flavors()
        flavor_by_name: dict[str, FlavorRequest] = {}
        for flavor in flavors:
            if flavor.name in names:
                flavor_by_name.setdefault(flavor.name, flavor)
        return self.explainer.capacity(list(flavor_by_name.values()))

    def _recent_flavors(self) -> list[FlavorRequest]:
        """Return the flavors of the newest stored requests."""
        recent = self.store.page(DecisionQuery(limit=MAX_DECISIONS)).decisions
        stored = map(_readable_request, recent)
        return requests_of_decisions(
            request for request in stored if request is not None
        )

    def hosts(
        self,
        *,
        after: str = "",
        limit: int | None = None,
        has_instances: bool = False,
        node_uuids: Collection[str] | None = None,
    ) -> HostPage:
        """Return a page of compute nodes by host and node, and how to continue."""
        flavors, notes = self._known_flavors()
        return self.explainer.hosts(
            after=after,
            limit=limit,
            flavors=flavors,
            has_instances=has_instances,
            node_uuids=node_uuids,
            notes=notes,
        )

    def host(self, host: str) -> dict[str, Any]:
        """Return all that is known of a service host, or of one compute node of it."""
        flavors, notes = self._known_flavors()
        detail = self.explainer.host(host, flavors=flavors, notes=notes)
        query = DecisionQuery(host=detail.host, limit=MAX_EVENTS)
        try:
            page = self.within(_LISTED_S).store.page(query)
        except (NotFound, StoreUnavailable) as e:
            note = f"Claims and refusals of the past are unknown: {e}"
            detail = dataclasses.replace(detail, notes=(*detail.notes, note))
        else:
            records = (decision.record for decision in page.decisions)
            detail = detail.with_events(events_of_records(records, detail.host))
        return dataclasses.asdict(detail)

    def cloud_room(self) -> CloudRoom | None:
        """Return the room of all hosts for recent flavors; None: it is unknown."""
        flavors, _ = self._known_flavors()
        return self.explainer.room(flavors)

    def _known_flavors(self) -> tuple[list[FlavorRequest], list[str]]:
        """Return the flavors of the newest requests, or a note why none is known."""
        try:
            flavors = self.within(_LISTED_S)._recent_flavors()  # noqa: SLF001 - a copy
        except (NotFound, StoreUnavailable) as e:
            return [], [f"{UNKNOWN_ROOM}{e}"]
        if not flavors:
            return [], [f"{UNKNOWN_ROOM}no request is stored yet"]
        return flavors, []

    def _short(self, stored: StoredDecision) -> dict[str, Any]:
        """Return a decision as the lists of decisions show it."""
        record, limit_s = stored.record, self.explainer.max_view_age_s
        return {
            "id": str(stored.id),
            "request_id": stored.request_id,
            "decided_at": stored.decided_at,
            "project_id": stored.project_id,
            "outcome": stored.outcome,
            "reason": record.reason.strip(),
            "user_message": record.user_message.strip(),
            "cause": cause_of(record),
            "flavor": stored.flavor_name,
            "instance_uuids": list(record.instance_uuids)[:MAX_WHOLE],
            "n_instances": record.n_instances,
            "hosts": [instance.host for instance in record.instances][:MAX_WHOLE],
            "n_hosts": record.n_hosts,
            "view_age_s": record.view_age_s,
            "is_stale": bool(0 < limit_s < (record.view_age_s or 0)),
            "total_ms": record.times_ms.get("total"),
        }

    def _find(self, id_: str) -> list[StoredDecision]:
        """Return the decisions of a request id or, if there are none, an instance."""
        for spelling in dict.fromkeys((id_, id_.lower())):  # UUIDs have no case
            queries = (
                DecisionQuery(request_id=spelling),
                DecisionQuery(instance_uuid=spelling, limit=MAX_WHOLE),
            )
            for query in queries:
                if decisions := self.store.page(query).decisions:
                    return decisions
        raise NotFound(f"No decision is stored for {excerpt(id_)}")

    def _request(
        self, body: Mapping[str, Any]
    ) -> tuple[RequestSpec, Mapping[str, Any], list[str]]:
        """Return a request, its context, and notes on what it and the hosts lack."""
        unknowns = self.explainer.unknowns()
        if "request" in body:
            document = body["request"]
            context = {"project_id": document.get("project_id")}
            self.explainer.require_zone(document.get("availability_zone"))
            notes = [*notes_on(document), *unknowns]
            return read_request(document), context, notes
        decisions = self._find(body["stored"])
        stored = next(
            (decision for decision in decisions if decision.request is not None), None
        )
        if stored is None or stored.request is None:
            raise NotFound(
                f"The decisions of {excerpt(body['stored'])} were stored without "
                "their request"
            )
        context = {"request_id": stored.request_id, "project_id": stored.project_id}
        return stored.request, context, unknowns


def _next(page: DecisionPage) -> str | None:
    return None if page.next_id is None else str(page.next_id)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _whole(stored: StoredDecision) -> dict[str, Any]:
    """Return a decision with its funnel, scores, claims and request."""
    request = _readable_request(stored)
    return {
        "id": str(stored.id),
        "decided_at": stored.decided_at,
        "project_id": stored.project_id,
        **with_funnel(stored.record, request),
    }


def _readable_request(stored: StoredDecision) -> RequestSpec | None:
    """Return a decision's request; None: it is not stored, or of another version."""
    try:
        return stored.request
    except InvalidRequest:
        return None


def _request_on(
    decisions: Sequence[StoredDecision], uuid: str, host: str
) -> KnownRequest | str:
    """Return the request with which an instance came to its host, or why not.

    Parameters
    ----------
    decisions : sequence of StoredDecision
        The newest decision that selected a host for the instance, if any is stored.
    """
    if not decisions:
        return (
            "the source of hosts does not know its request, and no decision on it is "
            "stored"
        )
    [stored] = decisions
    selected = {
        name
        for instance in stored.record.instances
        if instance.instance_uuid == uuid
        for name in (instance.host, *instance.alternates)
    }
    if host not in selected:
        names = ", ".join(sorted(selected)[:3])
        return (
            f"its newest stored decision selected {names}, not {host}: its flavor may "
            "have changed since"
        )
    request = _readable_request(stored)
    if request is None:
        return "its newest decision is stored without its request"
    return KnownRequest(request, "decisions")


def finite(value: Any) -> Any:  # noqa: ANN401 - plain data of any shape
    """Return plain data with None for numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [finite(entry) for entry in value]
    return value
