# SPDX-License-Identifier: Apache-2.0
"""Columns of interned values: a small code a row, each distinct value held once."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]

#: Questions about a column whose answers are kept; the one longest unasked goes first.
_MAX_MEMOS = 256


class Columns(Protocol):
    """Arrays made of interned values, one row a code; they only grow."""

    def __len__(self) -> int:
        """Count the values that are in."""

    def extend(self, values: Sequence[Any]) -> None:
        """Add the values of the next codes."""


ColumnsT = TypeVar("ColumnsT", bound=Columns)

#: One object for each code, whichever column has it: they take as much as the texts.
_CODES: list[int] = []
_CODES_LOCK = threading.Lock()


def shared_code(number: int) -> int:
    """Return the one object for a code or a row's number, at least 0."""
    return shared_codes(number, number + 1)[0]


def shared_codes(first: int, end: int) -> list[int]:
    """Return the one object for each number from the first one to before the end."""
    if end > len(_CODES):
        with _CODES_LOCK:
            _CODES.extend(range(len(_CODES), end))
    return _CODES[first:end]


def _key(value: object) -> Hashable:
    """Return what tells two values apart; a mapping is known by its content.

    The content's digest, which is shorter, if a mapping cannot be a key by itself.
    """
    try:
        hash(value)
    except TypeError:
        mapping = cast(Mapping[str, object], value)
        content = json.dumps(dict(mapping), sort_keys=True).encode()
        return hashlib.blake2b(content, digest_size=16).digest()
    return value


class Interner:
    """Give every distinct value a code; a value keeps its code for good.

    A view that was taken earlier goes on reading `values` while codes are added.
    """

    __slots__ = ("_codes", "_columns", "_lock", "_memos", "values")

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.values: list[Any] = []
        self._memos: OrderedDict[Hashable, npt.NDArray[Any]] = OrderedDict()
        self._columns: dict[Callable[[], Any], Any] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: object) -> int:
        """Return the code of a value, a new one where it was never seen."""
        key = _key(value)
        code = self._codes.get(key)
        return self._add(key, value) if code is None else code

    def codes(self, values: Sequence[Any]) -> list[int]:
        """Return the codes of values, as `code` does."""
        try:  # nearly all are keys by themselves
            with self._lock:  # a decision may add what it left of a host
                found = list(map(self._codes.get, values))
                if None in found:
                    self._add_all(values, found)
        except TypeError:
            return list(map(self.code, values))
        return found  # type: ignore[return-value]  # none of them is None

    def _add_all(self, values: Sequence[Any], found: list[int | None]) -> None:
        """Give the values of which no code was found their codes."""
        kept, add = self.values, self._codes.setdefault
        first = len(kept)
        news = shared_codes(first, first + found.count(None))
        for i, value in enumerate(values):
            if found[i] is None:
                new = news[len(kept) - first]
                kept.append(value)  # before anybody can find its code
                code = found[i] = add(value, new)
                if code != new:  # it is there twice
                    kept.pop()

    def _add(self, key: Hashable, value: object) -> int:
        """Return the code of the value of a key, a new one where there is none."""
        with self._lock:
            code = self._codes.get(key)
            if code is None:
                self.values.append(value)
                code = self._codes[key] = shared_code(len(self.values) - 1)
            return code

    def find(self, value: object) -> int | None:
        """Return the code of a value that was seen, else None."""
        return self._codes.get(_key(value))

    def answers(
        self, memo: Hashable, function: Callable[[Any], Any], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Return `function` of every value by code, asked for new values only.

        Parameters
        ----------
        memo : hashable
            What `function` asks, in full: under an equal one its answers are kept.

        Returns
        -------
        ndarray of shape (at least the codes that a view has,), of `dtype`
        """

        def answer(start: int) -> npt.NDArray[Any]:
            new = self.values[start:]
            fresh = np.empty(len(new), dtype)
            for i, value in enumerate(new):
                fresh[i] = function(value)
            return fresh

        return self.answers_from(memo, answer)

    def answers_from(
        self, memo: Hashable, function: Callable[[int], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return an answer for every value by code, asked for new values only.

        Parameters
        ----------
        memo : hashable
            What `function` asks, in full: under an equal one its answers are kept.
        function : callable
            Return the answers of all values from a code on, at least one.

        Returns
        -------
        ndarray of shape (at least the codes that a view has,)
        """
        with self._lock:
            known = self._memos.pop(memo, None)
            n_known = 0 if known is None else len(known)
            if known is None or n_known < len(self.values):
                fresh = function(n_known)
                known = fresh if known is None else np.concatenate([known, fresh])
            self._memos[memo] = known
            if len(self._memos) > _MAX_MEMOS:
                self._memos.popitem(last=False)
            return known

    def columns(self, make: Callable[[], ColumnsT]) -> ColumnsT:
        """Return arrays of all values, which `make` began and which are kept for it."""
        with self._lock:
            columns: ColumnsT | None = self._columns.get(make)
            if columns is None:
                columns = self._columns[make] = make()
            if len(columns) < len(self.values):
                columns.extend(self.values[len(columns) :])
            return columns


def compacted(codes: Codes, values: Sequence[Any]) -> tuple[Codes, Interner]:
    """Return the same column with the values that no row has any more left out."""
    interner = Interner()
    present, inverse = np.unique(codes, return_inverse=True)
    renamed = np.array(
        [interner.code(values[code]) for code in present], dtype=np.int32
    )
    return renamed[inverse] if len(present) else codes.copy(), interner
