# SPDX-License-Identifier: Apache-2.0
"""Virtual machines of an Azure packing trace, as requests to a cloud."""

from __future__ import annotations

import csv
import itertools
import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Self

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec

# The trace counts hundredths of a core, and RAM in quarters of a GiB: its most frequent
# sizes, 200 with 28 and 100 with 14, are Azure's D2 v2 (2 cores, 7 GiB) and D1 v2. In
# eighths, 16 cores with 128 would be a size that Azure does not have; it is F16.
_CORE = 100
_RAM_MB = 256
# The trace has no disks and no zones; here each tenant uses one zone.
_ROOT_GB = 20
_ZONES = ("zone1", "zone2", "zone3")
_NAMESPACE = uuid.UUID("6d6f6f72-6167-5000-8000-747261636531")


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """One line of the trace; times are in days since its start."""

    vm_id: str
    tenant: str
    vcpus: int
    memory_mb: int
    priority: str
    started_at: float
    ended_at: float

    @classmethod
    def of(cls, row: Mapping[str, str]) -> Self:
        """Parse a line. Fractions of a core are rounded up to vCPUs."""
        return cls(
            vm_id=row["vmId"],
            tenant=row["tenantId"],
            vcpus=math.ceil(float(row["cores"]) / _CORE),
            memory_mb=int(float(row["ram"]) * _RAM_MB),
            priority=row["vmTypeId"],
            started_at=float(row["starttime"]),
            ended_at=float(row["endtime"] or "inf"),
        )

    @property
    def uuid(self) -> str:
        """The UUID of the instance, the same for a line in each run."""
        return str(uuid.uuid5(_NAMESPACE, self.vm_id))

    def context(self) -> dict[str, str]:
        """Return the request context; the tenant is the project."""
        project = f"tenant-{self.tenant}"
        return {"request_id": f"req-{self.uuid}", "project_id": project}

    def spec(self) -> RequestSpec:
        """Return the request spec that a conductor would send."""
        name = f"{self.vcpus}x{self.memory_mb}"
        flavor = Flavor(
            name=name,
            flavorid=name,
            vcpus=self.vcpus,
            memory_mb=self.memory_mb,
            root_gb=_ROOT_GB,
            ephemeral_gb=0,
            swap=0,
            extra_specs={},
        )
        return RequestSpec(
            availability_zone=_ZONES[int(self.tenant) % len(_ZONES)],
            flavor=flavor,
            image=ImageMeta(properties=ImageMetaProps(hw_architecture="x86_64")),
            instance_uuid=self.uuid,
            num_instances=1,
            project_id=f"tenant-{self.tenant}",
            scheduler_hints={"priority": [self.priority]},
            user_id="demo",
        )


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """The creation or deletion of a virtual machine, `at` days."""

    at: float
    is_creation: bool
    vm: VirtualMachine


def read_vms(path: Path, n_vms: int) -> list[VirtualMachine]:
    """Return the first virtual machines of a file that is sorted by start."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = itertools.islice(csv.DictReader(file), n_vms)
        return [VirtualMachine.of(row) for row in rows]


def events(vms: Sequence[VirtualMachine]) -> list[TraceEvent]:
    """Return creations, and deletions up to the last creation, in time order."""
    return sorted(_events(vms), key=attrgetter("at"))


def _events(vms: Sequence[VirtualMachine]) -> Iterator[TraceEvent]:
    last = max(vm.started_at for vm in vms)
    for vm in vms:
        yield TraceEvent(vm.started_at, True, vm)
        if vm.ended_at <= last:
            yield TraceEvent(vm.ended_at, False, vm)
