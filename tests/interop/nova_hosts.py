# SPDX-License-Identifier: Apache-2.0
"""nova 34's host states, filters and weighers, over hosts that come in a message.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours.
"""

import contextlib
import datetime
import functools
import json
import logging
from unittest import mock

import nova.conf
from nova import context, objects
from nova.objects import base, pci_device_pool
from nova.scheduler import filters, host_manager, weights
from nova.weights import normalize
from oslo_utils import timeutils

CONF = nova.conf.CONF
_GIB = 1024
_LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def judge(message):
    """Return nova's result for some hosts for each of some requests.

    Keys: "hosts" (columns of HostRecord; last_seen_up is seconds, None for never, or
    "now"), "aggregates", "instances" (UUIDs by host), "images" (properties by
    instance), "now" (seconds), "options" (values by option by group), "filters" and
    "weighers" (names), "spec_objs" (primitives), "chain" (whether to run all of them
    one after the other, too).
    """
    with options(message["options"]), _clock(message["now"]), _no_cells():
        one_of_each = _filters(message["filters"]), _weighers(message["weighers"])
        return [
            _judged(
                message, *one_of_each, base.NovaObject.obj_from_primitive(primitive)
            )
            for primitive in message["spec_objs"]
        ]


def _judged(message, some_filters, some_weighers, spec):
    states = _states(message)
    answer = {
        "passing": {
            type(f).__name__: [_attempt(_passes, f, s, spec) for s in states]
            for f in some_filters
        },
        "weights": {
            type(w).__name__: _attempt(_weights, w, states, spec) for w in some_weighers
        },
    }
    if message["chain"]:
        for host_state in states:
            host_state.allocation_candidates = _one_candidate()
        answer["chain"] = _attempt(_chain, some_filters, some_weighers, states, spec)
    return answer


def _passes(filter_, host_state, spec):
    # An earlier filter may have removed the candidates.
    host_state.allocation_candidates = _one_candidate()
    # Unlike host_passes, this asks first whether the filter runs on rebuild.
    return filter_._filter_one(host_state, spec)


def _one_candidate():
    """Return a candidate that maps nothing, as if Placement had not been queried."""
    return [{"allocations": {}, "mappings": {}}]


def _attempt(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__


def _weights(weigher, states, spec):
    weighed = [weights.WeighedHost(state, 0.0) for state in states]
    raw = weigher.weigh_objects(weighed, spec)
    return {
        "normalized": list(
            normalize(raw, minval=weigher.minval, maxval=weigher.maxval)
        ),
        "multipliers": [float(weigher.weight_multiplier(state)) for state in states],
    }


def _chain(some_filters, some_weighers, states, spec):
    """Return [node, weight] pairs, best first."""
    passed = filters.HostFilterHandler().get_filtered_objects(
        some_filters, states, spec, 0
    )
    ordered = weights.HostWeightHandler().get_weighed_objects(
        some_weighers, passed, spec
    )
    return [[host.obj.nodename, host.weight] for host in ordered]


@functools.cache
def _filter_classes():
    return {cls.__name__: cls for cls in filters.all_filters()}


@functools.cache
def _weigher_classes():
    return {cls.__name__: cls for cls in weights.all_weighers()}


def _filters(names):
    return [_filter_classes()[name]() for name in names]


def _weighers(names):
    return [_weigher_classes()[name]() for name in names]


# -- what nova would have read from its databases --------------------------------


def _states(message):
    aggregates = [
        objects.Aggregate(
            id=a["id"], uuid=a["uuid"], name=a["name"], hosts=a["hosts"],
            metadata=a["metadata"],
        )
        for a in message["aggregates"]
    ]  # fmt: skip
    return [_state(message, host, aggregates) for host in message["hosts"]]


def _state(message, host, aggregates):
    images, uuids = message["images"], message["instances"].get(host["host"], ())
    return state(
        host,
        dict(_service(host, message["now"])),
        [a for a in aggregates if host["host"] in a.hosts],
        {uuid: _instance(uuid, images.get(uuid, {})) for uuid in uuids},
    )


def state(host, *more):
    """Return the state of a host, with no candidates."""
    made = host_manager.HostState(host["host"], host["nodename"], host["cell_uuid"])
    made.update(_compute(host), *more)
    return made


def _instance(uuid, properties):
    kept = {f"image_{name}": text for name, text in properties.items()}
    return objects.Instance(uuid=uuid, image_ref="", system_metadata=kept)


def _compute(host):
    return objects.ComputeNode(
        uuid=host["uuid"],
        host=host["host"],
        hypervisor_hostname=host["hypervisor_hostname"],
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
        metrics=_metrics(host["metrics"]),
        numa_topology=host.get("numa_topology"),
        pci_device_pools=pci_device_pool.from_pci_stats(host.get("pci_stats")),
        updated_at=None,
    )


def _metrics(metrics):
    """Return what a compute would have written, in nova's own words."""
    if metrics is None:
        return None
    return json.dumps(
        objects.MonitorMetricList(
            objects=[
                objects.MonitorMetric(
                    name=name, value=value, timestamp=_LONG_AGO, source="test"
                )
                for name, value in metrics.items()
            ]
        ).to_list(),
        default=str,
    )


def _service(host, now):
    seen = now if host["last_seen_up"] == "now" else host["last_seen_up"]
    return objects.Service(
        host=host["host"],
        binary="nova-compute",
        topic="compute",
        disabled=host["disabled"],
        forced_down=host["forced_down"],
        last_seen_up=seen and _time(seen),
        created_at=_LONG_AGO,
    )


def _time(seconds):
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


# -- the rest of nova ------------------------------------------------------------------


@contextlib.contextmanager
def options(values_of):
    """Set nova's options, values by name by group; no log but of errors."""
    logging.getLogger("nova").setLevel(logging.ERROR)
    changed = [
        (name, value, group)
        for group, values in values_of.items()
        for name, value in values.items()
    ]
    for name, value, group in changed:
        CONF.set_override(name, value, group)
    try:
        yield
    finally:
        for name, _, group in changed:
            CONF.clear_override(name, group)


@contextlib.contextmanager
def _clock(now):
    timeutils.set_time_override(_time(now).replace(tzinfo=None))
    try:
        yield
    finally:
        timeutils.clear_time_override()


@contextlib.contextmanager
def _no_cells():
    """Let ImagePropertiesWeigher find its instances without a database."""

    @contextlib.contextmanager
    def target_cell(ctxt, cell):
        yield ctxt

    with (
        mock.patch.object(objects.CellMapping, "get_by_uuid"),
        mock.patch.object(context, "target_cell", target_cell),
        mock.patch.object(objects.InstanceList, "fill_metadata"),
    ):
        yield
