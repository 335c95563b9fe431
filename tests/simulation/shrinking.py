# SPDX-License-Identifier: Apache-2.0
"""Leave out of a failing seed what it does not need to fail: requests and faults."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def shrink(
    parts: Sequence[_T], fails: Callable[[Collection[_T]], bool]
) -> frozenset[_T]:
    """Return the parts that can be left out, found by halves, quarters and so on.

    Parameters
    ----------
    fails : callable
        Returns whether the seed still fails without some parts. What happens without
        them is drawn anew, so that it may fail for another reason.
    """
    needed, skipped = list(parts), frozenset[_T]()
    size = (len(needed) + 1) // 2
    while size:
        for start in reversed(range(0, len(needed), size)):
            chunk = needed[start : start + size]
            if fails(skipped.union(chunk)):
                skipped = skipped.union(chunk)
                del needed[start : start + size]
        size = size // 2 if size > 1 else 0
    return skipped
