# SPDX-License-Identifier: Apache-2.0
"""[notifications]: the format of notifications of decisions.

[oslo_messaging_notifications] sets whether, and over which bus, they are sent.
"""

from oslo_config import cfg

GROUP = "notifications"

OPTS = (
    cfg.StrOpt(
        "notification_format",
        default="unversioned",
        choices=[
            ("unversioned", "Dicts, as before there were versioned objects."),
            ("versioned", "Versioned objects."),
            ("both", "Both, each to its own topics."),
        ],
        help=(
            "Format of the notifications scheduler.select_destinations.start and .end. "
            "Related options: versioned_notifications_topics; driver and topics in "
            "[oslo_messaging_notifications], where no driver, or the driver noop, "
            "disables notifications."
        ),
    ),
    cfg.ListOpt(
        "versioned_notifications_topics",
        default=["versioned_notifications"],
        help=(
            "Topics of versioned notifications; each notification is sent to all of "
            "them. For unversioned ones, see [oslo_messaging_notifications] topics."
        ),
    ),
    cfg.StrOpt(
        "default_level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARN", "ERROR", "CRITICAL"),
        help=(
            "Accepted for compatibility with nova.conf, and not used: the scheduler's "
            "notifications have the level INFO, as nova's."
        ),
    ),
)
