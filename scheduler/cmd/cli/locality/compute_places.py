# SPDX-License-Identifier: Apache-2.0
"""Places as host aggregates, through nova's compute API."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, Self, TypeVar

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from ....conf.keystoneauth import has_endpoint, load_session
from ....errors import ConfigurationError, SchedulerError, shortened
from ....failures import one_line
from ....locality import LEVEL_KEY, PLACE_KEY, place_of
from .changes import HostRefused, Members
from .host_file import Place

_GROUP: Final = "nova"
#: Time limit in seconds if [nova] timeout is not set: nova informs Placement before it
#: answers.
_TIMEOUT_S: Final = 60.0
#: Statuses that concern all hosts: the credentials, or the number of requests.
_REFUSES_ALL: Final = (requests.codes.unauthorized, requests.codes.too_many_requests)
_T = TypeVar("_T")


class ComputeApiError(SchedulerError):
    """Raised when the compute API fails or refuses; the message is one line."""


class ComputeApiRefusal(ComputeApiError):
    """Raised when the compute API refuses a request that concerns one host, 4xx."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Aggregate:
    """A host aggregate, as the API shows it."""

    id: int
    name: str
    hosts: frozenset[str]
    metadata: Mapping[str, str]

    @classmethod
    def read(cls, body: Any) -> Self:  # noqa: ANN401 - JSON
        return cls(
            int(body["id"]),
            str(body["name"]),
            frozenset(body["hosts"]),
            dict(body["metadata"]),
        )


def make_compute_adapter(conf: cfg.ConfigOpts) -> Adapter:
    """Return an adapter configured by ``[nova]``; it sends nothing yet.

    Raises
    ------
    ConfigurationError
        The group has no endpoint, or auth_type or one of its options is invalid.
    """
    if not has_endpoint(conf, _GROUP):
        raise ConfigurationError(
            "[nova] has none of auth_type, auth_section and endpoint_override: set "
            "them, for example auth_section = placement, or pass --placement"
        )
    session = load_session(conf, _GROUP, timeout_s=_TIMEOUT_S)
    return ks_loading.load_adapter_from_conf_options(
        conf, _GROUP, session=session, raise_exc=False
    )


class ComputePlaces:
    """The places among nova's host aggregates: those with the metadata moorage:level.

    No other aggregate is changed. New ones are named by level and place, such as
    rack-r7, as nova's names of aggregates are unique.
    """

    name = "nova"
    notes: Sequence[str] = ()

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._by_name: Mapping[str, _Aggregate] = {}
        self._of_place: defaultdict[Place, list[_Aggregate]] = defaultdict(list)

    def unknown(self, hosts: Collection[str]) -> Sequence[str]:
        """Return the hosts without a compute service."""
        known_hosts = self._get(
            "/os-services?binary=nova-compute",
            lambda body: {service["host"] for service in body["services"]},
        )
        return [host for host in hosts if host not in known_hosts]

    def members(self) -> Members:
        """Return all places, and the hosts of their aggregates."""
        aggregates = self._get(
            "/os-aggregates",
            lambda body: [
                _Aggregate.read(aggregate) for aggregate in body["aggregates"]
            ],
        )
        self._of_place.clear()
        self._by_name = {aggregate.name: aggregate for aggregate in aggregates}
        for aggregate in aggregates:
            if place := place_of(aggregate):
                self._of_place[place].append(aggregate)
        return {
            place: frozenset[str]().union(
                *(aggregate.hosts for aggregate in place_aggregates)
            )
            for place, place_aggregates in self._of_place.items()
        }

    def check_creatable(self, places: Collection[Place]) -> None:
        """Raise ComputeApiError if another aggregate has the name of a new one.

        An aggregate without hosts and metadata was created by an interrupted run.
        """
        for place in places:
            existing = self._by_name.get(_name(place))
            if existing is not None and (existing.hosts or existing.metadata):
                raise ComputeApiError(
                    f"aggregate {existing.name} exists and is not {' '.join(place)}: "
                    f"rename it, or set its metadata {LEVEL_KEY} and {PLACE_KEY}"
                )

    def create(self, places: Collection[Place]) -> None:
        """Create an aggregate for each place, or complete one that lacks metadata."""
        for place in places:
            aggregate = self._by_name.get(_name(place)) or self._create(_name(place))
            metadata = dict(zip((LEVEL_KEY, PLACE_KEY), place, strict=True))
            self._act(aggregate, "set_metadata", metadata=metadata)
            self._of_place[place].append(aggregate)

    def _create(self, name: str) -> _Aggregate:
        body = {"aggregate": {"name": name}}
        return self._send(
            "POST",
            "/os-aggregates",
            body,
            lambda answer: _Aggregate(answer["aggregate"]["id"], name, frozenset(), {}),
        )

    def move(self, host: str, old: Sequence[Place], new: Sequence[Place]) -> None:
        """Remove a host from all aggregates of places, then add it to others.

        In this order, as nova refuses a host in two availability zones.
        """
        try:
            self._move(host, old, new)
        except ComputeApiRefusal as e:
            raise HostRefused(f"{e}") from e

    def _move(self, host: str, old: Sequence[Place], new: Sequence[Place]) -> None:
        for place in old:
            for aggregate in self._of_place[place]:
                if host in aggregate.hosts:
                    self._act(aggregate, "remove_host", host=host)
        for place in new:
            self._act(self._of_place[place][0], "add_host", host=host)

    def _act(self, aggregate: _Aggregate, action: str, **arguments: object) -> None:
        url = f"/os-aggregates/{aggregate.id}/action"
        self._send("POST", url, {action: arguments}, lambda _: None)

    def _get(self, url: str, read: Callable[[Any], _T]) -> _T:
        return self._send("GET", url, None, read)

    def _send(self, verb: str, url: str, body: object, read: Callable[[Any], _T]) -> _T:
        """Return what `read` finds in the body of the answer."""
        try:
            answer = self._adapter.request(url, verb, json=body)
        except (ksa_errors.ClientException, requests.RequestException) as e:
            raise ComputeApiError(
                f"{verb} {url} of nova failed: {one_line(e)}. Check that nova-api "
                "runs, and the options of [nova]"
            ) from e
        content = _json(answer)
        if answer.status_code >= requests.codes.multiple_choices:
            operation = f"{verb} {url} of nova{f' with {body}' if body else ''}"
            status = answer.status_code
            affects_all = (
                status in _REFUSES_ALL or status >= requests.codes.server_error
            )
            error = ComputeApiError if affects_all else ComputeApiRefusal
            raise error(_refusal(operation, status, content))
        try:
            return read(content)
        except (KeyError, TypeError, AttributeError) as e:
            raise ComputeApiError(
                f"{verb} {url} answered {answer.status_code} with something else: "
                "check that the endpoint of [nova] is that of nova's compute API"
            ) from e


def _name(place: Place) -> str:
    return "-".join(place)


def _json(answer: requests.Response) -> object:
    try:
        return answer.json()
    except ValueError:
        return None


def _refusal(what: str, status: int, answer: object) -> str:
    """Return what was refused and why; nova's faults are objects with one key."""
    message = ""
    if isinstance(answer, dict) and len(answer) == 1:
        [fault] = answer.values()
        message = fault.get("message", "") if isinstance(fault, dict) else ""
    forbidden = (requests.codes.unauthorized, requests.codes.forbidden)
    advice = ". The user of [nova] needs the role admin" if status in forbidden else ""
    return (
        f"{shortened(what)} was refused: {status} {one_line(message)}".strip() + advice
    )
