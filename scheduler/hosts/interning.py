# SPDX-License-Identifier: Apache-2.0
"""Columns of interned values: a small code a row, each distinct value held once."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Codes = npt.NDArray[np.int32]


def _key(value: Any) -> Hashable:
    """Return what tells two values apart; a mapping is known by its content."""
    if isinstance(value, Mapping):
        return json.dumps(dict(value), sort_keys=True)
    return value  # type: ignore[no-any-return]


class Interner:
    """Give every distinct value a code; a value keeps its code for good.

    A view that was taken earlier goes on reading `values` while codes are added.
    """

    __slots__ = ("_codes", "values")

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def code(self, value: Any) -> int:
        """Return the code of a value, a new one where it was never seen."""
        key = _key(value)
        code = self._codes.get(key)
        if code is None:
            self.values.append(value)
            code = self._codes[key] = len(self.values) - 1
        return code

    def find(self, value: Any) -> int | None:
        """Return the code of a value that was seen, else None."""
        return self._codes.get(_key(value))


def compacted(codes: Codes, values: Sequence[Any]) -> tuple[Codes, Interner]:
    """Return the same column with the values that no row has any more left out."""
    interner = Interner()
    present, inverse = np.unique(codes, return_inverse=True)
    renamed = np.array(
        [interner.code(values[code]) for code in present], dtype=np.int32
    )
    return renamed[inverse] if len(present) else codes.copy(), interner
