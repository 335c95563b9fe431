# SPDX-License-Identifier: Apache-2.0
"""Stored views: the state on which a decision was made, written as bytes and read.

    Decision ─▶ ViewKeeper ─▶ CapturedView ─▶ bytes ─▶ store or snapshot
                (when)        (no copies)       │
                                 Parts ◀── StoredView ◀─┘

A view has the host table, Placement's providers or the answers that the decision read,
the seed of the tie breakers, and the options. The thread that decides copies no arrays;
another thread encodes the bytes, piece by piece. Bytes are read as untrusted input:
every size is bounded, and nothing in them is executed as code.
"""

from .frames import UnreadableView
from .keeper import ViewKeeper
from .offline import OfflineParts
from .view import CapturedView, StoredView

__all__ = [
    "CapturedView",
    "OfflineParts",
    "StoredView",
    "UnreadableView",
    "ViewKeeper",
]
