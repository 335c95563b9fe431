# SPDX-License-Identifier: Apache-2.0
"""Columns of interned values: a small code per row, each distinct value stored once."""

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

#: Cached results of functions over a column; the least recently used is evicted.
_MAX_CACHED = 256


class ValueArrays(Protocol):
    """Arrays derived from interned values, one row per code; they only grow."""

    def __len__(self) -> int:
        """Return the number of values that they have."""

    def extend(self, values: Sequence[Any]) -> None:
        """Add the values of the next codes."""


ValueArraysT = TypeVar("ValueArraysT", bound=ValueArrays)


def _key(value: object) -> Hashable:
    """Return a key that identifies a value; a mapping is identified by its content.

    It is the content's digest, which is shorter, if the mapping is not hashable.
    """
    try:
        hash(value)
    except TypeError:
        mapping = cast(Mapping[str, object], value)
        content = json.dumps(dict(mapping), sort_keys=True).encode()
        return hashlib.blake2b(content, digest_size=16).digest()
    return value


class Interner:
    """Give every distinct value a code, which never changes.

    A view that was taken earlier can read `values` while codes are added.
    """

    __slots__ = ("_cached", "_codes", "_lock", "_value_arrays", "values")

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.values: list[Any] = []
        self._cached: OrderedDict[Hashable, npt.NDArray[Any]] = OrderedDict()
        self._value_arrays: dict[Callable[[], Any], Any] = {}
        self._lock = threading.RLock()

    def code(self, value: object) -> int:
        """Return the code of a value, a new one if the value is new."""
        key = _key(value)
        code = self._codes.get(key)
        if code is None:
            with self._lock:
                code = self._add(key, value)
        return code

    def codes(self, values: Sequence[Any]) -> list[int]:
        """Return the codes of values, as `code` does."""
        try:  # nearly all values are hashable
            with self._lock:
                return [
                    self._add(value, value) if code is None else code
                    for code, value in zip(
                        map(self._codes.get, values), values, strict=True
                    )
                ]
        except TypeError:
            return [self.code(value) for value in values]

    def _add(self, key: Hashable, value: object) -> int:
        """Return the code of a key's value; the lock is held."""
        code = self._codes.get(key)
        if code is None:
            code = len(self.values)
            self.values.append(value)  # before another thread can find its code
            self._codes[key] = code
        return code

    def find(self, value: object) -> int | None:
        """Return the code of a known value, otherwise None."""
        try:
            return self._codes.get(value)
        except TypeError:
            return self._codes.get(_key(value))

    def map_values(
        self, cache_key: Hashable, function: Callable[[Any], Any], dtype: npt.DTypeLike
    ) -> npt.NDArray[Any]:
        """Return `function` of every value by code, called for new values only.

        Parameters
        ----------
        cache_key : hashable
            Identifies `function` and all of its parameters; equal keys share results.

        Returns
        -------
        ndarray of shape (at least the codes that a view has,), of `dtype`
        """

        def results_from(start: int) -> npt.NDArray[Any]:
            new_values = self.values[start:]
            results = np.empty(len(new_values), dtype)
            for i, value in enumerate(new_values):
                results[i] = function(value)
            return results

        return self.map_codes(cache_key, results_from)

    def map_codes(
        self, cache_key: Hashable, function: Callable[[int], npt.NDArray[Any]]
    ) -> npt.NDArray[Any]:
        """Return a result for every value by code, computed for new values only.

        Parameters
        ----------
        cache_key : hashable
            Identifies `function` and all of its parameters; equal keys share results.
        function : callable
            Takes a code, and returns the results of the values from that code on.

        Returns
        -------
        ndarray of shape (at least the codes that a view has,)
        """
        with self._lock:
            cached = self._cached.pop(cache_key, None)
            n_cached = 0 if cached is None else len(cached)
            if cached is None or n_cached < len(self.values):
                new_results = function(n_cached)
                cached = (
                    new_results
                    if cached is None
                    else np.concatenate([cached, new_results])
                )
            self._cached[cache_key] = cached
            if len(self._cached) > _MAX_CACHED:
                self._cached.popitem(last=False)
            return cached

    def value_arrays(self, make: Callable[[], ValueArraysT]) -> ValueArraysT:
        """Return arrays derived from all values, created by `make` and then cached."""
        with self._lock:
            arrays: ValueArraysT | None = self._value_arrays.get(make)
            if arrays is None:
                arrays = self._value_arrays[make] = make()
            if len(arrays) < len(self.values):
                arrays.extend(self.values[len(arrays) :])
            return arrays


def compacted(codes: Codes, values: Sequence[Any]) -> tuple[Codes, Interner]:
    """Return the same column without the values that no row has any more."""
    interner = Interner()
    present, inverse = np.unique(codes, return_inverse=True)
    new_codes = np.array(
        [interner.code(values[code]) for code in present], dtype=np.int32
    )
    return new_codes[inverse] if len(present) else codes.copy(), interner
