# SPDX-License-Identifier: Apache-2.0
"""The query language of JsonFilter, evaluated for all hosts at once.

A query is a list: an operator, then its terms. A term is a query, a variable
(``$free_ram_mb``, ``$stats.key``) or a value. A term that is null, empty text or an
attribute that a host does not have is skipped.

=============== =====================================================================
``= < > <= >=`` the first term compares so to all others; false with less than two
``in``          the first term equals one of the others; false with less than two
``and or``      all terms are true; one of them is
``not``         one of the terms is false
=============== =====================================================================

The rules are nova's, with these exceptions: a nested ``not`` negates its terms (nova
takes it for true); comparing values that have no order, such as a number and text, is
false, and a key of a value without keys is an attribute that the host does not have
(nova fails the request).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeGuard

import numpy as np
import numpy.typing as npt

from ..scheduler.errors import excerpt
from ..scheduler.hosts import HostBatch
from .base import Mask, all_hosts, no_hosts

_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "in": operator.eq,
}
_OPERATORS: Final = (*_COMPARISONS, "not", "or", "and")

#: Entries of ``service`` in nova's HostState that are columns here.
_SERVICE: Final = frozenset({"host", "disabled", "forced_down"})

#: Deeper than any real query.
_MAX_DEPTH: Final = 20
#: Values that differ per host are compared in Python: 10 ms each at 10,000 hosts.
_MAX_VARIABLES: Final = 100


class MalformedQuery(ValueError):
    """Raised when a query is malformed."""


def check(query: object) -> None:
    """Reject a malformed query; an empty one is valid, and every host satisfies it.

    Raises
    ------
    MalformedQuery
        It names the unknown operator, the value that is not a list, or the limit that
        is exceeded.
    """
    if query:
        n_variables = sum(1 for _ in _variables(_checked(query)))
        if n_variables > _MAX_VARIABLES:
            raise MalformedQuery(f"it has more than {_MAX_VARIABLES} variables")


def _checked(query: object, depth: int = 1) -> list[Any]:
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
            _checked(term, depth + 1)
    return query


def variables(query: Sequence[Any]) -> set[str]:
    """Return the variables of a valid query."""
    return set(_variables(query))


def _variables(query: Sequence[Any]) -> Iterator[str]:
    for term in query[1:]:
        if isinstance(term, list):
            yield from _variables(term)
        elif _is_variable(term):
            yield term


def value_of(host: HostBatch, variable: str) -> object:
    """Return a variable's value for the first host of a batch; None if undefined."""
    (value,) = _term(host, variable).values(host, [0])
    return value


def satisfying(hosts: HostBatch, query: Sequence[Any]) -> Mask:
    """Return which hosts satisfy a valid query, shape (n_hosts,)."""
    if not query:
        return all_hosts(hosts)
    name = query[0]
    terms = [_term(hosts, term) for term in query[1:]]
    if name in _COMPARISONS:
        return _compared(hosts, name, [t for t in terms if not _is_absent(t)])
    if name == "and":
        return _all(hosts, [t.is_true(hosts) | ~t.is_present(hosts) for t in terms])
    if name == "or":
        return _any(hosts, [t.is_true(hosts) for t in terms])
    return _any(hosts, [~t.is_true(hosts) & t.is_present(hosts) for t in terms])


def _all(hosts: HostBatch, masks: Sequence[Mask]) -> Mask:
    return functools.reduce(operator.and_, masks, all_hosts(hosts))


def _any(hosts: HostBatch, masks: Sequence[Mask]) -> Mask:
    return functools.reduce(operator.or_, masks, no_hosts(hosts))


# -- terms -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class _Constant:
    """A value that is the same for all hosts; None: it is skipped."""

    value: Any

    def is_true(self, hosts: HostBatch) -> Mask:
        return all_hosts(hosts) if self.value else no_hosts(hosts)

    def is_present(self, hosts: HostBatch) -> Mask:
        return no_hosts(hosts) if self.value is None else all_hosts(hosts)

    def codes(self, hosts: HostBatch) -> npt.NDArray[Any]:
        return np.zeros(len(hosts), np.int64)

    def values(self, hosts: HostBatch, index: Sequence[int]) -> list[Any]:
        return [self.value] * len(index)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class _Numbers:
    """A number or bool per host, shape (n_hosts,)."""

    array: npt.NDArray[Any]

    def is_true(self, hosts: HostBatch) -> Mask:
        return self.array.astype(bool)

    def is_present(self, hosts: HostBatch) -> Mask:
        return all_hosts(hosts)

    def codes(self, hosts: HostBatch) -> npt.NDArray[Any]:
        return np.unique(self.array, return_inverse=True)[1]

    def values(self, hosts: HostBatch, index: Sequence[int]) -> list[Any]:
        return list(self.array[index].tolist())


@dataclasses.dataclass(frozen=True, slots=True)
class _Interned:
    """An interned column, or an entry of its values."""

    column: str
    keys: tuple[str, ...]

    def is_true(self, hosts: HostBatch) -> Mask:
        return self.map_distinct(hosts, bool, "is true")

    def is_present(self, hosts: HostBatch) -> Mask:
        return self.map_distinct(hosts, lambda value: value is not None, "is present")

    def codes(self, hosts: HostBatch) -> npt.NDArray[Any]:
        return hosts.codes(self.column).astype(np.int64)

    def values(self, hosts: HostBatch, index: Sequence[int]) -> list[Any]:
        column = (hosts.value(self.column, i) for i in index)
        return [_entry(value, self.keys) for value in column]

    def map_distinct(
        self, hosts: HostBatch, function: Callable[[Any], bool], question: str
    ) -> Mask:
        mask: Mask = hosts.map_distinct(
            self.column,
            lambda value: function(_entry(value, self.keys)),
            bool,
            cache_key=("JsonFilter", self.keys, question),
        )
        return mask


_Term = _Constant | _Numbers | _Interned


def _term(hosts: HostBatch, term: object) -> _Term:
    if isinstance(term, list):
        return _Numbers(satisfying(hosts, term)) if term else _Constant(True)
    if _is_variable(term):
        return _variable(hosts, term)
    return _Constant(None if term == "" else term)


def _is_variable(term: object) -> TypeGuard[str]:
    return isinstance(term, str) and term.startswith("$")


def _is_absent(term: _Term) -> bool:
    return isinstance(term, _Constant) and term.value is None


def _variable(hosts: HostBatch, variable: str) -> _Term:
    name, *keys = variable[1:].split(".")
    if name == "service" and len(keys) == 1 and keys[0] in _SERVICE:
        name, keys = keys[0], []
    elif not hosts.has_attribute(name):
        return _Constant(None)
    if hosts.is_interned(name):
        return _Interned(name, tuple(keys))
    return _Constant(None) if keys else _Numbers(getattr(hosts, name))


def _entry(value: object, keys: Sequence[str]) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


# -- comparisons -----------------------------------------------------------------------


def _compared(hosts: HostBatch, name: str, terms: Sequence[_Term]) -> Mask:
    interned = [term for term in terms if isinstance(term, _Interned)]
    if not interned:
        return _compared_numbers(hosts, name, terms)
    if len(set(interned)) == 1 and not any(isinstance(t, _Numbers) for t in terms):
        return _compared_with_constants(hosts, name, terms, interned[0])
    return _compared_distinct(hosts, name, terms)


def _compared_numbers(hosts: HostBatch, name: str, terms: Sequence[_Term]) -> Mask:
    """Compare columns of numbers and constants, pair by pair."""
    if len(terms) < 2:
        return no_hosts(hosts)
    pairs = [_pair(hosts, name, terms[0], term) for term in terms[1:]]
    return _any(hosts, pairs) if name == "in" else _all(hosts, pairs)


def _pair(hosts: HostBatch, name: str, left: _Term, right: _Term) -> Mask:
    values = [t.array if isinstance(t, _Numbers) else t for t in (left, right)]
    constants = [t.value for t in values if isinstance(t, _Constant)]
    if len(constants) == 2:
        return all_hosts(hosts) if _compare(name, constants) else no_hosts(hosts)
    if not all(isinstance(c, int | float) for c in constants):
        return no_hosts(hosts)
    arrays = [t.value if isinstance(t, _Constant) else t for t in values]
    return np.asarray(_COMPARISONS[name](*arrays), dtype=bool)


def _compared_with_constants(
    hosts: HostBatch, name: str, terms: Sequence[_Term], column: _Interned
) -> Mask:
    """Compare one interned column with constants, once for each of its values."""
    places = [t.value if isinstance(t, _Constant) else column for t in terms]
    question = json.dumps(
        [name, *([None] if p is column else [p] for p in places)], default=repr
    )
    return column.map_distinct(
        hosts,
        lambda value: _compare(name, [value if p is column else p for p in places]),
        question,
    )


def _compared_distinct(hosts: HostBatch, name: str, terms: Sequence[_Term]) -> Mask:
    """Compare any columns, once for each occurring combination of values."""
    codes = np.zeros(len(hosts), np.int64)
    for term in terms:
        more = term.codes(hosts)
        codes = codes * (int(more.max(initial=0)) + 1) + more
        codes = np.unique(codes, return_inverse=True)[1]
    _, index = np.unique(codes, return_index=True)
    columns = [term.values(hosts, index.tolist()) for term in terms]
    answers = [_compare(name, row) for row in zip(*columns, strict=True)]
    return np.array(answers, dtype=bool)[codes]


def _compare(name: str, values: Sequence[Any]) -> bool:
    """Compare plain values; None is skipped."""
    first, *others = [value for value in values if value is not None] or [None]
    if not others:
        return False
    answers = _answers(_COMPARISONS[name], first, others)
    return any(answers) if name == "in" else all(answers)


def _answers(
    compare: Callable[[Any, Any], Any], first: object, others: Sequence[Any]
) -> Iterator[bool]:
    for other in others:
        try:
            yield bool(compare(first, other))
        except TypeError:
            yield False
