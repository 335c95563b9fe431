# SPDX-License-Identifier: Apache-2.0
"""Heartbeats in memcached are those of nova 34's service group driver, both ways."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from oslo_cache import core

from moorage.scheduler.conf import load
from moorage.scheduler.sources.nova_db.memcached import MemcachedHeartbeats

from ..fixtures.memcached import Memcached
from ..fixtures.nova_peer import Peer

pytestmark = [pytest.mark.deep, pytest.mark.memcached, pytest.mark.peer]


@pytest.fixture(params=["", "theirs"], ids=["plain", "prefix"])
def cache(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """The options of [cache] of both."""
    with Memcached() as memcached:
        options = {
            "enabled": True,
            "backend": "dogpile.cache.pymemcache",
            "memcache_servers": [memcached.server],
        }
        yield options | ({"config_prefix": request.param} if request.param else {})


@pytest.fixture
def heartbeats(cache: dict[str, Any]) -> MemcachedHeartbeats:
    conf = load([], config_files=[])
    core.configure(conf)
    for name, value in cache.items():
        conf.set_override(name, value, group="cache")
    return MemcachedHeartbeats(conf)


def test_heartbeat_of_a_nova_compute_is_read(
    peer: Peer, cache: dict[str, Any], heartbeats: MemcachedHeartbeats
) -> None:
    assert heartbeats.read("compute", ["h1", "h2"]) == {}
    peer.ask("beat_in_memcached", topic="compute", host="h1", cache=cache)
    found = heartbeats.read("compute", ["h1", "h2"])
    assert found == {"h1": pytest.approx(time.time(), abs=30)}


def test_heartbeat_of_ours_is_one_to_nova(
    peer: Peer, cache: dict[str, Any], heartbeats: MemcachedHeartbeats
) -> None:
    service = {"topic": "scheduler", "host": "control", "cache": cache}
    assert peer.ask("is_up_in_memcached", **service) is False
    heartbeats.write("scheduler", "control", time.time())
    assert peer.ask("is_up_in_memcached", **service) is True
