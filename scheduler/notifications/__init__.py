# SPDX-License-Identifier: Apache-2.0
"""Publish when the scheduling of a request starts and when it has ended.

    select_destinations ─▶ Notifier ─▶ payloads, legacy and versioned ─▶ Outbox ─▶ bus

Event types, payloads, publishers and the times of publishing are nova 34's. The start
is published once Placement has candidates (a rebuild needs none), the end once hosts
are selected; no end is published of a request that fails. A decision never waits for a
notification, and never fails because of one.
"""

from .notifier import CallNotifications, Notifier
from .publishers import MessagingNotifier, NotifierPair, Publishers, make_publishers

__all__ = [
    "CallNotifications",
    "MessagingNotifier",
    "Notifier",
    "NotifierPair",
    "Publishers",
    "make_publishers",
]
