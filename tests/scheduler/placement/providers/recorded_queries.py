# SPDX-License-Identifier: Apache-2.0
"""The queries of requests that were recorded from nova's conductor."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moorage.objects import Serializer
from moorage.scheduler.placement.query import Requirements, build_query
from moorage.scheduler.request import Request

from .real_placement import Params

_WIRE = Path(__file__).parents[3] / "data/wire"


def recorded_queries() -> list[Params]:
    """Return the distinct queries, without their limit."""
    distinct = {_query(context, spec_obj) for context, spec_obj in _requests()}
    return [[each for each in params if each[0] != "limit"] for params in distinct]


def _query(context: Any, spec_obj: Any) -> tuple[tuple[str, str], ...]:
    request = Request.validated(Serializer().deserialize_entity(context, spec_obj))
    return build_query(request, Requirements(), limit=1000).params


def _requests() -> Iterator[tuple[Any, Any]]:
    recorded = [json.loads(path.read_text()) for path in _WIRE.glob("*.json")]
    with gzip.open(_WIRE / "corpus.jsonl.gz", "rt") as lines:
        recorded += map(json.loads, lines)
    for each in recorded:
        args = each.get("message", {}).get("args") or {}
        if "spec_obj" in args:
            yield each["context"], args["spec_obj"]
