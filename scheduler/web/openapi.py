# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the HTTP API, from which requests are validated."""

from __future__ import annotations

import copy
import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Final, Union, cast, get_args, get_origin, get_type_hints

from ... import __version__
from ..decision_store import Demand
from ..drivers.record import DecisionRecord, Outcome
from ..explain import (
    CapacityReport,
    ClosestGroup,
    ClosestReport,
    FailureGroup,
    FlavorCapacity,
    FunnelStep,
    HostDetail,
    HostPage,
    HostRank,
    HostVerdict,
    PastHost,
)
from ..planner import MAX_INSTANCES, CheckedPlan, Plan, PlannedMove
from .specs import FLAVOR_SCHEMA, REQUEST_SCHEMA

Schema = dict[str, Any]

_ID: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}
_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 255}
_LIMIT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}

_AFTER: Final[Schema] = {
    "type": "string",
    "pattern": "^[0-9]{1,19}$",
    "description": "`next` of the page before.",
}
_SINCE: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "maximum": 1e11,
    "description": "Seconds since the epoch.",
}

#: What decisions are searched by.
_SEARCHED: Final[dict[str, Schema]] = {
    "instance": _ID,
    "project": _NAME,
    "host": _NAME,
    "flavor": {**_NAME, "description": "The name of the requested flavor."},
    "outcome": {"type": "string", "enum": [*Outcome]},
    "since": _SINCE,
    "until": {**_SINCE, "description": "Only decisions before, as `since`."},
}

#: Schemas of the parameters of each path by name.
PARAMETERS: Final[dict[str, dict[str, Schema]]] = {
    "/v1/decisions": {
        **_SEARCHED,
        "failed": {
            "type": "boolean",
            "description": "Only decisions that selected no host; false: the others.",
        },
        "after": _AFTER,
        "limit": _LIMIT,
    },
    "/v1/failures": _SEARCHED,
    "/v1/decisions/{id}": {
        "id": {**_ID, "description": "A request id, or the UUID of an instance."}
    },
    "/v1/records": {
        "id": {**_ID, "description": "Only those of a request id, or an instance."},
        "since": _SINCE,
        "after": _AFTER,
        "limit": _LIMIT,
    },
    "/v1/views/{id}": {
        "id": {
            "type": "string",
            "pattern": "^(now|[0-9]{1,19})$",
            "description": "The `replay.view` of a decision, or now: as it is now.",
        }
    },
    "/v1/hosts": {
        "after": {
            "type": "string",
            "minLength": 1,
            "maxLength": 600,
            "description": "`next` of the page before.",
        },
        "limit": {**_LIMIT, "maximum": 10_000, "default": 200},
        "instances": {
            "type": "boolean",
            "default": False,
            "description": "Also the instances of each host.",
        },
    },
    "/v1/hosts/{host}": {
        "host": {**_NAME, "description": "A service host, or a compute node."}
    },
}

_STORED: Final[Schema] = {
    **_ID,
    "description": "A request id or instance whose stored request is used.",
}


def _request_body(properties: Schema, required: list[str]) -> Schema:
    """Return the schema of a body that has a request, or the id of a stored one."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**properties, "stored": _STORED, "request": REQUEST_SCHEMA},
        "required": required,
        "oneOf": [{"required": ["stored"]}, {"required": ["request"]}],
    }


#: The number of instances to ask about, also for a stored request.
_COUNT_ASKED: Final = {"type": "integer", "minimum": 1, "maximum": 100}

#: Schemas of the bodies of each path.
BODIES: Final[dict[str, Schema]] = {
    "/v1/why-not": _request_body({"host": _NAME}, ["host"]),
    "/v1/dry-run": _request_body({"count": {**_COUNT_ASKED, "default": 1}}, []),
}

#: Maximum number of flavors whose capacity is asked for at once.
_MAX_FLAVORS: Final = 200
BODIES["/v1/closest"] = _request_body({"count": _COUNT_ASKED}, [])
BODIES["/v1/capacity"] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "flavors": {
            "type": "array",
            "items": FLAVOR_SCHEMA,
            "minItems": 1,
            "maxItems": _MAX_FLAVORS,
        },
        "from": {
            "enum": ["decisions", "nova"],
            "description": "Where flavors are read: those of recent stored requests, "
            "or those of nova's API database that are not disabled.",
        },
        "name": {**_NAME, "description": "Only the flavors of this name."},
        "project": {**_NAME, "description": "The project that requests them."},
        "hosts": {
            "type": "integer",
            "minimum": 0,
            "maximum": 1000,
            "default": 0,
            "description": "The number of hosts to list for each flavor, those first "
            "that the weighers prefer.",
        },
    },
    "oneOf": [{"required": ["flavors"]}, {"required": ["from"]}],
}

_NAMES: Final[Schema] = {"type": "array", "items": _NAME, "maxItems": MAX_INSTANCES}
BODIES["/v1/plans/drain"] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "hosts": {**_NAMES, "minItems": 1},
        "place": {**_NAME, "description": "Such as rack=r1: all hosts in it."},
        "aggregate": {**_NAME, "description": "All hosts of this host aggregate."},
        "keep_up": {
            "type": "integer",
            "minimum": 0,
            "maximum": MAX_INSTANCES,
            "default": 0,
            "description": "How many of the hosts are not emptied: those whose "
            "instances use the most memory.",
        },
        "parallel": {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "default": 1,
            "description": "The most moves at the same time.",
        },
    },
    "oneOf": [
        {"required": ["hosts"]},
        {"required": ["place"]},
        {"required": ["aggregate"]},
    ],
}
_PARALLEL: Final = BODIES["/v1/plans/drain"]["properties"]["parallel"]
_SECONDS: Final[Schema] = {
    "type": "number",
    "minimum": 0,
    "maximum": 600,
    "default": 60,
    "description": "When the search ends; the best plan so far is returned.",
}
BODIES["/v1/plans/make-room"] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["flavor"],
    "properties": {
        "flavor": {**_NAME, "description": "The name of a flavor."},
        "from": BODIES["/v1/capacity"]["properties"]["from"],
        "count": {
            "type": "integer",
            "minimum": 1,
            "maximum": 1000,
            "default": 1,
            "description": "How many instances are to fit.",
        },
        "host": {**_NAME, "description": "The service host on which they are to fit."},
        "seconds": _SECONDS,
        "parallel": _PARALLEL,
    },
}
BODIES["/v1/plans/defragment"] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_moves": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_INSTANCES,
            "default": 200,
            "description": "The most moves.",
        },
        "max_gib": {
            "type": "number",
            "minimum": 0,
            "description": "The most memory that is moved, GiB.",
        },
        "seconds": _SECONDS,
        "parallel": _PARALLEL,
    },
}
BODIES["/v1/plans/check"] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["steps"],
    "properties": {
        "steps": {
            "type": "array",
            "maxItems": MAX_INSTANCES,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [field.name for field in dataclasses.fields(PlannedMove)],
                "properties": {
                    **dict.fromkeys(
                        (field.name for field in dataclasses.fields(PlannedMove)), _NAME
                    ),
                    "number": {"type": "integer", "minimum": 1},
                },
            },
        },
        "hosts": {**_NAMES, "description": "The hosts that the plan empties."},
        "left": {**_NAMES, "description": "The instances that it leaves there."},
    },
}

_TEXT: Final[Schema] = {"type": "string"}
_OPTIONAL_TEXT: Final[Schema] = {"type": ["string", "null"]}
#: Null stands for a number that JSON does not have, such as infinity.
_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_COUNT: Final[Schema] = {"type": "integer"}
_BOOLEAN: Final[Schema] = {"type": "boolean"}
_PLAIN: Final[dict[object, Schema]] = {
    str: _TEXT,
    int: _COUNT,
    float: _NUMBER,
    bool: _BOOLEAN,
    type(None): {"type": "null"},
}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _fields(cls: type) -> dict[str, Schema]:
    """Return the schemas of the fields of a dataclass by name."""
    hints = get_type_hints(cls)
    return {field.name: _schema(hints[field.name]) for field in dataclasses.fields(cls)}


def _schema(kind: Any) -> Schema:  # noqa: ANN401 - an annotation
    """Return the schema of the values of a type, as JSON has them."""
    if kind in _PLAIN:
        return _PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        return _object(**_fields(cast("type", kind)))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is None:
        return _TEXT  # an enum
    if origin in (Union, types.UnionType):
        return {"anyOf": [_schema(option) for option in arguments]}
    if issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _schema(arguments[1])}
    if origin is tuple and arguments[-1] is not Ellipsis:
        parts = [_schema(item) for item in arguments]
        entry = parts[0] if all(part == parts[0] for part in parts) else {}
        return {**_list(entry), "minItems": len(arguments), "maxItems": len(arguments)}
    return _list(_schema(arguments[0]))


_TEXTS: Final = _list(_TEXT)


def _record() -> dict[str, Schema]:
    properties = _fields(DecisionRecord)  # with the request as an object
    return {
        **properties,
        "funnel": _list(_schema(FunnelStep)),
        "request": {
            "type": "object",
            "description": "What was requested; empty: it is not stored.",
        },
    }


_SHORT: Final = _object(
    id=_TEXT,
    request_id=_OPTIONAL_TEXT,
    decided_at=_NUMBER,
    project_id=_OPTIONAL_TEXT,
    outcome=_TEXT,
    reason=_TEXT,
    user_message=_TEXT,
    instance_uuids=_TEXTS,
    n_instances=_COUNT,
    hosts=_TEXTS,
    flavor=_OPTIONAL_TEXT,
    cause=_TEXT,
    view_age_s=_NUMBER,
    is_stale=_BOOLEAN,
    n_hosts=_COUNT,
    total_ms=_NUMBER,
)
_VERDICT: Final = _object(**_fields(HostVerdict), passes=_BOOLEAN)
_PAST_HOST: Final = _object(
    **_fields(PastHost) | {"nodes": _list(_VERDICT), "ranks": _list(_schema(HostRank))}
)
_CLOSEST: Final = _fields(ClosestReport) | {
    "groups": _list(_object(**_fields(ClosestGroup), text=_TEXT)),
    "notes": _TEXTS,
}

_DEMAND: Final = {"anyOf": [_schema(Demand), {"type": "null"}]}
_CAPACITY: Final = _fields(CapacityReport) | {
    "flavors": _list(_object(**_fields(FlavorCapacity), demand=_DEMAND)),
    "notes": _TEXTS,
}

_ANSWERS: Final[dict[str, tuple[str, str, Schema]]] = {
    "/v1/decisions": (
        "get",
        "Decisions in short, the newest first.",
        _object(decisions=_list(_SHORT), next=_OPTIONAL_TEXT, max_view_age_s=_NUMBER),
    ),
    "/v1/failures": (
        "get",
        "The newest decisions without a host, by cause and what was requested.",
        _object(
            groups=_list(_schema(FailureGroup)),
            n_decisions=_COUNT,
            is_complete=_BOOLEAN,
        ),
    ),
    "/v1/decisions/{id}": (
        "get",
        "The decisions of a request id or an instance, with funnel, scores and claims.",
        _object(decisions=_list(_object(**_record(), id=_TEXT, decided_at=_NUMBER))),
    ),
    "/v1/records": (
        "get",
        "Decisions with their requests, as they are stored, for `moorage replay`.",
        _object(records=_list(_object(id=_TEXT, data=_TEXT)), next=_OPTIONAL_TEXT),
    ),
    "/v1/views/{id}": (
        "get",
        "The state on which decisions were made, or that of now, in base64.",
        _object(data=_TEXT),
    ),
    "/v1/why-not": (
        "post",
        "Every reason why a host cannot serve a request now.",
        _object(
            nodes=_list(_VERDICT),
            then={"anyOf": [_PAST_HOST, {"type": "null"}]},
            notes=_TEXTS,
        ),
    ),
    "/v1/dry-run": (
        "post",
        "Where instances would go now: a decision that claims nothing.",
        _object(decision=_object(**_record()), notes=_TEXTS),
    ),
    "/v1/closest": (
        "post",
        "The changes that would admit the hosts closest to a request.",
        _object(**_CLOSEST),
    ),
    "/v1/capacity": (
        "post",
        "How many more instances of flavors fit now, by zone and cell.",
        _object(**_CAPACITY),
    ),
    "/v1/plans/drain": (
        "post",
        "The moves that empty hosts, in order; nothing is moved.",
        _schema(Plan),
    ),
    "/v1/plans/make-room": (
        "post",
        "The fewest moves after which more instances of a flavor fit.",
        _schema(Plan),
    ),
    "/v1/plans/defragment": (
        "post",
        "The moves that empty the most hosts; nothing is moved.",
        _schema(Plan),
    ),
    "/v1/plans/check": (
        "post",
        "Which steps of a plan still hold.",
        _schema(CheckedPlan),
    ),
    "/v1/hosts": (
        "get",
        "Compute nodes: state, age, fill, pending claims and room.",
        _schema(HostPage),
    ),
    "/v1/hosts/{host}": (
        "get",
        "A host: its nodes and providers, aggregates, instances and events.",
        _schema(HostDetail),
    ),
    "/v1/openapi.json": ("get", "This document.", {"type": "object"}),
}

_ERRORS: Final = {
    "400": "The request is invalid.",
    "401": "A token is missing or wrong.",
    "403": "The user lacks the role admin.",
    "404": "There is no such decision or host.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "500": "A component failed.",
    "503": "The store of decisions, nova's database or Placement is not available.",
}


def document() -> Schema:
    """Return the OpenAPI document."""
    return copy.deepcopy(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Moorage",
                "version": __version__,
                "description": "Why instances are where they are, and why not.",
            },
            "paths": {path: _path(path) for path in _ANSWERS},
            "components": {
                "securitySchemes": {
                    "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"}
                }
            },
            "security": [{}, {"token": []}],
        }
    )


def _path(path: str) -> Schema:
    method, summary, answer = _ANSWERS[path]
    operation: Schema = {
        "summary": summary,
        "operationId": path.removeprefix("/v1/"),
        "parameters": [
            {
                "name": name,
                "in": "path" if f"{{{name}}}" in path else "query",
                "required": f"{{{name}}}" in path,
                "schema": schema,
            }
            for name, schema in PARAMETERS.get(path, {}).items()
        ],
        "responses": {
            "200": {
                "description": summary,
                "content": {"application/json": {"schema": answer}},
            },
            **{status: _error(text) for status, text in _ERRORS.items()},
        },
    }
    if path in BODIES:
        content = {"application/json": {"schema": BODIES[path]}}
        operation["requestBody"] = {"required": True, "content": content}
    return {method: operation}


def _error(text: str) -> Schema:
    schema = _object(error=_TEXT)
    return {"description": text, "content": {"application/json": {"schema": schema}}}
