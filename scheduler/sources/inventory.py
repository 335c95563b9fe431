# SPDX-License-Identifier: Apache-2.0
"""Reading and validating an inventory file of hosts, cells, aggregates and traits."""

from __future__ import annotations

import dataclasses
import math
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema
import os_resource_classes
import os_traits

from ...objects import MalformedObject
from ...objects.serializer import Bounds
from ..decoding import load_yaml
from ..errors import InventoryError
from ..hosts import COLUMNS, Columns, HostAggregate, HostRecord
from .inventory_schema import inventory_schema

#: UUIDs that a file omits are derived from the names, so that they stay the same.
_NAMESPACE = uuid.UUID("6d6f6f72-6167-5000-8000-696e76656e74")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_MAX_LISTED = 20
#: Anchors of YAML can make a small file endless; 10,000 hosts have 500,000 values.
_BOUNDS = Bounds(max_values=5_000_000)
_MIB_PER_GIB = 1024
_TRAITS = frozenset(os_traits.get_traits())


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryHost:
    """One host of the file: its row, and the data that is for Placement only.

    Attributes
    ----------
    reserved : mapping
        Amounts of VCPU, MEMORY_MB and DISK_GB that instances cannot use: those reserved
        for the host itself, and those in use according to the file, the latter divided
        by the allocation ratio, as capacity is (total - reserved) * ratio.
    resources : mapping
        Further inventories by resource class, in Placement's format.
    """

    record: HostRecord
    traits: frozenset[str]
    reserved: Mapping[str, int]
    resources: Mapping[str, Mapping[str, Any]]
    instances: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """The contents of an inventory file.

    Attributes
    ----------
    cells : mapping
        The cells' UUIDs, by name.
    """

    cells: Mapping[str, str]
    aggregates: tuple[HostAggregate, ...]
    hosts: tuple[InventoryHost, ...]


def read_inventory(path: str | Path, columns: Columns = COLUMNS) -> Inventory:
    """Read a YAML or JSON inventory of hosts with these columns.

    Raises
    ------
    InventoryError
        The file cannot be read or is invalid. Each mistake is listed with file, host
        and key; a file with a mistake is rejected as a whole.
    """
    document = _load(Path(path))
    mistakes = list(_schema_errors(document, columns))
    if not mistakes:
        mistakes = list(_consistency_errors(document, columns))
    if mistakes:
        raise InventoryError(_message(path, mistakes))
    return _inventory(document, columns)


def _load(path: Path) -> Any:  # noqa: ANN401 - YAML's types, not validated yet
    try:
        document = load_yaml(path.read_bytes())
        _BOUNDS.check(document)
    except OSError as e:
        raise InventoryError(f"{path}: cannot be read: {e.strerror}") from e
    except MalformedObject as e:
        raise InventoryError(f"{path}: it must have {e.expected}") from e
    except ValueError as e:
        raise InventoryError(f"{path}: {e}") from e
    return document


def _message(path: str | Path, mistakes: Sequence[str]) -> str:
    lines = [f"{path}: {mistake}" for mistake in mistakes[:_MAX_LISTED]]
    if len(mistakes) > _MAX_LISTED:
        lines.append(f"{path}: and {len(mistakes) - _MAX_LISTED} more")
    return "\n".join(lines)


# -- validation ------------------------------------------------------------------------


def _schema_errors(document: object, columns: Columns) -> Iterator[str]:
    """Yield the places where the document does not match the schema."""
    validator = _Validator(inventory_schema(columns))
    for error in sorted(validator.iter_errors(document), key=_order):
        yield f"{_describe_path(document, list(error.absolute_path))}{error.message}"


def _is_integer(_checker: object, value: object) -> bool:
    """Return whether a value was written as an integer; 4.0 was not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: object, value: object) -> bool:
    """Return whether a value is a finite number; YAML also has .nan and .inf."""
    is_float = isinstance(value, float) and math.isfinite(value)
    return is_float or _is_integer(checker, value)


_Validator = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)


def _order(error: jsonschema.ValidationError) -> list[tuple[str, Any]]:
    """Return the path of an error as a sort key; YAML's keys may be numbers, too."""
    return [(type(key).__name__, key) for key in error.absolute_path]


def _describe_path(
    document: Any,  # noqa: ANN401 - as `_load` returns it
    path: Sequence[str | int],
) -> str:
    """Return the name of the host, aggregate or cell, and the key, of a path."""
    if len(path) < 2:
        return f"key '{path[0]}': " if path else ""
    section, index, *keys = path
    item = document[section][index]
    name = item.get("host") or item.get("name") if isinstance(item, dict) else None
    singular = str(section).removesuffix("s")
    label = f"{singular} '{name}'" if name else f"{singular} number {int(index) + 1}"
    key = ".".join(map(str, keys))
    return f"{label}, key '{key}': " if key else f"{label}: "


def _consistency_errors(document: Mapping[str, Any], columns: Columns) -> Iterator[str]:
    """Yield references to undefined names, duplicates and wrong values."""
    cells = [cell["name"] for cell in document["cells"]]
    hosts, aggregates = document["hosts"], document.get("aggregates", [])
    host_names = {host["host"] for host in hosts}
    yield from _duplicates("cell", cells)
    yield from _duplicates("node", (host.get("node", host["host"]) for host in hosts))
    for items in (document["cells"], aggregates, hosts):
        yield from _duplicates(
            "uuid", (item["uuid"].lower() for item in items if "uuid" in item)
        )
    yield from _duplicates("aggregate", (a["name"] for a in aggregates))
    for host in hosts:
        for key, message in _wrong_values(host, cells, columns):
            yield f"host '{host['host']}', key '{key}': {message}"
    for aggregate in aggregates:
        for unknown_host in sorted(set(aggregate["hosts"]) - host_names):
            yield (
                f"aggregate '{aggregate['name']}', key 'hosts': "
                f"there is no host '{unknown_host}'"
            )


def _duplicates(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is defined {count} times"


def _wrong_values(
    host: Mapping[str, Any], cells: Sequence[str], columns: Columns
) -> Iterator[tuple[str, str]]:
    """Yield (key, message) for each wrong value of a host."""
    yield from _wrong_names(host, cells)
    yield from _wrong_amounts(host)
    yield from _wrong_columns(host, columns)


def _wrong_names(
    host: Mapping[str, Any], cells: Sequence[str]
) -> Iterator[tuple[str, str]]:
    if host["cell"] not in cells:
        yield "cell", f"there is no cell '{host['cell']}', only {', '.join(cells)}"
    for trait in host.get("traits", ()):
        if not _CUSTOM.fullmatch(trait) and trait not in _TRAITS:
            yield "traits", f"'{trait}' is neither a standard trait nor CUSTOM_*"
    for name in host.get("resources", ()):
        if name not in os_resource_classes.STANDARDS and not _CUSTOM.fullmatch(name):
            yield (
                "resources",
                f"'{name}' is neither a standard resource class nor CUSTOM_*",
            )


def _wrong_amounts(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for total in ("vcpus", "memory_mb"):
        if not host[total] and not host.get("resources"):
            yield total, "0 is less than 1, which needs 'resources' of another class"
    for used, total in (
        ("memory_mb_used", "memory_mb"),
        ("local_gb_used", "local_gb"),
    ):
        if host.get(used, 0) > host[total]:
            yield used, f"{host[used]} is more than {total}, {host[total]}"


def _wrong_columns(
    host: Mapping[str, Any], columns: Columns
) -> Iterator[tuple[str, str]]:
    for key, column in columns.items():
        if column.is_file_key and key in host:
            try:
                column.read(host[key])
            except ValueError as e:
                yield key, str(e)


# -- conversion ------------------------------------------------------------------------


def _uuid(item: Mapping[str, Any], kind: str, name: str) -> str:
    uuid_in_file = item.get("uuid")
    return str(
        uuid.UUID(uuid_in_file)
        if uuid_in_file
        else uuid.uuid5(_NAMESPACE, f"{kind}/{name}")
    )


def _inventory(document: Mapping[str, Any], columns: Columns) -> Inventory:
    cells = {c["name"]: _uuid(c, "cell", c["name"]) for c in document["cells"]}
    aggregates = tuple(
        HostAggregate(
            id=-number,  # nova's ids, which casts may name, are positive
            uuid=_uuid(item, "aggregate", item["name"]),
            name=item["name"],
            hosts=frozenset(item["hosts"]),
            metadata=item.get("metadata", {}),
        )
        for number, item in enumerate(document.get("aggregates", []), start=1)
    )
    hosts = tuple(_host(item, cells, columns) for item in document["hosts"])
    return Inventory(cells=cells, aggregates=aggregates, hosts=hosts)


def _host(
    item: Mapping[str, Any], cells: Mapping[str, str], columns: Columns
) -> InventoryHost:
    reserved_disk_gb = -(-item.get("reserved_host_disk_mb", 0) // _MIB_PER_GIB)
    return InventoryHost(
        record=_record(item, cells, columns),
        traits=frozenset(item.get("traits", ())),
        reserved={
            "VCPU": item.get("reserved_host_cpus", 0)
            + _hardware_used(item, "vcpus", "cpu"),
            "MEMORY_MB": item.get("reserved_host_memory_mb", 0)
            + _hardware_used(item, "memory_mb", "ram"),
            "DISK_GB": reserved_disk_gb + _hardware_used(item, "local_gb", "disk"),
        },
        resources=item.get("resources", {}),
        instances=frozenset(item.get("instances", ())),
    )


def _hardware_used(item: Mapping[str, Any], amount: str, ratio: str) -> int:
    """Return the amount of hardware in use: the usage, divided by the ratio."""
    used: int = item.get(f"{amount}_used", 0)
    per_unit: float = item.get(f"{ratio}_allocation_ratio", 1.0)
    return math.ceil(used / per_unit)


def _record(
    item: Mapping[str, Any], cells: Mapping[str, str], columns: Columns
) -> HostRecord:
    node = item.get("node", item["host"])
    used_gb = item.get("local_gb_used", 0)
    values = {
        name: column.read(item[name])
        for name, column in columns.items()
        if column.is_file_key and name in item
    }
    extra = {name: values.pop(name) for name in values.keys() - COLUMNS.keys()}
    return HostRecord(
        host=item["host"],
        nodename=node,
        hypervisor_hostname=node,
        uuid=_uuid(item, "node", node),
        cell_uuid=cells[item["cell"]],
        vcpus_total=item["vcpus"],
        vcpus_used=item.get("vcpus_used", 0),
        total_usable_ram_mb=item["memory_mb"],
        free_ram_mb=item["memory_mb"] - item.get("memory_mb_used", 0),
        total_usable_disk_gb=item["local_gb"],
        free_disk_mb=(item["local_gb"] - used_gb) * _MIB_PER_GIB,
        disk_mb_used=used_gb * _MIB_PER_GIB,
        **values,
        extra=extra,
    )
