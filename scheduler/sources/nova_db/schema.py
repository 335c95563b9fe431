# SPDX-License-Identifier: Apache-2.0
"""The tables of nova 34 that are read, with the columns needed.

Columns and types are those of ``nova/db/api/models.py`` and ``nova/db/main/models.py``.
"""

from __future__ import annotations

import sqlalchemy as sa

from ...polling.times import UtcMicroseconds

#: nova's cell of instances that were never scheduled.
CELL0 = "00000000-0000-0000-0000-000000000000"

# -- the API database ------------------------------------------------------------------

API = sa.MetaData()

cell_mappings = sa.Table(
    "cell_mappings",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    sa.Column("name", sa.String(255)),
    sa.Column("database_connection", sa.Text),
    sa.Column("disabled", sa.Boolean, default=False),
)

host_mappings = sa.Table(
    "host_mappings",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("cell_id", sa.Integer, nullable=False),
    sa.Column("host", sa.String(255), nullable=False, unique=True),
)

aggregates = sa.Table(
    "aggregates",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36)),
    sa.Column("name", sa.String(255)),
)

aggregate_hosts = sa.Table(
    "aggregate_hosts",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255)),
    sa.Column("aggregate_id", sa.Integer, nullable=False),
)

aggregate_metadata = sa.Table(
    "aggregate_metadata",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("value", sa.String(255), nullable=False),
    sa.Column("aggregate_id", sa.Integer, nullable=False),
)

flavors = sa.Table(
    "flavors",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("root_gb", sa.Integer),
    sa.Column("ephemeral_gb", sa.Integer),
    sa.Column("flavorid", sa.String(255), nullable=False, unique=True),
    sa.Column("swap", sa.Integer, nullable=False, default=0),
    sa.Column("disabled", sa.Boolean, default=False),
)

flavor_extra_specs = sa.Table(
    "flavor_extra_specs",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("value", sa.String(255)),
    sa.Column("flavor_id", sa.Integer, nullable=False),
)

instance_groups = sa.Table(
    "instance_groups",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("project_id", sa.String(255)),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
)

instance_group_member = sa.Table(
    "instance_group_member",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(255)),
    sa.Column("group_id", sa.Integer, nullable=False),
)

instance_mappings = sa.Table(
    "instance_mappings",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, unique=True),
    sa.Column("cell_id", sa.Integer),
    sa.Column("project_id", sa.String(255), nullable=False),
    sa.Column("queued_for_delete", sa.Boolean),
)

build_requests = sa.Table(
    "build_requests",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("project_id", sa.String(255), nullable=False),
    sa.Column("block_device_mappings", sa.Text),
)

request_specs = sa.Table(
    "request_specs",
    API,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False, unique=True),
    sa.Column("spec", sa.Text, nullable=False),
)

# -- a cell's database -----------------------------------------------------------------

CELL = sa.MetaData()

services = sa.Table(
    "services",
    CELL,
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255)),
    sa.Column("binary", sa.String(255)),
    sa.Column("disabled", sa.Boolean, default=False),
    sa.Column("disabled_reason", sa.String(255)),
    sa.Column("forced_down", sa.Boolean, default=False),
    sa.Column("last_seen_up", UtcMicroseconds),
    sa.Column("version", sa.Integer, default=0),
)

compute_nodes = sa.Table(
    "compute_nodes",
    CELL,
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("host", sa.String(255)),
    sa.Column("uuid", sa.String(36)),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("memory_mb", sa.Integer, nullable=False),
    sa.Column("local_gb", sa.Integer, nullable=False),
    sa.Column("vcpus_used", sa.Integer, nullable=False),
    sa.Column("local_gb_used", sa.Integer, nullable=False),
    sa.Column("hypervisor_type", sa.Text, nullable=False),
    sa.Column("hypervisor_version", sa.Integer, nullable=False),
    sa.Column("hypervisor_hostname", sa.String(255)),
    sa.Column("free_ram_mb", sa.Integer),
    sa.Column("free_disk_gb", sa.Integer),
    sa.Column("cpu_info", sa.Text, nullable=False),
    sa.Column("disk_available_least", sa.Integer),
    sa.Column("host_ip", sa.String(39)),
    sa.Column("supported_instances", sa.Text),
    sa.Column("metrics", sa.Text),
    sa.Column("pci_stats", sa.Text),
    sa.Column("stats", sa.Text),
    sa.Column("numa_topology", sa.Text),
    sa.Column("ram_allocation_ratio", sa.Float),
    sa.Column("cpu_allocation_ratio", sa.Float),
    sa.Column("disk_allocation_ratio", sa.Float),
    sa.Column("mapped", sa.Integer, default=0),
)

instances = sa.Table(
    "instances",
    CELL,
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36), nullable=False, unique=True),
    sa.Column("host", sa.String(255)),
    sa.Column("node", sa.String(255)),
    sa.Column("vm_state", sa.String(255)),
    sa.Column("task_state", sa.String(255)),
    sa.Column("hidden", sa.Boolean, default=False),
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("deleted_at", UtcMicroseconds),
    sa.Column("vcpus", sa.Integer),
    sa.Column("memory_mb", sa.Integer),
    sa.Column("root_gb", sa.Integer),
    sa.Column("ephemeral_gb", sa.Integer),
    sa.Column("project_id", sa.String(255)),
    sa.Column("image_ref", sa.String(255)),
    sa.Index("instances_updated_at_idx", "updated_at"),
    sa.Index("instances_host_node_deleted_idx", "host", "node", "deleted"),
)

instance_system_metadata = sa.Table(
    "instance_system_metadata",
    CELL,
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("value", sa.String(255)),
    sa.Column("instance_uuid", sa.String(36), nullable=False),
    sa.Index("instance_system_metadata_uuid_idx", "instance_uuid"),
)

instance_extra = sa.Table(
    "instance_extra",
    CELL,
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("instance_uuid", sa.String(36), nullable=False),
    sa.Column("flavor", sa.Text),
    sa.Index("instance_extra_idx", "instance_uuid"),
)

migrations = sa.Table(
    "migrations",
    CELL,
    sa.Column("created_at", UtcMicroseconds),
    sa.Column("updated_at", UtcMicroseconds),
    sa.Column("deleted", sa.Integer, nullable=False, default=0),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("uuid", sa.String(36), unique=True),
    sa.Column("instance_uuid", sa.String(36)),
    sa.Column("status", sa.String(255)),
    sa.Column("migration_type", sa.String(16)),
    sa.Column("source_compute", sa.String(255)),
    sa.Column("source_node", sa.String(255)),
)
