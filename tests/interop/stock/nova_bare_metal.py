# SPDX-License-Identifier: Apache-2.0
"""nova-compute with a driver like Ironic's: nodes of one unit of a resource class each.

Run by cloud.py with the Python of the peer environment and nova's own configuration
files; it imports nova and nothing of ours. The driver reports what nova's IronicDriver
does; nova takes it for that one by its name. BARE_METAL_NODES is the number of nodes.
"""

import os
import uuid

os.environ["OS_NOVA_DISABLE_EVENTLET_PATCHING"] = "1"

from nova.cmd import compute  # patches before anything else of nova is imported
from nova.virt import fake

RESOURCE_CLASS = "CUSTOM_BAREMETAL_GOLD"
#: A trait of the last node.
TRAIT = "CUSTOM_GPU"

N_NODES = int(os.environ["BARE_METAL_NODES"])
NAMES = [str(uuid.uuid5(uuid.NAMESPACE_DNS, f"node-{i}")) for i in range(N_NODES)]
AMOUNTS = ("vcpus", "memory_mb", "local_gb")


class FakeIronicDriver(fake.FakeDriver):  # type: ignore[misc]  # nova has no types
    """A fake driver of many nodes, on which builds with the metadata "fails" fail."""

    rebalances_nodes = True

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        self._failed = set()

    def init_host(self, host):
        super().init_host(host)
        self._set_nodes(NAMES)

    def get_nodenames_by_uuid(self, refresh=False):
        return {name: name for name in self.get_available_nodes()}

    def get_available_resource(self, nodename):
        return {
            **super().get_available_resource(nodename),
            **dict.fromkeys(AMOUNTS, 0),
            **dict.fromkeys((f"{name}_used" for name in AMOUNTS), 0),
            "uuid": nodename,
            "hypervisor_type": "ironic",
            "hypervisor_version": 1,
            "cpu_info": None,
            "disk_available_least": 0,
            "supported_instances": [("x86_64", "baremetal", "hvm")],
            "stats": {"cpu_arch": "x86_64"},
            "resource_class": "gold",
        }

    def update_provider_tree(self, provider_tree, nodename, allocations=None):
        unit = {
            "total": 1,
            "reserved": 0,
            "min_unit": 1,
            "max_unit": 1,
            "step_size": 1,
            "allocation_ratio": 1.0,
        }
        provider_tree.update_inventory(nodename, {RESOURCE_CLASS: unit})
        provider_tree.update_traits(nodename, [TRAIT] if nodename == NAMES[-1] else [])

    def spawn(self, context, instance, *args, **kwargs):
        """Build an instance; the first build of one that is to fail does so."""
        if "fails" in instance.metadata and instance.uuid not in self._failed:
            self._failed.add(instance.uuid)
            raise fake.exception.ComputeResourcesUnavailable(reason="it is to fail")
        super().spawn(context, instance, *args, **kwargs)


fake.FakeIronicDriver = FakeIronicDriver

if __name__ == "__main__":
    compute.main()
