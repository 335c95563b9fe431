# SPDX-License-Identifier: Apache-2.0
"""Heartbeats in memcached, as nova's service group driver "mc" stores them.

nova stores the time of a heartbeat under ``topic:host`` through oslo.cache, which takes
its servers and client library from ``[cache]`` and mangles the key. With the same
options here, oslo.cache finds what nova stored.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping
from typing import Any

from oslo_config import cfg

from ...errors import ConfigurationError
from .heartbeats import BaseHeartbeats

_DRIVER = "[DEFAULT] servicegroup_driver = mc"
#: oslo.cache's default, which stores nothing.
_NULL = "dogpile.cache.null"


class MemcachedHeartbeats(BaseHeartbeats):
    """Read and write heartbeats in the memcached of ``[cache]``.

    The cache's own expiry is ignored: the stored time is compared with
    ``service_down_time``.

    Raises
    ------
    ConfigurationError
        oslo.cache or the library of the back-end is not installed, or ``[cache]`` is
        not enabled, or names no server or a back-end that stores nothing.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        try:
            from oslo_cache import core
        except ImportError as e:
            raise ConfigurationError(
                f"{_DRIVER} needs oslo.cache: {e}. Install moorage with its extra "
                "memcached"
            ) from e
        self._core = core
        core.configure(conf)
        self._check()
        self._region = self._create_region()

    def _check(self) -> None:
        options = self._conf.cache
        if not (options.enabled and options.memcache_servers):
            raise ConfigurationError(
                f"{_DRIVER} needs [cache] enabled = true and [cache] memcache_servers, "
                "the same as on the computes"
            )
        if options.backend == _NULL:
            raise ConfigurationError(
                f"{_DRIVER}: [cache] backend {_NULL} stores nothing; set the backend "
                "of the computes, such as dogpile.cache.pymemcache"
            )

    def _create_region(self) -> Any:  # noqa: ANN401 - dogpile.cache has no types
        region = self._core.create_region()
        try:
            self._core.configure_cache_region(self._conf, region)
        except Exception as e:  # an ImportError, or whatever a back-end raises
            raise ConfigurationError(
                f"[cache] backend {self._conf.cache.backend} cannot be used: "
                f"{type(e).__name__}: {e}"
            ) from e
        return region

    def read(self, topic: str, hosts: Collection[str]) -> Mapping[str, float]:
        """Return when services were last seen, by host."""
        keys = [f"{topic}:{host}" for host in hosts]
        values = self._region.get_multi(keys, ignore_expiration=True)
        return {
            host: _seconds(value)
            for host, value in zip(hosts, values, strict=True)
            if isinstance(value, datetime.datetime)
        }

    def write(self, topic: str, host: str, seen_at: float) -> None:
        """Store that a service is up, as nova does."""
        moment = datetime.datetime.fromtimestamp(seen_at, datetime.UTC)
        self._region.set(f"{topic}:{host}", moment.replace(tzinfo=None))

    def disconnect(self) -> None:
        """Replace the connections, which a forked process must not share."""
        self._region = self._create_region()


def _seconds(moment: datetime.datetime) -> float:
    """Return seconds since the epoch; nova stores naive UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return moment.timestamp()
