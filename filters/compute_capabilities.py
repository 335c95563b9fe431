# SPDX-License-Identifier: Apache-2.0
"""Does the host have the capabilities that the flavor's extra specs require?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from ..scheduler.request import Request
from .base import BaseHostFilter, Mask, Mismatch, all_hosts, no_hosts
from .extra_specs_ops import match, match_numbers

_SCOPE = "capabilities"
_MAXPHYSADDR_BITS = "hw:maxphysaddr_bits"


class ComputeCapabilitiesFilter(BaseHostFilter):
    """Pass hosts whose attributes satisfy the extra specs of scope ``capabilities:``.

    ``capabilities:cpu_info:topology:cores`` names an attribute, then keys; text on the
    path is parsed as JSON. An unscoped key applies if it is an attribute of the host or
    a key of its stats. A missing value does not satisfy.
    """

    REASON = "a capability that an extra spec asks for is missing or different"
    run_filter_once_per_request = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts satisfy every requirement, shape (n_hosts,)."""
        passing = all_hosts(hosts)
        for scope, required in _requirements(spec_obj):
            passing &= _satisfying(hosts, scope, required)
        return passing

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the first requirement that is not satisfied, and the value."""
        host = host_state.as_batch()
        scope, required = next(
            (scope, required)
            for scope, required in _requirements(spec_obj)
            if not _satisfying(host, scope, required)[0]
        )
        path = scope if len(scope) == 1 else scope[1:]
        return ":".join(path), required, _value(host, *path)


def _value(host: HostBatch, name: str, *keys: str) -> object:
    """Return the first host's value under these keys, or None."""
    value = host.value(name, 0) if host.has_attribute(name) else None
    if value is None:
        value = host.value("stats", 0).get(name)
    for key in keys:
        value = _read_json(value).get(key)
    return value


def _requirements(spec_obj: RequestSpec) -> Iterator[tuple[list[str], str]]:
    """Yield the parts of each relevant key, "capabilities" first if scoped."""
    for key, required in Request.of(spec_obj).settings.extra_specs.items():
        if key == _MAXPHYSADDR_BITS:
            yield [_SCOPE, "cpu_info", "maxphysaddr", "bits"], f">= {required}"
        elif ":" not in key or key.split(":")[0] == _SCOPE:
            yield key.split(":"), required


def _satisfying(hosts: HostBatch, scope: Sequence[str], required: str) -> Mask:
    if len(scope) > 1:
        return _capable(hosts, scope[1], scope[2:], required)
    name = scope[0]
    if hosts.has_attribute(name):
        return _capable(hosts, name, (), required)
    # An unscoped key that a host's stats lack does not apply to it.
    lacks: Mask = hosts.map_distinct(
        "stats",
        lambda stats: name not in stats,
        bool,
        cache_key=(ComputeCapabilitiesFilter, name),
    )
    return lacks | _in_stats(hosts, name, (), required)


def _capable(hosts: HostBatch, name: str, keys: Sequence[str], required: str) -> Mask:
    if not hosts.has_attribute(name):
        return _in_stats(hosts, name, keys, required)
    if not hosts.is_interned(name):
        return (
            no_hosts(hosts) if keys else match_numbers(getattr(hosts, name), required)
        )
    satisfying: Mask = hosts.map_distinct(
        name,
        lambda value: _value_satisfies(value, keys, required),
        bool,
        cache_key=(ComputeCapabilitiesFilter, tuple(keys), required),
    )
    # For an attribute that is None, nova reads the stats.
    is_none: Mask = hosts.map_distinct(name, lambda value: value is None, bool)
    return satisfying | (is_none & _in_stats(hosts, name, keys, required))


def _in_stats(hosts: HostBatch, name: str, keys: Sequence[str], required: str) -> Mask:
    mask: Mask = hosts.map_distinct(
        "stats",
        lambda stats: _value_satisfies(stats.get(name), keys, required),
        bool,
        cache_key=(ComputeCapabilitiesFilter, name, tuple(keys), required),
    )
    return mask


def _value_satisfies(value: object, keys: Sequence[str], required: str) -> bool:
    for key in keys:
        value = _read_json(value).get(key)
    return value is not None and match(str(value), required)


def _read_json(value: object) -> dict[str, Any]:
    """Return a value as a dict, parsed if it is JSON text; empty if it is neither."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}
