# SPDX-License-Identifier: Apache-2.0
"""A scheduler built on nova 34's own options and databases, in nova's process.

It runs inside nova's environment, as nova's functional tests would have it: SQLite in
memory, nova's objects write, and the scheduler is called directly. It prints what it
saw as JSON.
"""

import datetime
import json
import os
import socket
import threading
import uuid

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

import os_traits
import oslo_messaging
from nova import config, objects, rpc
from nova.conf import CONF
from nova.context import get_admin_context
from nova.db.api import api as api_db
from nova.db.api import models as api_models
from nova.db.main import api as main_db
from nova.db.main import models as main_models
from nova.exception import NoValidHost
from nova.scheduler.client.query import SchedulerQueryClient
from oslo_config import cfg
from oslo_reports import opts as reports_opts

from moorage.objects import Serializer
from moorage.scheduler.errors import PlacementError, PlacementUnavailable, as_nova
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.service import build
from moorage.scheduler.sources.nova_db import NovaDBSource

CONTEXT = get_admin_context()
HEADERS = {"OpenStack-API-Version": "placement 1.36"}


def databases():
    """Return the engines of nova's API database and of its cell's, both new."""
    for db, models in ((api_db, api_models), (main_db, main_models)):
        db.configure(CONF)
        models.BASE.metadata.create_all(db.context_manager.writer.get_engine())
    return [db.context_manager.writer.get_engine() for db in (api_db, main_db)]


class Cloud:
    """nova's compute services, each with its provider in Placement."""

    def __init__(self, placement):
        self._placement = placement
        self._cell = objects.CellMapping(
            CONTEXT,
            uuid=str(uuid.uuid4()),
            name="cell1",
            transport_url="none:///",
            database_connection=CONF.database.connection,
        )
        self._cell.create()

    def put(self, node, what, **body):
        """Write a part of a node's provider."""
        url = f"/resource_providers/{node.uuid}"
        provider = self._placement.get(url, headers=HEADERS).json()
        body["resource_provider_generation"] = provider["generation"]
        answer = self._placement.put(f"{url}/{what}", json=body, headers=HEADERS)
        assert answer.status_code < 300, answer.text

    def add(self, name):
        """Return the service of a new compute node."""
        service = objects.Service(
            CONTEXT, host=name, binary="nova-compute", topic="compute", report_count=1
        )
        service.create()
        service.last_seen_up = datetime.datetime.now(datetime.UTC)
        service.save()
        node = objects.ComputeNode(
            CONTEXT, uuid=str(uuid.uuid4()), service_id=service.id, host=name,
            hypervisor_hostname=name, hypervisor_type="QEMU",
            hypervisor_version=8000000, cpu_info="{}", vcpus=8, memory_mb=16384,
            local_gb=100, vcpus_used=0, memory_mb_used=512, local_gb_used=0,
            free_ram_mb=15872, free_disk_gb=100, disk_available_least=100,
            current_workload=0, running_vms=0, metrics="[]", stats={}, mapped=1,
            supported_hv_specs=[objects.HVSpec.from_list(["x86_64", "kvm", "hvm"])],
            cpu_allocation_ratio=1.0, ram_allocation_ratio=1.0,
            disk_allocation_ratio=1.0,
        )  # fmt: skip
        node.create()
        objects.HostMapping(CONTEXT, host=name, cell_mapping=self._cell).create()
        named = {"uuid": node.uuid, "name": name}
        answer = self._placement.post(
            "/resource_providers", json=named, headers=HEADERS
        )
        assert answer.status_code < 300, answer.text
        amounts = {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100}
        inventories = {name: {"total": total} for name, total in amounts.items()}
        self.put(node, "inventories", inventories=inventories)
        self.put(node, "traits", traits=[os_traits.OWNER_NOVA])
        return service

    def aggregate(self, zone, name):
        """Put a host into an availability zone, in nova and in Placement."""
        made = objects.Aggregate(
            CONTEXT, name=zone, metadata={"availability_zone": zone}
        )
        made.create()
        made.add_host(name)
        node = objects.ComputeNode.get_first_node_by_host_for_old_compat(CONTEXT, name)
        self.put(node, "aggregates", aggregates=[made.uuid])


def spec(vcpus=1, **changes):
    """Return nova's RequestSpec of a small guest."""
    flavor = objects.Flavor(
        CONTEXT, id=1, flavorid="1", name="small", vcpus=vcpus, memory_mb=512,
        root_gb=1, ephemeral_gb=0, swap=0, extra_specs={}, rxtx_factor=1.0,
        is_public=True, disabled=False, vcpu_weight=0,
    )  # fmt: skip
    fields = {
        "flavor": flavor,
        "image": objects.ImageMeta(properties=objects.ImageMetaProps()),
        "num_instances": 1, "project_id": "p", "user_id": "u",
        "instance_uuid": str(uuid.uuid4()), "instance_group": None,
        "numa_topology": None, "pci_requests": None, "availability_zone": None,
        "force_hosts": None, "force_nodes": None, "limits": None, "retry": None,
        "scheduler_hints": {}, "is_bfv": False, "requested_resources": [],
        "request_level_params": objects.RequestLevelParams(), "ignore_hosts": None,
        "requested_destination": None,
    }  # fmt: skip
    return objects.RequestSpec(CONTEXT, **{**fields, **changes})


def select(scheduler, spec_obj):
    """Call the scheduler directly."""
    wire = objects.base.NovaObjectSerializer().serialize_entity(CONTEXT, spec_obj)
    return scheduler.select_destinations(
        CONTEXT,
        spec_obj=Serializer().deserialize_entity(CONTEXT, wire),
        instance_uuids=[spec_obj.instance_uuid],
        return_objects=True,
        return_alternates=True,
    )


def call(scheduler, spec_obj):
    """Call the scheduler over nova's own RPC client."""
    server = oslo_messaging.get_rpc_server(
        rpc.TRANSPORT,
        oslo_messaging.Target(topic="scheduler", server="here"),
        scheduler.endpoints,
        executor="threading",
        serializer=Serializer(),
    )
    server.start()
    try:
        return SchedulerQueryClient().select_destinations(
            CONTEXT, spec_obj, [spec_obj.instance_uuid], True, True
        )
    finally:
        server.stop()
        server.wait()


def selected(scheduler, method=select, **changes):
    """Return the names of the hosts that a request may have, sorted.

    Where nova's code would see that there are none, what it would see.
    """
    try:
        [selections] = method(scheduler, spec(**changes))
    except NoValidHost as e:
        return e.format_message()
    return sorted(each.service_host for each in selections)


def as_nova_sees(error):
    """Return what nova's code that catches a NoValidHost sees of an error."""
    try:
        raise as_nova(error)
    except NoValidHost as e:
        return [e.format_message(), isinstance(e, PlacementError)]


def options():
    """Return the options that are registered, with their defaults."""
    return {
        (group.name if group else None, info["opt"].dest): info["opt"]
        for info, group in CONF._all_opt_infos()
    }


def listening():
    """Return the sockets of this process that accept connections."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(fd))) as each:
                if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.append(each.getsockname())
        except OSError:  # no socket, or the folder that is listed
            continue
    return found


def main():
    config.parse_args(["nova"], default_config_files=[])
    CONF.set_override("transport_url", "fake:/")
    for group in ("database", "api_database"):
        CONF.set_override("connection", "sqlite://", group=group)
    objects.register_all()
    api, cell = databases()
    rpc.init(CONF)
    results = {}
    with EmbeddedPlacement() as placement:
        cloud = Cloud(placement.adapter)
        first = cloud.add("first")
        threads, novas = set(threading.enumerate()), options()
        scheduler = build(
            CONF,
            placement=placement.adapter,
            source=NovaDBSource(api, lambda _connection: cell),
        )
        ours = options()
        results["nova's options changed"] = [
            key for key, opt in novas.items() if ours[key] is not opt
        ]
        CONF.set_override("candidates_max_age", 0.0, group="moorage")
        scheduler.reset()
        scheduler.start()
        results["one host"] = selected(scheduler)
        results["over RPC"] = selected(scheduler, call)
        results["too large"] = [
            selected(scheduler, method, vcpus=99) for method in (select, call)
        ]
        results["Placement away"] = as_nova_sees(PlacementUnavailable("It is away."))
        cloud.add("second")
        results["a new compute node"] = selected(scheduler)
        first.disabled = True
        first.save()
        results["a disabled service"] = selected(scheduler)
        first.disabled = False
        first.save()
        results["enabled again"] = selected(scheduler)
        cloud.aggregate("zone", "second")
        results["a new aggregate"] = selected(scheduler, availability_zone="zone")
        results["listening"] = listening()
        scheduler.stop()
        for thread in set(threading.enumerate()) - threads:
            thread.join(10.0)
        results["threads left"] = [
            thread.name for thread in set(threading.enumerate()) - threads
        ]
    results["registered twice"] = []
    for group, opts in reports_opts.list_opts():
        for opt in opts:
            try:
                CONF.register_opt(opt, group=group)
            except cfg.DuplicateOptError:
                results["registered twice"].append(f"[{group}] {opt.dest}")
    print(json.dumps(results))


if __name__ == "__main__":
    main()
