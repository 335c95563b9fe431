# SPDX-License-Identifier: Apache-2.0
"""An inventory file: hosts, cells, aggregates and traits, checked as a whole."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jsonschema
import os_resource_classes
import os_traits
import yaml

from ...objects import HVSpec
from ..errors import InventoryError
from ..hosts import HostAggregate, HostPools, HostRecord, HostTopology
from .inventory_schema import SCHEMA

#: UUIDs that a file leaves out are made of the names, so that they stay the same.
_NAMESPACE = uuid.UUID("6d6f6f72-6167-5000-8000-696e76656e74")
_CUSTOM = re.compile(r"CUSTOM_[A-Z0-9_]+")
_MAX_TOLD = 20
_MIB_PER_GIB = 1024
_TRAITS = frozenset(os_traits.get_traits())


@dataclasses.dataclass(frozen=True, slots=True)
class InventoryHost:
    """One host of the file: its row, and what only Placement is told of it.

    Attributes
    ----------
    reserved : mapping
        Amounts of VCPU, MEMORY_MB and DISK_GB that no instance may have: those kept
        for the host itself, and those that the file says are in use, the latter
        divided by the allocation ratio: capacity is (total - reserved) * ratio.
    resources : mapping
        Further inventories by resource class, in Placement's own terms.
    """

    record: HostRecord
    traits: frozenset[str]
    reserved: Mapping[str, int]
    resources: Mapping[str, Mapping[str, Any]]
    instances: frozenset[str]


@dataclasses.dataclass(frozen=True, slots=True)
class Inventory:
    """All that an inventory file says.

    Attributes
    ----------
    cells : mapping
        UUID by name.
    """

    cells: Mapping[str, str]
    aggregates: tuple[HostAggregate, ...]
    hosts: tuple[InventoryHost, ...]


def read_inventory(path: str | Path) -> Inventory:
    """Read a YAML or JSON inventory.

    Raises
    ------
    InventoryError
        The file cannot be read, or some of it is wrong: each mistake is told with
        file, host and key. Nothing is used of a file with a mistake.
    """
    document = _load(Path(path))
    mistakes = list(_misfits(document))
    if not mistakes:
        mistakes = list(_contradictions(document))
    if mistakes:
        raise InventoryError(_told(path, mistakes))
    return _inventory(document)


def _load(path: Path) -> Any:  # noqa: ANN401 - what YAML has, not checked yet
    try:
        # CSafeLoader is ten times faster, where libyaml is there.
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.load(path.read_text("utf-8"), Loader=loader)
    except OSError as e:
        raise InventoryError(f"{path}: cannot be read: {e.strerror}") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise InventoryError(f"{path}: is no YAML or JSON: {e}") from e


def _told(path: str | Path, mistakes: Sequence[str]) -> str:
    told = [f"{path}: {mistake}" for mistake in mistakes[:_MAX_TOLD]]
    if len(mistakes) > _MAX_TOLD:
        told.append(f"{path}: and {len(mistakes) - _MAX_TOLD} more")
    return "\n".join(told)


# -- what is wrong ---------------------------------------------------------------------


def _misfits(document: object) -> Iterator[str]:
    """Yield where the document has not the form of an inventory."""
    for error in sorted(_VALIDATOR.iter_errors(document), key=_order):
        yield f"{_place(document, list(error.absolute_path))}{error.message}"


def _is_integer(_checker: object, value: object) -> bool:
    """Return whether a value is written as an integer; 4.0 is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: object, value: object) -> bool:
    """Return whether a value is a number to reckon with; YAML has .nan and .inf."""
    is_float = isinstance(value, float) and math.isfinite(value)
    return is_float or _is_integer(checker, value)


_VALIDATOR = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator,
    type_checker=jsonschema.Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)(SCHEMA)


def _order(error: jsonschema.ValidationError) -> list[tuple[str, Any]]:
    """Return what sorts by place: by name, by number; YAML's keys may be either."""
    return [(type(key).__name__, key) for key in error.absolute_path]


def _place(
    document: Any,  # noqa: ANN401 - as `_load` has it
    path: Sequence[str | int],
) -> str:
    """Name the host, aggregate or cell, and the key, that a path leads to."""
    if len(path) < 2:
        return f"key '{path[0]}': " if path else ""
    section, index, *keys = path
    item = document[section][index]
    name = item.get("host") or item.get("name") if isinstance(item, dict) else None
    singular = str(section).removesuffix("s")
    place = f"{singular} '{name}'" if name else f"{singular} number {int(index) + 1}"
    key = ".".join(map(str, keys))
    return f"{place}, key '{key}': " if key else f"{place}: "


def _contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield where a well-formed document names what is not there, or names it twice."""
    cells = [cell["name"] for cell in document["cells"]]
    hosts, aggregates = document["hosts"], document.get("aggregates", [])
    names = {host["host"] for host in hosts}
    yield from _doubles("cell", cells)
    yield from _doubles("node", (host.get("node", host["host"]) for host in hosts))
    for items in (document["cells"], aggregates, hosts):
        yield from _doubles("uuid", (i["uuid"].lower() for i in items if "uuid" in i))
    yield from _doubles("aggregate", (a["name"] for a in aggregates))
    for host in hosts:
        for key, wrong in _wrong_values(host, cells):
            yield f"host '{host['host']}', key '{key}': {wrong}"
    for aggregate in aggregates:
        for missing in sorted(set(aggregate["hosts"]) - names):
            yield (
                f"aggregate '{aggregate['name']}', key 'hosts': "
                f"there is no host '{missing}'"
            )


def _doubles(what: str, names: Iterable[str]) -> Iterator[str]:
    for name, count in Counter(names).items():
        if count > 1:
            yield f"{what} '{name}' is there {count} times"


def _wrong_values(
    host: Mapping[str, Any], cells: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the keys of a host whose values are wrong, with what is wrong."""
    yield from _wrong_names(host, cells)
    yield from _wrong_amounts(host)
    yield from _unreadable(host)


def _wrong_names(
    host: Mapping[str, Any], cells: Sequence[str]
) -> Iterator[tuple[str, str]]:
    if host["cell"] not in cells:
        yield "cell", f"there is no cell '{host['cell']}', only {', '.join(cells)}"
    for trait in host.get("traits", ()):
        if not _CUSTOM.fullmatch(trait) and trait not in _TRAITS:
            yield "traits", f"'{trait}' is no standard trait and not CUSTOM_*"
    for name in host.get("resources", ()):
        if name not in os_resource_classes.STANDARDS and not _CUSTOM.fullmatch(name):
            yield "resources", f"'{name}' is no standard resource class, not CUSTOM_*"


def _wrong_amounts(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for used, total in (
        ("memory_mb_used", "memory_mb"),
        ("local_gb_used", "local_gb"),
    ):
        if host.get(used, 0) > host[total]:
            yield used, f"{host[used]} is more than {total}, {host[total]}"


def _unreadable(host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    try:
        json.dumps(host.get("cpu_info"), sort_keys=True)
    except TypeError as e:  # YAML has dates, and keys of any type
        yield "cpu_info", f"cannot be written as JSON: {e}"
    for triple in host.get("supported_instances", ()):
        try:
            _canonical(triple)
        except ValueError as e:
            yield "supported_instances", str(e)
    for key, read in _REPORTED.items():
        try:
            read(host.get(key))
        except ValueError as e:
            yield key, str(e)


def _canonical(triple: Sequence[str]) -> tuple[str, ...]:
    arch, hv_type, vm_mode = triple
    spec = HVSpec(arch=arch, hv_type=hv_type, vm_mode=vm_mode)
    return (spec.arch, spec.hv_type, spec.vm_mode)


# -- what is said ----------------------------------------------------------------------


def _uuid(item: Mapping[str, Any], kind: str, name: str) -> str:
    given = item.get("uuid")
    return str(uuid.UUID(given) if given else uuid.uuid5(_NAMESPACE, f"{kind}/{name}"))


def _inventory(document: Mapping[str, Any]) -> Inventory:
    cells = {c["name"]: _uuid(c, "cell", c["name"]) for c in document["cells"]}
    aggregates = tuple(
        HostAggregate(
            id=-number,  # never one of nova's, which casts may tell of
            uuid=_uuid(item, "aggregate", item["name"]),
            name=item["name"],
            hosts=frozenset(item["hosts"]),
            metadata=item.get("metadata", {}),
        )
        for number, item in enumerate(document.get("aggregates", []), start=1)
    )
    hosts = tuple(_host(item, cells) for item in document["hosts"])
    return Inventory(cells=cells, aggregates=aggregates, hosts=hosts)


def _host(item: Mapping[str, Any], cells: Mapping[str, str]) -> InventoryHost:
    reserved_disk_gb = -(-item.get("reserved_host_disk_mb", 0) // _MIB_PER_GIB)
    return InventoryHost(
        record=_record(item, cells),
        traits=frozenset(item.get("traits", ())),
        reserved={
            "VCPU": item.get("reserved_host_cpus", 0) + _held(item, "vcpus", "cpu"),
            "MEMORY_MB": item.get("reserved_host_memory_mb", 0)
            + _held(item, "memory_mb", "ram"),
            "DISK_GB": reserved_disk_gb + _held(item, "local_gb", "disk"),
        },
        resources=item.get("resources", {}),
        instances=frozenset(item.get("instances", ())),
    )


def _held(item: Mapping[str, Any], amount: str, ratio: str) -> int:
    """Return how much of the hardware it takes to serve what is in use."""
    used: int = item.get(f"{amount}_used", 0)
    per_unit: float = item.get(f"{ratio}_allocation_ratio", 1.0)
    return math.ceil(used / per_unit)


def _record(item: Mapping[str, Any], cells: Mapping[str, str]) -> HostRecord:
    node = item.get("node", item["host"])
    used_gb = item.get("local_gb_used", 0)
    cpu_info = item.get("cpu_info")
    optional = {name: item[name] for name in _COPIED if name in item}
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
        supported_instances=tuple(map(_canonical, item.get("supported_instances", ()))),
        cpu_info=None if cpu_info is None else json.dumps(cpu_info, sort_keys=True),
        **{key: read(item.get(key)) for key, read in _REPORTED.items()},
        **optional,
    )


def _topology(reported: object) -> HostTopology | None:
    return None if reported is None else HostTopology.read(reported)


#: Keys with what a nova-compute reports, as an object or as its JSON text.
_REPORTED: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {"numa_topology": _topology, "pci_stats": HostPools.read}
)

#: Keys of the file that are columns under the same name.
_COPIED = (
    "cpu_allocation_ratio",
    "ram_allocation_ratio",
    "disk_allocation_ratio",
    "num_instances",
    "num_io_ops",
    "failed_builds",
    "stats",
    "metrics",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    "disabled",
    "forced_down",
)
