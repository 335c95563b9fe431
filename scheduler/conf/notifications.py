# SPDX-License-Identifier: Apache-2.0
"""[notifications]: in which form others are told of decisions.

Whether they are told at all, and over which bus, is said in
[oslo_messaging_notifications].
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
            "Form of the notifications scheduler.select_destinations.start and .end. "
            "Related options: versioned_notifications_topics; driver and topics in "
            "[oslo_messaging_notifications], where no driver, or the driver noop, "
            "means that nobody is told."
        ),
    ),
    cfg.ListOpt(
        "versioned_notifications_topics",
        default=["versioned_notifications"],
        help=(
            "Topics that versioned notifications go to, each to all of them. Those of "
            "the others are in [oslo_messaging_notifications] topics."
        ),
    ),
    cfg.StrOpt(
        "default_level",
        default="INFO",
        choices=("DEBUG", "INFO", "WARN", "ERROR", "CRITICAL"),
        help=(
            "Accepted, because a nova.conf may have it, and not used: the scheduler's "
            "notifications are of the level INFO, as those of nova."
        ),
    ),
)
