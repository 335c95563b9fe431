# SPDX-License-Identifier: Apache-2.0
"""Does the host satisfy the JSON query of the request's hint?

A query is a list of an operator and its terms. A term is a query, a variable
(``$free_ram_mb``, ``$stats.key``) or a value. A term is skipped if it is null, empty
text or an attribute that the host does not have.

=============== =====================================================================
``= < > <= >=`` the comparison of the first term with each other term is true
``in``          the first term equals one of the other terms
``and or``      all terms are true; at least one term is true
``not``         at least one term is false
=============== =====================================================================

Comparisons and ``in`` with less than two terms are false. The rules are nova's, with
these exceptions: a nested ``not`` negates its terms (nova treats it as true). Comparing
values that have no order, such as a number and text, is false, and a key of a value
that has no keys counts as an attribute that the host does not have (nova fails the
request in both cases).
"""

from __future__ import annotations

import copy
import json
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self, TypeGuard

import numpy as np
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.errors import InvalidRequest, excerpt
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Rejection
from .remedy import Remedy

REASON = "does not satisfy the JSON query of the hint query"

_HINT = "query"
#: The maximum length of a query, larger than any real query.
_MAX_CHARACTERS: Final = 16 * 1024
_MAX_DEPTH: Final = 20
#: Evaluating a variable for one host takes some 5 µs, and any other term up to 0.5 µs.
#: With these limits, and 10,000 hosts, a query takes a worker two seconds at most.
_MAX_VARIABLES: Final = 20
_MAX_TERMS: Final = 200

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "in": operator.eq,
}
_OPERATORS: Final = (*_COMPARISONS, "not", "or", "and")


class MalformedQuery(ValueError):
    """Raised when a query is malformed."""


class JsonFilter(BaseHostFilter):
    """Pass hosts that satisfy the query of the hint ``query``.

    ``["and", [">=", "$free_ram_mb", 1024], ["=", "$hypervisor_type", "QEMU"]]``. A
    malformed query is reported as an invalid request; nova fails with an unrelated
    error. The query is evaluated host by host.

    Raises
    ------
    InvalidRequest
        The hint is not JSON, or not a query.
    """

    REASON = REASON
    ROWWISE = True

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        self._query: list[Any] = []

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Return a copy that holds the decoded query."""
        prepared = copy.copy(self)
        # The filter does not run on rebuild: an old instance's hint is not checked.
        if not Request.of(spec_obj).is_rebuild:
            prepared._query = _read_query(spec_obj)
        return prepared

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts satisfy the query, shape (n_hosts,)."""
        query = _without_undefined(hosts, self._query)
        if not query:
            return all_hosts(hosts)
        answers = (_is_true(host, query) for host in hosts)
        return np.fromiter(answers, dtype=bool, count=len(hosts))

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the request without the query."""
        text = (
            f"without hint {_HINT}, or with another query than {excerpt(self._query)}"
        )
        yield Remedy(rejected, text, hints=(_HINT,))

    def explain_rejection(
        self, host_state: HostState, spec_obj: RequestSpec
    ) -> Rejection | None:
        """Return the query and the values of its variables."""
        rejection = super().explain_rejection(host_state, spec_obj)
        if rejection is None:
            return None
        names, hosts = sorted({*_variables(self._query)}), host_state.as_batch()
        values = {
            name: _value(host_state, name) if _is_defined(hosts, name) else None
            for name in names
        }
        return rejection.because(
            ", ".join(name.removeprefix("$") for name in values),
            required=json.dumps(self._query),
            available=", ".join(f"{name} is {value}" for name, value in values.items()),
        )


# -- reading a query -------------------------------------------------------------------


def _read_query(spec_obj: RequestSpec) -> list[Any]:
    """Return the decoded query, which is valid; empty if the request has no query."""
    text = spec_obj.get_scheduler_hint(_HINT)
    if not text:
        return []
    try:
        if isinstance(text, str) and len(text) > _MAX_CHARACTERS:
            raise MalformedQuery(f"it has more than {_MAX_CHARACTERS} characters")
        query: list[Any] = json.loads(text)
        if query:
            _check(query)
            if _n_terms(query) > _MAX_TERMS:
                raise MalformedQuery(f"it has more than {_MAX_TERMS} terms")
            if sum(1 for _ in _variables(query)) > _MAX_VARIABLES:
                raise MalformedQuery(f"it has more than {_MAX_VARIABLES} variables")
    except MalformedQuery as e:
        raise _invalid(text, str(e)) from e
    except (ValueError, TypeError, RecursionError) as e:
        # A hint with several values is a list, not text.
        raise _invalid(text, f"it is not the text of one JSON value: {e}") from e
    return query


def _invalid(text: object, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"scheduler_hints: {_HINT} {excerpt(text)} cannot be used: {why}"
    )


def _check(query: object, depth: int = 1) -> None:
    if depth > _MAX_DEPTH:
        raise MalformedQuery(f"it is nested more than {_MAX_DEPTH} deep")
    if not isinstance(query, list):
        raise MalformedQuery(
            f"{excerpt(query)} is not a list of an operator and its terms"
        )
    if query[0] not in _OPERATORS:
        known = " ".join(_OPERATORS)
        raise MalformedQuery(
            f"{excerpt(query[0])} is not an operator; there are {known}"
        )
    for term in query[1:]:
        if isinstance(term, list) and term:
            _check(term, depth + 1)


def _n_terms(query: Sequence[Any]) -> int:
    """Return the number of terms at all levels."""
    n_nested = sum(_n_terms(term) for term in query[1:] if isinstance(term, list))
    return len(query[1:]) + n_nested


def _variables(query: Sequence[Any]) -> Iterator[str]:
    for term in query[1:]:
        if isinstance(term, list):
            yield from _variables(term)
        elif _is_variable(term):
            yield term


def _is_variable(term: object) -> TypeGuard[str]:
    return isinstance(term, str) and term.startswith("$")


def _without_undefined(hosts: HostBatch, query: list[Any]) -> list[Any]:
    """Return a query in which null replaces variables that hosts do not have."""
    return [
        _without_undefined(hosts, term)
        if isinstance(term, list)
        else None
        if _is_variable(term) and not _is_defined(hosts, term)
        else term
        for term in query
    ]


def _is_defined(hosts: HostBatch, variable: str) -> bool:
    name = variable[1:].partition(".")[0]
    return name == "service" or hosts.has_attribute(name)


# -- evaluating a query for one host ---------------------------------------------------


def _is_true(host_state: HostState, query: Sequence[Any]) -> bool:
    """Return whether a host satisfies a valid query; an empty query is always true."""
    if not query:
        return True
    name = query[0]
    values = [
        value for term in query[1:] if (value := _value(host_state, term)) is not None
    ]
    if name == "and":
        return all(values)
    if name == "or":
        return any(values)
    if name == "not":
        return any(not value for value in values)
    if len(values) < 2:
        return False
    answers = (_compares(_COMPARISONS[name], values[0], value) for value in values[1:])
    return any(answers) if name == "in" else all(answers)


def _value(host_state: HostState, term: Any) -> Any:  # noqa: ANN401 - JSON's own types
    """Return the value of a term for a host; None: the term is skipped."""
    if isinstance(term, list):
        return _is_true(host_state, term)
    if not _is_variable(term):
        return None if term == "" else term
    name, *keys = term[1:].split(".")
    value = getattr(host_state, name)
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _compares(compare: Callable[[Any, Any], Any], one: object, other: object) -> bool:
    try:
        return bool(compare(one, other))
    except TypeError:
        return False
