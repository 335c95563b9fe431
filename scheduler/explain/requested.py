# SPDX-License-Identifier: Apache-2.0
"""What a request asked for, description for operators: flavor, image, hints, group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...objects import RequestSpec
from ..request import get_field

#: Maximum entries of a list in the description, such as members of a server group.
_MAX_LISTED: Final = 50


def describe_request(spec_obj: RequestSpec) -> dict[str, Any]:
    """Return the parts of a request that influence the choice of hosts, for operators.

    Parts that are unset or empty are omitted.

    Returns
    -------
    dict
        flavor (name, vcpus, memory_mb, root_gb, ephemeral_gb, swap_mb, extra_specs),
        image (id, name, properties), availability_zone, hints, server_group (uuid,
        policy, rules, members, n_members), is_volume_backed, ports, networks,
        destination (host, node, cell), ignore_hosts, force_hosts, force_nodes,
        attempted_hosts, numa_cells and pci_devices (the number of each).
    """
    hints = get_field(spec_obj, "scheduler_hints") or {}
    pci_requests = get_field(get_field(spec_obj, "pci_requests"), "requests") or ()
    networks = get_field(spec_obj, "requested_networks") or ()
    attempts = get_field(get_field(spec_obj, "retry"), "hosts") or ()
    numa_cells = get_field(get_field(spec_obj, "numa_topology"), "cells") or ()
    parts = {
        "flavor": _flavor(spec_obj),
        "image": _image(spec_obj),
        "availability_zone": get_field(spec_obj, "availability_zone"),
        "hints": {name: _texts(hint) for name, hint in hints.items()},
        "server_group": _server_group(spec_obj),
        "is_volume_backed": get_field(spec_obj, "is_bfv"),
        "ports": _texts([get_field(network, "port_id") for network in networks]),
        "networks": _texts([get_field(network, "network_id") for network in networks]),
        "destination": _destination(spec_obj),
        "ignore_hosts": _texts(get_field(spec_obj, "ignore_hosts")),
        "force_hosts": _texts(get_field(spec_obj, "force_hosts")),
        "force_nodes": _texts(get_field(spec_obj, "force_nodes")),
        "attempted_hosts": _texts([get_field(attempt, "host") for attempt in attempts]),
        "numa_cells": len(numa_cells),
        "pci_devices": sum(
            get_field(pci_request, "count") or 0 for pci_request in pci_requests
        ),
    }
    return _without_empty(parts)


def _flavor(spec_obj: RequestSpec) -> dict[str, Any]:
    flavor = get_field(spec_obj, "flavor")
    names = ("name", "vcpus", "memory_mb", "root_gb", "ephemeral_gb")
    return {
        **{name: get_field(flavor, name) for name in names},
        "swap_mb": get_field(flavor, "swap"),
        "extra_specs": dict(get_field(flavor, "extra_specs") or {}),
    }


def _image(spec_obj: RequestSpec) -> dict[str, Any]:
    image = get_field(spec_obj, "image")
    properties = get_field(image, "properties")
    description = {
        "id": get_field(image, "id"),
        "name": get_field(image, "name"),
        "properties": {
            name: str(value)
            for name, value in (properties.to_dict() if properties else {}).items()
        },
    }
    return _without_empty(description)


def _server_group(spec_obj: RequestSpec) -> dict[str, Any]:
    group = get_field(spec_obj, "instance_group")
    members = get_field(group, "members") or ()
    policies = get_field(group, "policies") or ()
    description = {
        "uuid": get_field(group, "uuid"),
        "policy": get_field(group, "policy") or ", ".join(policies),
        "rules": dict(get_field(group, "_rules") or {}),
        "members": _texts(members),
        "n_members": len(members),
    }
    return _without_empty(description) if group is not None else {}


def _destination(spec_obj: RequestSpec) -> dict[str, Any]:
    destination = get_field(spec_obj, "requested_destination")
    description = {
        "host": get_field(destination, "host"),
        "node": get_field(destination, "node"),
        "cell": get_field(get_field(destination, "cell"), "uuid"),
    }
    return _without_empty(description)


def _texts(value: Any) -> list[str]:  # noqa: ANN401 - a hint may be a text or a list
    """Return a text or a list as at most `_MAX_LISTED` texts; None is omitted."""
    entries = [value] if isinstance(value, str) else value or ()
    return [str(entry) for entry in entries if entry is not None][:_MAX_LISTED]


def _without_empty(parts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part for name, part in parts.items() if part}
