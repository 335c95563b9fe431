# SPDX-License-Identifier: Apache-2.0
"""Convert what the forms of the page send to the arguments of the API."""

from __future__ import annotations

import datetime
import shlex
from collections.abc import Mapping
from typing import Any, Final

from ...clock import now_s
from ...decision_store import DecisionQuery
from ...drivers.record import Outcome
from ...errors import InvalidRequest, excerpt
from ...explain import HostSearch
from ..openapi import BODIES, PARAMETERS
from ..specs import check

#: The ages of decisions that the form offers, in seconds.
AGES: Final = {"15m": 900, "1h": 3600, "6h": 21600, "1d": 86400, "7d": 604800}
#: The number of decisions on one page.
PAGE: Final = 50
#: What the form of decisions offers: each has a value and a label.
OUTCOMES: Final = {
    "": "all",
    "refused": "refused or failed",
    **{outcome.value: outcome.value for outcome in Outcome},
}
#: What the form of failures offers.
FAILURES: Final = {
    value: label
    for value, label in OUTCOMES.items()
    if value not in ("refused", Outcome.SELECTED)
}
#: Fields of the form of decisions that are names.
_NAMES: Final = ("instance", "project", "host", "flavor")
_NUMBERS: Final = {
    "vcpus": "vCPUs",
    "memory_mb": "Memory",
    "root_gb": "Disk",
    "count": "Instances",
}
_MAX_LINES: Final = 256
#: The kinds of plans that the API makes, with the labels of their forms.
PLANS: Final = {
    "drain": "Empty hosts",
    "make-room": "Make room for a flavor",
    "defragment": "Empty as many hosts as possible",
}
#: Fields of the form of each kind. The first one of make-room and of defragment is
#: required.
_PLAN_FIELDS: Final = {
    "drain": ("host", "place", "aggregate"),
    "make-room": ("flavor", "count", "host"),
    "defragment": ("max_moves", "max_gib"),
}

Args = Mapping[str, str]


def text(args: Args, name: str) -> str:
    """Return a field without blanks around it; "" if it is missing."""
    return args.get(name, "").strip()


def number(args: Args, name: str) -> int:
    """Return a whole number that a link sends; 0 if it is missing.

    Raises
    ------
    InvalidRequest
    """
    value = text(args, name) or "0"
    if not (value.isascii() and value.isdigit() and len(value) <= 6):
        raise InvalidRequest(f"{name}: {excerpt(value)} is not a whole number")
    return int(value)


def decision_query(args: Args) -> DecisionQuery:
    """Return the query for stored decisions from their form.

    Raises
    ------
    InvalidRequest
    """
    schemas = PARAMETERS["/v1/decisions"]
    fields = {name: text(args, name) for name in _NAMES}
    fields["after"] = text(args, "after")
    for name, value in fields.items():
        if value:
            _check(name, value, schemas[name])
    outcome, since = text(args, "outcome"), text(args, "since")
    if outcome not in OUTCOMES:
        raise InvalidRequest(
            f"outcome: {excerpt(outcome)} is none of "
            f"{', '.join(value for value in OUTCOMES if value)}"
        )
    if since and since not in AGES:
        raise InvalidRequest(f"since: {excerpt(since)} is none of {', '.join(AGES)}")
    return DecisionQuery(
        instance_uuid=fields["instance"] or None,
        project_id=fields["project"] or None,
        host=fields["host"] or None,
        flavor=fields["flavor"] or None,
        failed=True if outcome == "refused" else None,
        outcome=Outcome(outcome) if outcome not in ("", "refused") else None,
        since_s=now_s() - AGES[since] if since else _time(args, "from"),
        until_s=_time(args, "to"),
        after=int(fields["after"]) if fields["after"] else None,
        limit=PAGE,
    )


def decision_args(args: Args, age: str = "") -> dict[str, str]:
    """Return the fields of the form of decisions: a time replaces an age.

    Parameters
    ----------
    age : str
        The age if the form has neither.
    """
    if text(args, "from") or text(args, "to"):
        return {**args, "since": ""}
    return {"since": age, **args}


def _time(args: Args, name: str) -> float | None:
    """Return a time in UTC as browsers send it, seconds since the epoch; or None.

    Raises
    ------
    InvalidRequest
    """
    value = text(args, name)
    if not value:
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError as e:
        raise InvalidRequest(
            f"{name}: {excerpt(value)} is not a time such as 2026-11-26T14:03"
        ) from e
    is_zoned = time.tzinfo is not None
    return (time if is_zoned else time.replace(tzinfo=datetime.UTC)).timestamp()


def host_search(args: Args) -> HostSearch:
    """Return what hosts are searched by.

    Raises
    ------
    InvalidRequest
    """
    fields = {name: text(args, name) for name in ("q", "state", "zone", "place")}
    for name, value in fields.items():
        if value:
            check_name(name, value)
    return HostSearch(
        fields["q"],
        fields["state"],
        fields["zone"],
        fields["place"],
        text(args, "sort") or "host",
    )


def _check(name: str, value: str, schema: Mapping[str, Any]) -> None:
    try:
        check(value, schema)
    except InvalidRequest as e:
        raise InvalidRequest(f"{name}: {str(e).removeprefix('the body: ')}") from e


def check_name(label: str, value: str) -> None:
    """Raise InvalidRequest unless a name is one that the API takes."""
    _check(label, value, PARAMETERS["/v1/decisions"]["host"])


def dry_run_body(args: Args) -> dict[str, Any] | None:
    """Return the body of a dry run; None: the form is still empty.

    Raises
    ------
    InvalidRequest
    """
    stored = text(args, "request")
    if not stored and not text(args, "vcpus"):
        return None
    numbers = _numbers(args)
    count = numbers.pop("count", 1)
    body: dict[str, Any] = {"count": count}
    if stored:
        body["stored"] = stored
    else:
        body["request"] = _request(args, numbers)
    check(body, BODIES["/v1/dry-run"])
    return body


def _numbers(args: Args) -> dict[str, int]:
    numbers = {}
    for name, label in _NUMBERS.items():
        value = text(args, name)
        if not value:
            continue
        if not (value.isascii() and value.isdigit() and len(value) <= 10):
            raise InvalidRequest(f"{label}: {excerpt(value)} is not a whole number")
        numbers[name] = int(value)
    return numbers


def _request(args: Args, flavor: Mapping[str, int]) -> dict[str, Any]:
    hints: dict[str, list[str]] = {}
    for key, value in _pairs(args, "hints"):
        hints.setdefault(key, []).append(value)
    specs = dict(_pairs(args, "extra_specs"))
    request: dict[str, Any] = {
        "flavor": {**flavor, "extra_specs": specs},
        "image_properties": dict(_pairs(args, "image_properties")),
        "hints": hints,
    }
    for name, field in (("availability_zone", "zone"), ("project_id", "project")):
        if value := text(args, field):
            request[name] = value
    return request


def _pairs(args: Args, name: str) -> list[tuple[str, str]]:
    """Return the pairs of a field with KEY=VALUE in each line."""
    lines = [line.strip() for line in args.get(name, "").splitlines()]
    lines = [line for line in lines if line]
    if len(lines) > _MAX_LINES:
        raise InvalidRequest(f"{name}: {len(lines)} lines; {_MAX_LINES} is the most")
    parts = [line.partition("=") for line in lines]
    for line, (key, sign, _) in zip(lines, parts, strict=True):
        if not key or not sign:
            raise InvalidRequest(f"{name}: {excerpt(line)} is not KEY=VALUE")
    return [(key.strip(), value.strip()) for key, _, value in parts]


def plan_body(kind: str, args: Args) -> dict[str, Any] | None:
    """Return the body for a plan of one of `PLANS`; None: the form is empty.

    Raises
    ------
    InvalidRequest
        A value is missing or invalid, or more than one of host, place and aggregate is
        given for a drain.
    """
    names = {name: text(args, name) for name in _PLAN_FIELDS[kind]}
    given = {name: value for name, value in names.items() if value}
    if not given or (kind != "drain" and _PLAN_FIELDS[kind][0] not in given):
        return None
    for name, value in given.items():
        check_name(name, value)
    body: dict[str, Any] = dict(given)
    if kind == "drain":
        if len(given) > 1:
            raise InvalidRequest(
                "Pass a host, a place or an aggregate, and only one of them"
            )
        if "host" in given:
            body = {"hosts": [given["host"]]}
    else:
        for name in ("count", "max_moves", "max_gib"):
            if name in body:
                body[name] = number(args, name)
    body["parallel"] = max(1, number(args, "parallel"))
    check(body, BODIES[f"/v1/plans/{kind}"])
    return body


def plan_command(kind: str, body: Mapping[str, Any]) -> str:
    """Return the command that makes the same plan as the body of a request."""
    words = ["moorage", "plan", kind, *body.get("hosts", ())]
    for name, value in body.items():
        if name != "hosts":
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
