# SPDX-License-Identifier: Apache-2.0
"""[notifications] has nova 34's names and defaults, beside nova's own options, too."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from moorage.scheduler.conf import load
from moorage.scheduler.notifications import make_publishers

from ...fixtures.notification_listener import Listener

DEFAULTS = {
    "notification_format": "unversioned",
    "versioned_notifications_topics": ["versioned_notifications"],
    "default_level": "INFO",
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_default_is_novas(name: str) -> None:
    assert load([], config_files=[]).notifications[name] == DEFAULTS[name]


def test_unknown_format_is_refused() -> None:
    conf = load([], config_files=[])
    with pytest.raises(ValueError, match="Valid values are"):
        conf.set_override("notification_format", "json", "notifications")


def test_option_of_another_owner_is_left_alone() -> None:
    conf = cfg.ConfigOpts()
    theirs = cfg.StrOpt("notification_format", default="versioned")
    conf.register_opt(theirs, group="notifications")
    load([], conf=conf, config_files=[])
    made = make_publishers(conf, Listener())
    assert made.legacy is None
    assert made.versioned is not None


@pytest.mark.parametrize("drivers", [[], ["noop"]], ids=["none", "noop"])
def test_nothing_is_published_without_a_driver(drivers: list[str]) -> None:
    conf = load([], config_files=[])
    make_publishers(conf)  # registers oslo.messaging's options
    conf.set_override("driver", drivers, "oslo_messaging_notifications")
    assert not make_publishers(conf)
