# SPDX-License-Identifier: Apache-2.0
"""nova 34's own HostManager on real databases, and all that its host states say.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours.
"""

import collections
import contextlib
import datetime
import json
import logging
import time
from typing import Any
from unittest import mock

import nova.conf
import nova.context
import oslo_messaging
from nova import context, objects, rpc
from nova.db.api import api as api_db
from nova.db.main import api as main_db
from nova.objects import base, compute_node
from nova.scheduler import host_manager, weights
from oslo_db.sqlalchemy import enginefacade

CONF = nova.conf.CONF

#: What undoes `open_databases`.
_OPENED = contextlib.ExitStack()


def open_databases(message):
    """Point nova at databases until `close_databases`.

    Keys: "api_database" and "database" (the options `connection` of both groups).
    """
    close_databases({})
    for group in ("api_database", "database"):
        CONF.set_override("connection", message[group], group)
        _OPENED.callback(CONF.clear_override, "connection", group)
    for module, group in ((api_db, "api_database"), (main_db, "database")):
        # A service configures its manager once; here each opening has its own.
        manager = enginefacade.transaction_context()
        manager.configure(**dict(CONF[group].items()))
        _OPENED.callback(manager.dispose_pool)
        _OPENED.callback(module.context_manager.patch_factory(manager))
    # This registers transport_url, as nova's rpc.init does at a start.
    oslo_messaging.TransportURL.parse(CONF, "none:///")
    # Cells have brokers, which nova would connect to only to talk to a compute.
    _OPENED.enter_context(mock.patch.object(rpc, "create_transport"))
    _OPENED.callback(_forget_cells)


def close_databases(message):
    """Close the databases."""
    _OPENED.close()


def _forget_cells():
    for manager, _ in nova.context.CELL_CACHE.values():
        manager.dispose_pool()
    nova.context.CELL_CACHE.clear()


def host_states(message):
    """Return the host states of a new HostManager, and what they took.

    A new one reads cells, aggregates and instances again, as a scheduler does at its
    start. Keys: "options" (values by name by group), "writes" (whether nova may write
    ratios into rows that have none, as it does), "instances" ("by host": read for one
    host after the other, as for computes that report nothing; "reported": as after
    all computes reported theirs), "runs" (of the load that is measured), "quiet"
    (leave the states out), "weigher" (the name of one) and "spec_objs" (primitives of
    requests).

    Returns
    -------
    dict
        "hosts" (by UUID of the compute node, see `_as_data`), "aggregates" (all),
        "start_ms" (what a service does before it serves; without instances),
        "load_ms" (what a request does, of each run). With a weigher "weights" only: the
        weight and the multiplier of each host, by its UUID, for each request.
    """
    logging.getLogger("nova").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        for group, values in message.get("options", {}).items():
            for name, value in values.items():
                CONF.set_override(name, value, None if group == "DEFAULT" else group)
                where = () if group == "DEFAULT" else (group,)
                stack.callback(CONF.clear_override, name, *where)
        # Its thread would read on while the databases change; see _told_instances.
        CONF.set_override("track_instance_changes", False, "filter_scheduler")
        stack.callback(
            CONF.clear_override, "track_instance_changes", "filter_scheduler"
        )
        if not message.get("writes"):
            stack.enter_context(
                mock.patch.object(compute_node.db, "compute_node_update")
            )
        return _host_states(message)


def _host_states(message):
    ctxt = context.get_admin_context()
    started = time.perf_counter()
    manager = host_manager.HostManager()
    start_ms = (time.perf_counter() - started) * 1000
    if message["instances"] == "reported":
        manager._instance_info = _reported_instances(ctxt, manager)
    load_ms: list[float] = []
    states: list[Any] = []
    for _ in range(message.get("runs", 1)):
        states.clear()
        started = time.perf_counter()
        states.extend(manager.get_host_states_by_uuids(ctxt, None, None))
        load_ms.append((time.perf_counter() - started) * 1000)
    if "weigher" in message:
        return {"weights": _weights(message, [s for s in states if s.uuid])}
    answer = {"start_ms": start_ms, "load_ms": load_ms}
    if message.get("quiet"):
        return answer | {"n_hosts": len(states)}
    return answer | {
        # One without a UUID was ignored: its usage has not been reported yet.
        "hosts": {state.uuid: _as_data(state) for state in states if state.uuid},
        "aggregates": sorted(map(_aggregate, manager.aggs_by_id.values()), key=str),
    }


def _weights(message, states):
    classes = {cls.__name__: cls for cls in weights.all_weighers()}
    weigher = classes[message["weigher"]]()
    specs = map(base.NovaObject.obj_from_primitive, message["spec_objs"])
    return [
        {
            state.uuid: [
                weigher._weigh_object(state, spec),
                weigher.weight_multiplier(state),
            ]
            for state in states
        }
        for spec in specs
    ]


def _reported_instances(ctxt, manager):
    """Return nova's own cache of instances, as casts of all computes make it."""
    hosts = collections.defaultdict(list)
    for mapping in objects.HostMappingList.get_all(ctxt):
        hosts[mapping.cell_mapping.uuid].append(mapping.host)
    cached = {}
    for cell_uuid, names in hosts.items():
        if cell_uuid in manager.cells:
            with context.target_cell(ctxt, manager.cells[cell_uuid]) as cctxt:
                uuids = objects.InstanceList.get_uuids_by_hosts(cctxt, names)
            for name in names:
                # Computes report all of an instance but its system metadata.
                instances = {
                    u: objects.Instance(uuid=u, image_ref="") for u in uuids[name]
                }
                cached[name] = {"instances": instances, "updated": True}
    return cached


_PLAIN = (
    "host", "nodename", "uuid", "cell_uuid", "total_usable_ram_mb", "free_ram_mb",
    "total_usable_disk_gb", "disk_mb_used", "free_disk_mb", "vcpus_total",
    "vcpus_used", "cpu_allocation_ratio", "ram_allocation_ratio",
    "disk_allocation_ratio", "num_instances", "num_io_ops", "failed_builds",
    "supported_instances", "stats", "hypervisor_type", "hypervisor_version",
    "hypervisor_hostname", "cpu_info",
)  # fmt: skip


def _as_data(state):
    """Return every attribute of a host state as plain data."""
    service = state.service
    # servicegroup/drivers/db.py: without a heartbeat, when it was made counts.
    seen = service["last_seen_up"] or service["created_at"]
    return {
        **{name: getattr(state, name) for name in _PLAIN},
        "host_ip": None if state.host_ip is None else str(state.host_ip),
        "numa_topology": state.numa_topology and state.numa_topology.obj_to_primitive(),
        "pci_stats": sorted(state.pci_stats.pools, key=_written),
        "metrics": {m.name: m.value for m in state.metrics if "value" in m},
        "aggregates": sorted(aggregate.id for aggregate in state.aggregates),
        "instances": sorted(state.instances),
        "disabled": bool(service["disabled"]),
        "forced_down": bool(service["forced_down"]),
        "last_seen_up": seen and _seconds(seen),
        "service_version": service["version"],
        "updated": state.updated and _seconds(state.updated),
    }


def _aggregate(aggregate):
    return {
        "id": aggregate.id,
        "uuid": aggregate.uuid,
        "name": aggregate.name,
        "hosts": sorted(aggregate.hosts),
        "metadata": aggregate.metadata,
    }


def _seconds(when):
    return when.replace(tzinfo=datetime.UTC).timestamp()


def _written(value):
    return json.dumps(value, sort_keys=True)
