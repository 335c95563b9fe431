# SPDX-License-Identifier: Apache-2.0
"""The OpenAPI document of the HTTP API, from which requests are validated."""

from __future__ import annotations

import copy
from typing import Any, Final

from ... import __version__
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

#: Schemas of the parameters of each path by name.
PARAMETERS: Final[dict[str, dict[str, Schema]]] = {
    "/v1/decisions": {
        "instance": _ID,
        "project": _NAME,
        "host": _NAME,
        "failed": {
            "type": "boolean",
            "description": "Only decisions that selected no host; false: the others.",
        },
        "since": _SINCE,
        "after": _AFTER,
        "limit": _LIMIT,
    },
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
        "limit": {**_LIMIT, "maximum": 1000, "default": 200},
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


#: Schemas of the bodies of each path.
BODIES: Final[dict[str, Schema]] = {
    "/v1/why-not": _request_body({"host": _NAME}, ["host"]),
    "/v1/dry-run": _request_body(
        {"count": {"type": "integer", "minimum": 1, "maximum": 100, "default": 1}}, []
    ),
}

#: Flavors whose capacity is asked for at once.
_MAX_FLAVORS: Final = 200
BODIES["/v1/closest"] = _request_body({}, [])
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
    },
    "oneOf": [{"required": ["flavors"]}, {"required": ["from"]}],
}

_TEXT: Final[Schema] = {"type": "string"}
_OPTIONAL_TEXT: Final[Schema] = {"type": ["string", "null"]}
_NUMBER: Final[Schema] = {"type": "number"}
_OPTIONAL_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_COUNT: Final[Schema] = {"type": "integer"}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


_TEXTS: Final[Schema] = _list(_TEXT)


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


_FUNNEL = _object(
    name=_TEXT, n_in={"type": ["integer", "null"]}, n_out=_COUNT, reason=_TEXT
)
_PART = _object(
    name=_TEXT,
    raw=_OPTIONAL_NUMBER,
    normalized=_OPTIONAL_NUMBER,
    weighted=_OPTIONAL_NUMBER,
)
_WEIGHED = _object(
    host=_TEXT,
    node=_TEXT,
    weight=_OPTIONAL_NUMBER,
    parts=_list(_PART),
)
_PLACED = _object(
    instance_uuid=_OPTIONAL_TEXT,
    host=_TEXT,
    weight=_OPTIONAL_NUMBER,
    top_hosts=_list(_WEIGHED),
    alternates=_TEXTS,
    node=_TEXT,
)
_CLAIM = _object(
    instance_uuids=_TEXTS,
    hosts=_TEXTS,
    result=_TEXT,
    n_attempts=_COUNT,
    detail=_TEXT,
    at_ms=_OPTIONAL_NUMBER,
)
_ATTACHMENT = _object(
    hint=_TEXT,
    uuid=_TEXT,
    level=_TEXT,
    places=_list(_TEXTS),
    problem=_TEXT,
    detail=_TEXT,
)
_RECORD = _object(
    request_id=_OPTIONAL_TEXT,
    instance_uuids=_TEXTS,
    n_instances=_COUNT,
    started_at=_NUMBER,
    queries=_TEXTS,
    n_hosts=_COUNT,
    funnel=_list(_FUNNEL),
    instances=_list(_PLACED),
    claims=_list(_CLAIM),
    attachments=_list(_ATTACHMENT),
    times_ms={"type": "object", "additionalProperties": _NUMBER},
    outcome=_OPTIONAL_TEXT,
    reason=_TEXT,
    user_message=_TEXT,
)
_STORED_RECORD = {
    "allOf": [
        _object(id=_TEXT, decided_at=_NUMBER, project_id=_OPTIONAL_TEXT),
        _RECORD,
    ]
}
_SHORT = _object(
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
    n_hosts=_COUNT,
    total_ms=_OPTIONAL_NUMBER,
)
_REASON = _object(
    stage=_TEXT,
    check=_TEXT,
    reason=_TEXT,
    required=_OPTIONAL_TEXT,
    available=_OPTIONAL_TEXT,
)
_VERDICT = _object(
    host=_TEXT,
    node=_TEXT,
    node_uuid=_TEXT,
    passes={"type": "boolean"},
    reasons=_list(_REASON),
    providers_from=_TEXT,
)
_PAIR = {"type": "array", "items": _COUNT, "minItems": 2, "maxItems": 2}
_RATIOS = {"type": "array", "items": _NUMBER, "minItems": 3, "maxItems": 3}
_HOST = _object(
    host=_TEXT,
    node=_TEXT,
    node_uuid=_TEXT,
    cell_uuid=_TEXT,
    zone=_TEXT,
    condition=_TEXT,
    seen_s=_OPTIONAL_NUMBER,
    vcpus=_PAIR,
    memory_mb=_PAIR,
    disk_gb=_PAIR,
    allocation_ratios=_RATIOS,
    n_instances=_COUNT,
    n_claims=_COUNT,
    places={"type": "object", "additionalProperties": _TEXTS},
)


_CHANGE = _object(
    stage=_TEXT, check=_TEXT, text=_TEXT, less_by={"type": ["integer", "null"]}
)
_CLOSEST_GROUP = _object(
    text=_TEXT,
    changes=_list(_CHANGE),
    n_hosts=_COUNT,
    hosts=_TEXTS,
    zones=_list({"type": "array"}),
)
_PLACE = _object(zone=_TEXT, cell_uuid=_TEXT, n_instances=_COUNT, n_hosts=_COUNT)
_CAPACITY = _object(
    flavor=_TEXT,
    vcpus=_COUNT,
    memory_mb=_COUNT,
    disk_gb=_COUNT,
    n_instances=_COUNT,
    n_hosts=_COUNT,
    is_exact={"type": "boolean"},
    places=_list(_PLACE),
    notes=_TEXTS,
)

_ANSWERS: Final[dict[str, tuple[str, str, Schema]]] = {
    "/v1/decisions": (
        "get",
        "Decisions in short, the newest first.",
        _object(decisions=_list(_SHORT), next=_OPTIONAL_TEXT),
    ),
    "/v1/decisions/{id}": (
        "get",
        "The decisions of a request id or an instance, with funnel, scores and claims.",
        _object(decisions=_list(_STORED_RECORD)),
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
        _object(nodes=_list(_VERDICT), notes=_TEXTS),
    ),
    "/v1/dry-run": (
        "post",
        "Where instances would go now: a decision that claims nothing.",
        _object(decision=_RECORD, notes=_TEXTS),
    ),
    "/v1/closest": (
        "post",
        "The changes that would admit the hosts closest to a request.",
        _object(
            n_known=_COUNT,
            n_checked=_COUNT,
            n_passing=_COUNT,
            n_changes=_COUNT,
            groups=_list(_CLOSEST_GROUP),
            providers_from=_TEXT,
            notes=_TEXTS,
        ),
    ),
    "/v1/capacity": (
        "post",
        "How many more instances of flavors fit now, by zone and cell.",
        _object(n_hosts=_COUNT, zones=_TEXTS, flavors=_list(_CAPACITY)),
    ),
    "/v1/hosts": (
        "get",
        "Compute nodes: state, age, fill and pending claims.",
        _object(hosts=_list(_HOST), n_hosts=_COUNT, next=_OPTIONAL_TEXT),
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
