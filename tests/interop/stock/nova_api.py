# SPDX-License-Identifier: Apache-2.0
"""nova-api's operations without HTTP: one JSON line in, one out.

Run by cloud.py with the Python of the peer environment and nova's own configuration
file; it imports nova and nothing of ours. A line has "op" and that operation's
arguments; the answer has "result", or "error" with the exception's name and message.
"""

import json
import os
import sys
import traceback
import uuid

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova import monkey_patch

monkey_patch.patch(backend="threading")  # before anything else of nova is imported

import nova_http  # noqa: E402 - as below
from nova import (  # noqa: E402 - as above
    block_device,
    config,
    context,
    exception,
    objects,
    servicegroup,
)
from nova.compute import api as compute_api  # noqa: E402

USER, PROJECT = uuid.uuid4().hex, uuid.uuid4().hex


class Users:
    """Operations by their names; instances, flavors and images by their UUIDs."""

    def __init__(self):
        self._compute = compute_api.API()
        self._hosts = compute_api.HostAPI()
        self._services = servicegroup.API()

    def flavor(self, vcpus, memory_mb, root_gb, extra_specs=None):
        name = str(uuid.uuid4())
        objects.Flavor(
            _context(),
            flavorid=name,
            name=name,
            vcpus=vcpus,
            memory_mb=memory_mb,
            root_gb=root_gb,
            ephemeral_gb=0,
            swap=0,
            rxtx_factor=1.0,
            disabled=False,
            is_public=True,
            extra_specs=extra_specs or {},
        ).create()
        return name

    def group(self, policy):
        group = objects.InstanceGroup(
            _context(),
            uuid=str(uuid.uuid4()),
            name=policy,
            user_id=USER,
            project_id=PROJECT,
            policy=policy,
        )
        group.create()
        return group.uuid

    def project(self):
        """Return the project of the users."""
        return PROJECT

    def place(self, name, level, hosts, metadata=None):
        """POST /os-aggregates and its actions: make a place of these hosts."""
        ctxt, aggregates = _context(), compute_api.AggregateAPI()
        made = aggregates.create_aggregate(ctxt, name, None)
        metadata = {"moorage:level": level, **(metadata or {})}
        aggregates.update_aggregate_metadata(ctxt, made.id, metadata)
        for host in hosts:
            aggregates.add_host_to_aggregate(ctxt, made.id, host)

    def aggregates(self):
        """GET /os-aggregates: return hosts and metadata of each, by name."""
        found = compute_api.AggregateAPI().get_aggregate_list(_context())
        return {each.name: [sorted(each.hosts), each.metadata] for each in found}

    def serve(self, port):
        """Serve the API over HTTP, too."""
        nova_http.serve(port, _context())

    def create(
        self,
        flavor,
        n=1,
        group=None,
        hints=None,
        volume=None,
        port=None,
        **more,
    ):
        """POST /servers; return the UUIDs of n instances.

        They have an image and no network, or one has a boot volume or a port.
        """
        ctxt = _context()
        network = {"port_id": port} if port else {"network_id": "none"}
        created, _ = self._compute.create(
            ctxt,
            flavor=objects.Flavor.get_by_flavor_id(ctxt, flavor),
            image_href="" if volume else str(uuid.uuid4()),
            block_device_mapping=[_root(volume)] if volume else None,
            legacy_bdm=not volume,
            min_count=n,
            max_count=n,
            display_name="instance",
            requested_networks=objects.NetworkRequestList(
                objects=[objects.NetworkRequest(**network)]
            ),
            scheduler_hints={**({"group": group} if group else {}), **(hints or {})},
            availability_zone="nova" if "forced_host" in more else None,
            check_server_group_quota=True,
            tags=objects.TagList(),
            **{"metadata": {}, **more},
        )
        return [instance.uuid for instance in created]

    def resize(self, instance, flavor):
        self._do(self._compute.resize, instance, flavor_id=flavor)

    def migrate(self, instance):
        self._do(self._compute.resize, instance)

    def confirm_resize(self, instance):
        self._do(self._compute.confirm_resize, instance)

    def revert_resize(self, instance):
        self._do(self._compute.revert_resize, instance)

    def live_migrate(self, instance):
        self._do(
            self._compute.live_migrate,
            instance,
            block_migration=None,
            disk_over_commit=None,
            host_name=None,
            async_=True,
        )

    def evacuate(self, instance):
        self._do(self._compute.evacuate, instance, host=None, on_shared_storage=None)

    def rebuild(self, instance, has_new_image):
        ctxt, found = _found(instance)
        image = str(uuid.uuid4()) if has_new_image else found.image_ref
        self._compute.rebuild(ctxt, found, image, "password")

    def shelve(self, instance):
        self._do(self._compute.shelve, instance)

    def unshelve(self, instance):
        self._do(self._compute.unshelve, instance)

    def delete(self, instance):
        self._do(self._compute.delete, instance)

    def change_service(self, host, changes):
        """PUT /os-services/{id} of the nova-compute of a host."""
        self._hosts.service_update_by_host_and_binary(
            _context(), host, "nova-compute", changes
        )

    def services(self):
        """GET /os-services: return all of them, and which ones are up."""
        found = self._hosts.service_get_all(_context(), all_cells=True)
        return [
            {
                "binary": service.binary,
                "host": service.host,
                "is_up": self._services.service_is_up(service),
            }
            for service in found
        ]

    def hosts(self):
        """Return the hosts that are mapped to a cell."""
        found = objects.HostMappingList.get_all(_context())
        return sorted(mapping.host for mapping in found)

    def show(self, instance):
        """Return an instance as the databases have it; None: it is deleted."""
        try:
            ctxt, found = _found(instance)
        except exception.InstanceNotFound:
            return None
        if found is None:
            return {"vm_state": "building", "task_state": "scheduling"}
        faults = objects.InstanceFaultList.get_by_instance_uuids(ctxt, [instance])
        moves = objects.MigrationList.get_by_filters(ctxt, {"instance_uuid": instance})
        return {
            "vm_state": found.vm_state,
            "task_state": found.task_state,
            "host": found.host,
            "node": found.node,
            "flavor": found.flavor.flavorid,
            "image": found.image_ref,
            "faults": [{"code": f.code, "message": f.message} for f in faults],
            "migrations": [
                {
                    "uuid": m.uuid,
                    "type": m.migration_type,
                    "status": m.status,
                    "source": m.source_compute,
                    "target": m.dest_compute,
                }
                for m in sorted(moves, key=lambda m: m.id)
            ],
        }

    def _do(self, method, instance, **arguments):
        method(*_found(instance), **arguments)


def _context():
    return context.RequestContext(
        user_id=USER,
        project_id=PROJECT,
        is_admin=True,
        roles=["admin", "member", "reader"],
        auth_token="token",
        service_catalog=[],
    )


def _root(volume):
    """Return a block device as POST /servers has it, of a volume to boot from."""
    device = {
        "uuid": volume,
        "source_type": "volume",
        "destination_type": "volume",
        "boot_index": 0,
        "delete_on_termination": False,
    }
    return block_device.BlockDeviceDict.from_api(device, False)


def _found(uuid):
    """Return a context for the instance's cell, and it; None: it has no cell yet."""
    ctxt = _context()
    try:
        mapping = objects.InstanceMapping.get_by_instance_uuid(ctxt, uuid)
    except exception.InstanceMappingNotFound as e:
        raise exception.InstanceNotFound(instance_id=uuid) from e
    if mapping.cell_mapping is None:
        return ctxt, None
    context.set_target_cell(ctxt, mapping.cell_mapping)
    wanted = ["flavor", "info_cache", "metadata", "system_metadata", "pci_requests"]
    return ctxt, objects.Instance.get_by_uuid(ctxt, uuid, expected_attrs=wanted)


def main():
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print is no answer
    config.parse_args(["nova-api", *sys.argv[1:]])
    objects.register_all()
    users = Users()
    with os.fdopen(answers, "w") as out:
        for line in sys.stdin:
            message = json.loads(line)
            try:
                operation = getattr(users, message.pop("op"))
                answer = {"result": operation(**message)}
            except Exception as e:  # the caller gets it
                traceback.print_exc()
                answer = {"error": f"{type(e).__name__}: {e}"}
            print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
