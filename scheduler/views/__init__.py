# SPDX-License-Identifier: Apache-2.0
"""Stored views: the state on which a decision was made, as bytes, and back.

    Decision ─▶ ViewKeeper ─▶ CapturedView ─▶ bytes ─▶ store or snapshot
                (when)        (no copies)       │
                                 Parts ◀── StoredView ◀─┘

A view has the host table, Placement's providers or the answers that the decision read,
the tie breakers, and the options. The thread that decides copies no arrays; another one
writes the bytes, piece by piece. Bytes are read as untrusted input: every size is
bounded, and nothing in them is code.
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
