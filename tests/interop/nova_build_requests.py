# SPDX-License-Identifier: Apache-2.0
"""Build requests as nova 34's API writes them.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours. The
databases are those of `open_databases`.
"""

from nova import context, objects


def create_build_request(message):
    """Write the build request of an instance that is not in a cell yet.

    Keys: "instance" (UUID) and "devices": fields of each block device mapping.
    """
    ctxt = context.get_admin_context()
    instance = objects.Instance(ctxt, uuid=message["instance"], project_id="project")
    devices = [
        objects.BlockDeviceMapping(
            ctxt, instance_uuid=message["instance"], destination_type="volume", **each
        )
        for each in message["devices"]
    ]
    objects.BuildRequest(
        ctxt,
        instance=instance,
        instance_uuid=message["instance"],
        project_id="project",
        block_device_mappings=objects.BlockDeviceMappingList(objects=devices),
        tags=objects.TagList(objects=[]),
    ).create()
