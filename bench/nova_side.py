# SPDX-License-Identifier: Apache-2.0
"""Measure nova 34's scheduler with hosts that are sent in a message.

Run by bench/nova.py with the Python of the environment with nova; it imports nothing of
Moorage. The protocol is that of tests/interop/nova_side.py.
"""

import datetime
import gc
import json
import logging
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.append(str(Path(__file__).parents[1] / "tests/interop"))

import nova_side  # first: it selects threads instead of eventlet
from nova import context, objects
from nova.objects import base, pci_device_pool
from nova.scheduler import host_manager, manager, utils, weights
from nova.weights import normalize

CONF = nova_side.CONF
_GIB = 1024
_A_DAY_S = 86400


class _NovaCloud:
    """The objects that nova would read from its databases."""

    def __init__(self, message):
        now = datetime.datetime.now(datetime.UTC)
        self.computes = [_compute(host, now) for host in message["hosts"]]
        self.services = {h["host"]: _service(h, now) for h in message["hosts"]}
        self.cell = message["hosts"][0]["cell_uuid"]
        self.instances = message["instances"]
        self.manager = _manager(message["filters"], message["weighers"])
        self._hosts.update_aggregates(
            [
                objects.Aggregate(
                    id=a["id"], uuid=a["uuid"], name=a["name"], hosts=a["hosts"],
                    metadata=a["metadata"],
                )
                for a in message["aggregates"]
            ]
        )  # fmt: skip
        self.forget(self.instances)

    @property
    def _hosts(self):
        return self.manager.host_manager

    def forget(self, names):
        """Remove the instances that decisions have placed on these hosts."""
        for name in names:
            instances = {u: objects.Instance(uuid=u) for u in self.instances[name]}
            info = self._hosts._instance_info  # noqa: SLF001 - no database is read
            info[name] = {"instances": instances, "updated": True}

    def states(self):
        """Return new host states, as nova creates them for each decision."""
        nodes = {self.cell: self.computes}
        make = self._hosts._get_host_states  # noqa: SLF001 - no database is read
        return list(make(None, nodes, self.services))


def _compute(host, now):
    return objects.ComputeNode(
        uuid=host["uuid"],
        host=host["host"],
        hypervisor_hostname=host["nodename"],
        memory_mb=host["total_usable_ram_mb"],
        free_ram_mb=host["free_ram_mb"],
        local_gb=host["total_usable_disk_gb"],
        local_gb_used=host["disk_mb_used"] // _GIB,
        free_disk_gb=host["free_disk_mb"] // _GIB,
        disk_available_least=None,
        vcpus=host["vcpus_total"],
        vcpus_used=host["vcpus_used"],
        cpu_allocation_ratio=host["cpu_allocation_ratio"],
        ram_allocation_ratio=host["ram_allocation_ratio"],
        disk_allocation_ratio=host["disk_allocation_ratio"],
        hypervisor_type=host["hypervisor_type"],
        hypervisor_version=host["hypervisor_version"],
        host_ip=host["host_ip"],
        cpu_info=host["cpu_info"],
        supported_hv_specs=[
            objects.HVSpec.from_list(each) for each in host["supported_instances"]
        ],
        stats={
            **host["stats"],
            "num_instances": str(host["num_instances"]),
            "io_workload": str(host["num_io_ops"]),
            "failed_builds": str(host["failed_builds"]),
        },
        metrics="[]",
        numa_topology=host["numa_topology"],
        pci_device_pools=(
            pci_device_pool.from_pci_stats(host["pci_stats"])
            if host["pci_stats"]
            else None
        ),
        updated_at=now,
    )


def _service(host, now):
    return objects.Service(
        host=host["host"],
        binary="nova-compute",
        topic="compute",
        disabled=host["disabled"],
        forced_down=host["forced_down"],
        last_seen_up=now,
    )


def _manager(filters, weighers):
    """Return nova's scheduler without its use of databases, brokers and Placement."""
    known = {cls.__name__: cls for cls in weights.all_weighers()}
    paths = [f"{known[n].__module__}.{n}" for n in weighers if n in known]
    CONF.set_override("enabled_filters", filters, "filter_scheduler")
    CONF.set_override("weight_classes", paths, "filter_scheduler")
    CONF.set_override("service_down_time", _A_DAY_S)
    idle: dict[str, Any] = dict.fromkeys(
        ("refresh_cells_caches", "_init_aggregates", "_init_instance_info"),
        lambda *_args: None,
    )
    made = object.__new__(manager.SchedulerManager)
    with mock.patch.multiple(host_manager.HostManager, **idle):
        made.host_manager = host_manager.HostManager()
    return made


CLOUD: Any = None


def load(message):
    """Load hosts, instances and aggregates, and enable filters and weighers."""
    global CLOUD
    CLOUD = None
    gc.collect()
    CLOUD = _NovaCloud(message)
    return len(CLOUD.computes)


def decide(message):
    """Return the times of whole decisions; all claims succeed without Placement."""
    uuids, ctxt = message["instance_uuids"], context.get_admin_context()
    with (
        mock.patch.object(utils, "claim_resources", _granted),
        mock.patch.object(manager.SchedulerManager, "placement_client", None),
    ):
        return _repeated(
            message, lambda: _decided(ctxt, _spec(message), uuids, message["offers"])
        )


def _granted(*_args, **_kwargs):
    """Replace a claim; faster than a mock, which records its calls."""
    return True


def _decided(ctxt, spec, uuids, offers):
    started = time.perf_counter()
    states = CLOUD.states()
    made = time.perf_counter()
    requests = _allocation_requests(spec, offers)
    scheduler = CLOUD.manager
    scheduler._get_all_host_states = lambda *_: iter(states)  # noqa: SLF001 - no database
    passed = _counting(scheduler.host_manager)
    began, cpu_began = time.perf_counter(), time.thread_time()
    selections = scheduler._schedule(  # noqa: SLF001 - its callers ask Placement
        ctxt, spec, uuids, requests, {}, "1.36", return_alternates=True
    )
    ended, cpu_ended = time.perf_counter(), time.thread_time()
    CLOUD.forget({selection[0].service_host for selection in selections})
    return {
        "own": (ended - began) * 1000,
        "cpu": (cpu_ended - cpu_began) * 1000,
        "states": (made - started) * 1000,
        "n_passed": passed[0],
    }


def _counting(hosts):
    """Return a list to which each filtering adds the number of passing hosts."""
    passed = []
    weigh = host_manager.HostManager.get_weighed_hosts

    def get_weighed_hosts(found, spec):
        passed.append(len(found))
        return weigh(hosts, found, spec)

    hosts.get_weighed_hosts = get_weighed_hosts
    return passed


def _allocation_requests(spec, offers):
    """Return the candidates of each host: one, or one for each device offered."""
    resources = {
        "VCPU": spec.flavor.vcpus,
        "MEMORY_MB": spec.flavor.memory_mb,
        "DISK_GB": spec.flavor.root_gb + spec.flavor.ephemeral_gb,
    }
    groups = spec.requested_resources if offers else []
    return {
        compute.uuid: [
            _candidate(compute.uuid, resources, groups, device)
            for device in offers.get(compute.uuid, (None,))
        ]
        for compute in CLOUD.computes
    }


def _candidate(node, resources, groups, device):
    allocations = {node: {"resources": dict(resources)}}
    mappings = {"": [node]}
    for group in groups:
        allocations[device] = {"resources": dict(group.resources)}
        mappings[group.requester_id] = [device]
    return {"allocations": allocations, "mappings": mappings}


def filter_(message):
    """Return the times of one filter over all hosts, or None if nova has none."""
    cls = CLOUD.manager.host_manager.filter_cls_map.get(message["name"])
    if cls is None:
        return None
    one, states = cls(), CLOUD.states()
    requests = _allocation_requests(_spec(message), message["offers"])

    def run(spec):
        # A filter that evaluates candidates removes those that it rejects.
        for state in states:
            state.allocation_candidates = requests[state.uuid]
        return len(list(one.filter_all(states, spec)))

    return _plugin(message, run)


def weigher(message):
    """Return the times of one weigher over all hosts, or None if nova has none."""
    known = {cls.__name__: cls for cls in weights.all_weighers()}
    if message["name"] not in known:
        return None
    one = known[message["name"]]()
    weighed = [weights.WeighedHost(state, 0.0) for state in CLOUD.states()]

    def run(spec):
        # As BaseWeightHandler.get_weighed_objects does, without its log lines.
        raw = one.weigh_objects(weighed, spec)
        normalized = list(normalize(raw, minval=one.minval, maxval=one.maxval))
        for each, weight in zip(weighed, normalized, strict=True):
            each.weight += one.weight_multiplier(each.obj) * weight
        return len(normalized)

    return _plugin(message, run)


def _plugin(message, run):
    n_passed = 0

    def timed():
        nonlocal n_passed
        spec = _spec(message)
        started = time.perf_counter()
        n_passed = run(spec)
        return (time.perf_counter() - started) * 1000

    return {"ms": _repeated(message, timed), "n_passed": n_passed}


def wire(message):
    """Return the times of reading an object's text and of writing it."""
    text, number = message["text"], message["number"]
    serializer = base.NovaObjectSerializer()
    ctxt = context.get_admin_context()

    def read():
        return serializer.deserialize_entity(ctxt, json.loads(text))

    found = read()

    def timed(block):
        started = time.perf_counter()
        for _ in range(number):
            block()
        return (time.perf_counter() - started) * 1000 / number

    def write():
        return json.dumps(serializer.serialize_entity(ctxt, found))

    return {
        "read": _repeated(message, lambda: timed(read)),
        "write": _repeated(message, lambda: timed(write)),
    }


def _spec(message):
    return base.NovaObject.obj_from_primitive(message["spec_obj"])


def _repeated(message, run):
    """Repeat as `repeated` in bench/timing.py does, which cannot be imported here."""
    for _ in range(message["warm_ups"]):
        run()
    gc.collect()
    ends_at = time.perf_counter() + message["budget_s"]
    results = [run()]
    while len(results) < message["runs"] and time.perf_counter() < ends_at:
        results.append(run())
    return results


nova_side.OPERATIONS.update(
    load=load, decide=decide, filter=filter_, weigher=weigher, wire=wire
)

if __name__ == "__main__":
    # At INFO, discarding the lines, as for Moorage: formatting is part of a decision.
    logging.getLogger().addHandler(logging.NullHandler())
    logging.getLogger("nova").setLevel(logging.INFO)
    nova_side.main()
