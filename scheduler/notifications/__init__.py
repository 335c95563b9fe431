# SPDX-License-Identifier: Apache-2.0
"""Others are told when the scheduling of a request starts and when it has ended.

    select_destinations ─▶ Announcer ─▶ payloads, legacy and versioned ─▶ Outbox ─▶ bus

The event types, payloads and publishers are nova 34's, and so is when they are told:
the start once Placement has candidates (a rebuild asks for none), the end once hosts
are chosen; a request that fails has no end. Telling costs a decision no waiting and
never fails it.
"""

from .announcer import Announcer
from .notifiers import Notifier, Notifiers, make_notifiers

__all__ = ["Announcer", "Notifier", "Notifiers", "make_notifiers"]
