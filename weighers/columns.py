# SPDX-License-Identifier: Apache-2.0
"""Weighers by one number of each host, such as free memory or failed builds."""

from __future__ import annotations

from typing import ClassVar

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch
from .base import BaseHostWeigher, Weights


class ColumnWeigher(BaseHostWeigher):
    """Weigh by the column `COLUMN` of the host table."""

    COLUMN: ClassVar[str]

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the column, shape (n_hosts,)."""
        weights: Weights = getattr(hosts, self.COLUMN).astype(float)
        return weights


class RAMWeigher(ColumnWeigher):
    """Weigh by ``free_ram_mb``, as the compute node reported it, less later claims."""

    COLUMN = "free_ram_mb"
    MULTIPLIER = "ram_weight_multiplier"
    minval = 0.0
    ROWWISE = True


class DiskWeigher(ColumnWeigher):
    """Weigh by ``free_disk_mb``."""

    COLUMN = "free_disk_mb"
    MULTIPLIER = "disk_weight_multiplier"
    minval = 0.0
    ROWWISE = True


class CPUWeigher(BaseHostWeigher):
    """Weigh by the free vCPUs, ``vcpus_total * cpu_allocation_ratio - vcpus_used``."""

    MULTIPLIER = "cpu_weight_multiplier"
    minval = 0.0
    ROWWISE = True

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return the free vCPUs, shape (n_hosts,)."""
        usable = hosts.vcpus_total * hosts.cpu_allocation_ratio
        weights: Weights = usable - hosts.vcpus_used
        return weights


class IoOpsWeigher(ColumnWeigher):
    """Weigh by ``num_io_ops``: builds, resizes, snapshots and such in progress.

    Hosts with few of them are preferred, as the multiplier is negative by default.
    """

    COLUMN = "num_io_ops"
    MULTIPLIER = "io_ops_weight_multiplier"
    minval = 0.0
    ROWWISE = True


class NumInstancesWeigher(ColumnWeigher):
    """Weigh by ``num_instances``."""

    COLUMN = "num_instances"
    MULTIPLIER = "num_instances_weight_multiplier"
    ROWWISE = True


class HypervisorVersionWeigher(ColumnWeigher):
    """Weigh by ``hypervisor_version``; a host that does not report one has 0."""

    COLUMN = "hypervisor_version"
    MULTIPLIER = "hypervisor_version_weight_multiplier"
    ROWWISE = True


class BuildFailureWeigher(ColumnWeigher):
    """Prefer hosts with few ``failed_builds``: the multiplier is negated."""

    COLUMN = "failed_builds"
    MULTIPLIER = "build_failure_weight_multiplier"
    ROWWISE = True

    def multipliers(self, hosts: HostBatch) -> Weights:
        """Return the negated multiplier of each host, shape (n_hosts,)."""
        return -super().multipliers(hosts)
