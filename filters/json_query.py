# SPDX-License-Identifier: Apache-2.0
"""Does the host satisfy the JSON query of the request's hint?"""

from __future__ import annotations

import json
from typing import Any, Final

from ..objects import RequestSpec
from ..scheduler.errors import InvalidRequest, excerpt
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, Rejection, all_hosts
from .query_terms import MalformedQuery, check, satisfying, value_of, variables

REASON = "does not satisfy the JSON query of the hint query"

_HINT = "query"
_MAX_CHARACTERS: Final = 16 * 1024


class JsonFilter(BaseHostFilter):
    """Pass hosts that satisfy the query of the hint ``query``.

    ``["and", [">=", "$free_ram_mb", 1024], ["=", "$hypervisor_type", "QEMU"]]``: an
    operator, then its terms. ``$name`` is an attribute of the host, ``$name.key`` an
    entry of it; `query_terms` has the rules. A malformed query is reported as an
    invalid request; nova fails with an unrelated error.

    Raises
    ------
    InvalidRequest
        The hint is not JSON, or not a query.
    """

    REASON = REASON

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts satisfy the query, shape (n_hosts,)."""
        query = _query(spec_obj)
        return satisfying(hosts, query) if query else all_hosts(hosts)

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the query and the values of its variables."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        query = _query(spec_obj)
        host = host_state.as_batch()
        found = {name: value_of(host, name) for name in sorted(variables(query))}
        return rejection.because(
            ", ".join(name.removeprefix("$") for name in found),
            required=json.dumps(query),
            available=", ".join(f"{name} is {value}" for name, value in found.items()),
        )


def _query(spec_obj: RequestSpec) -> list[Any]:
    """Return the decoded, checked query; empty if there is none."""
    text = spec_obj.get_scheduler_hint(_HINT)
    if not text:
        return []
    try:
        _check_length(text)
        query: list[Any] = json.loads(text)
        check(query)
    except (ValueError, TypeError, RecursionError) as e:
        # Several hint values are a list, not text.
        raise InvalidRequest(
            f"scheduler_hints: {_HINT} {excerpt(text)} cannot be used: {_described(e)}"
        ) from e
    return query


def _check_length(text: object) -> None:
    if isinstance(text, str) and len(text) > _MAX_CHARACTERS:
        raise MalformedQuery(f"it has more than {_MAX_CHARACTERS} characters")


def _described(error: Exception) -> str:
    is_ours = isinstance(error, MalformedQuery)
    return str(error) if is_ours else f"it is not the text of one JSON value: {error}"
