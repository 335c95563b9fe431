# SPDX-License-Identifier: Apache-2.0
"""Format hosts and requests as calls of the builders that create them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..objects import RequestSpec
from ..objects.base import WireObject
from ..scheduler.hosts import HostAggregate, HostBatch
from . import builders

#: Columns that are shown in another form, or not.
_SHOWN_APART = frozenset({"host", "nodename", "aggregates", "placement_places"})


def example_code(hosts: HostBatch, spec_obj: RequestSpec) -> str:
    """Return calls of `batch` and `spec` that create the same hosts and request."""
    return f"hosts = {hosts_code(hosts)}\nspec_obj = {request_code(spec_obj)}"


def hosts_code(hosts: HostBatch) -> str:
    """Return a call of `batch`, with the differences of each host from `host()`."""
    arguments = [_host(hosts, index) for index in range(len(hosts))]
    aggregates = {each.id: each for row in hosts for each in row.aggregates}
    if aggregates:
        calls = ", ".join(_aggregate(each) for each in aggregates.values())
        arguments.append(f"aggregates=[{calls}]")
    instances = {row.host: sorted(row.instances) for row in hosts if row.instances}
    if instances:
        arguments.append(f"instances={instances}")
    return f"batch({', '.join(arguments)})"


def _host(hosts: HostBatch, index: int) -> str:
    host, node = hosts.value("host", index), hosts.value("nodename", index)
    plain = builders.host(host=host, nodename=node)
    changes = {"host": host} if node == host else {"host": host, "nodename": node}
    for name in hosts.column_names:
        value = hosts.value(name, index)
        if name not in _SHOWN_APART and value != getattr(plain, name, None):
            changes[name] = value
    return _call("host", changes)


def _aggregate(aggregate: HostAggregate) -> str:
    names = ", ".join(map(repr, (aggregate.id, *sorted(aggregate.hosts))))
    metadata = dict(aggregate.metadata)
    if all(key.isidentifier() for key in metadata):
        pairs = "".join(f", {key}={value!r}" for key, value in metadata.items())
    else:
        pairs = f", **{metadata!r}"
    return f"aggregate({names}{pairs})"


def request_code(spec_obj: RequestSpec) -> str:
    """Return a call of `spec`, with the differences from `spec()`."""
    plain = builders.spec()
    changes = dict(_changes(spec_obj, plain))
    of_flavor = dict(_changes(spec_obj.flavor, plain.flavor))
    if of_flavor.keys() <= builders.FLAVOR.keys():
        changes.pop("flavor", None)
        changes |= of_flavor
    return _call("spec", changes)


def _changes(changed: WireObject, plain: WireObject) -> Iterator[tuple[str, object]]:
    """Yield the fields that are set and differ."""
    for name in changed.fields:
        if name in changed:
            value = getattr(changed, name)
            has_it = name in plain
            if not has_it or _code(value) != _code(getattr(plain, name)):
                yield name, value


def _call(name: str, arguments: dict[str, object]) -> str:
    pairs = (f"{key}={_code(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(pairs)})"


def _code(value: object) -> str:
    """Return a value as Python code, as far as possible."""
    if isinstance(value, WireObject):
        fields = {n: getattr(value, n) for n in value.fields if n in value}
        return _call(type(value).__name__, fields)
    if isinstance(value, list):
        return f"[{', '.join(map(_code, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)
