# SPDX-License-Identifier: Apache-2.0
"""A nova-compute that is too old stops the start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oslo_config import cfg

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTable
from moorage.scheduler.service import build

from .databases import Nova


@pytest.fixture
def nova(tmp_path: Path) -> Iterator[Nova]:
    with Nova(tmp_path, "cell1", "cell2") as nova:
        nova.host("new")
        nova.service("old", version=71)
        nova.service("older", "cell2", version=66)
        yield nova


def test_start_names_hosts_and_versions(nova: Nova, conf: cfg.ConfigOpts) -> None:
    scheduler = build(conf, source=nova.source(conf))
    try:
        with pytest.raises(ConfigurationError, match=r"older \(66\), old \(71\)") as e:
            scheduler.start()
    finally:
        scheduler.stop()
    assert "disable_compute_service_check_for_ffu" in str(e.value)
    assert "new (" not in str(e.value)


def test_many_are_counted(nova: Nova, conf: cfg.ConfigOpts) -> None:
    for number in range(10):
        nova.service(f"old{number}", version=70)
    source = nova.source(conf)
    source.start(HostTable())
    with pytest.raises(ConfigurationError, match=r"old3 \(70\), and 7 more\."):
        source.check()


def test_fast_forward_upgrade_is_only_warned_of(
    nova: Nova, conf: cfg.ConfigOpts, caplog: pytest.LogCaptureFixture
) -> None:
    name = "disable_compute_service_check_for_ffu"
    conf.set_override(name, True, group="workarounds")
    source = nova.source(conf)
    source.start(HostTable())
    source.check()
    assert "older (66), old (71)" in caplog.text


def test_compute_that_comes_later_is_no_matter(
    nova: Nova, conf: cfg.ConfigOpts
) -> None:
    for name, cell in (("old", "cell1"), ("older", "cell2")):
        nova.beat(name, 0.0, cell, version=74)
    source, table = nova.source(conf), HostTable()
    source.start(table)
    nova.service("late", version=66)
    source.refresh_if_stale(table)
    source.check()
