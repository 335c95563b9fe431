# SPDX-License-Identifier: Apache-2.0
"""A cloud in use: many instances at once, then a slow stream of requests."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import oslo_messaging

from moorage.objects import Flavor, ImageMeta, ImageMetaProps, RequestSpec
from moorage.scheduler.errors import NoValidHost

from ..conductor import BuildFailed, Conductor, Context

#: The most instances of one of the requests that fill the cloud.
_N_INSTANCES: Final = 24
#: One of so many requests fits no host.
_ONE_OF: Final = 9
_ZONES: Final = ("zone1", "zone1", "zone1", "zone2", "zone2", "zone3")
_TENANTS: Final = tuple(f"tenant-{number}" for number in range(1, 9))


@dataclass(frozen=True, slots=True)
class DemoFlavor:
    """A flavor of the demo, and how often it is requested."""

    name: str
    vcpus: int
    memory_gib: int
    root_gb: int
    frequency: int

    def build(self, **extra_specs: str) -> Flavor:
        """Return the flavor as nova sends it."""
        flavor = Flavor(
            name=self.name,
            flavorid=self.name,
            vcpus=self.vcpus,
            memory_mb=self.memory_gib * 1024,
            root_gb=self.root_gb,
            ephemeral_gb=0,
            swap=0,
        )
        flavor.extra_specs = dict(extra_specs)
        return flavor


FLAVORS: Final = (
    DemoFlavor("general.small", 2, 4, 20, 8),
    DemoFlavor("general.large", 8, 32, 80, 6),
    DemoFlavor("compute.xlarge", 16, 32, 160, 3),
    DemoFlavor("memory.xlarge", 8, 96, 200, 2),
)


class RequestStream:
    """Creates and deletes instances of several tenants through a conductor.

    Parameters
    ----------
    rng : random.Random
        Chooses flavors, zones, tenants and what is deleted.
    report : callable
        Called with a line on a request that was not answered.
    """

    def __init__(
        self, conductor: Conductor, rng: random.Random, report: Callable[[str], None]
    ) -> None:
        self._conductor = conductor
        self._rng = rng
        self._report = report
        self._number = 0

    def fill(self, n_requests: int) -> Iterator[tuple[int, int]]:
        """Create many instances; yield (requests done, all of them) after each."""
        for number in range(n_requests):
            n_instances = self._rng.randint(_N_INSTANCES // 2, _N_INSTANCES)
            self._create(self._spec(self._flavor().build(), n_instances))
            yield number + 1, n_requests

    def step(self) -> None:
        """Send one request: a creation, a deletion, or one that fits no host."""
        if self._rng.random() < 1 / _ONE_OF:
            self._create(self._unplaceable())
        elif self._rng.random() < 1 / 3 and self._conductor.servers:
            deleted = self._rng.choice(sorted(self._conductor.servers))
            self._conductor.delete(self._context("demo"), deleted)
        else:
            self._create(self._spec(self._flavor().build(), self._rng.randint(1, 3)))

    def _flavor(self) -> DemoFlavor:
        weights = [flavor.frequency for flavor in FLAVORS]
        return self._rng.choices(FLAVORS, weights)[0]

    def _unplaceable(self) -> RequestSpec:
        large = DemoFlavor("memory.huge", 64, 3072, 200, 0)
        small = replace(FLAVORS[0], name="arm.small")
        amx = replace(FLAVORS[1], name="amx.large")
        arm = small.build(**{"capabilities:hypervisor_version": ">= 8000000"})
        with_amx = amx.build(**{"trait:HW_CPU_X86_AMX_INT8": "required"})
        choices = (
            self._spec(large.build(), 1),
            self._spec(arm, 1, "aarch64"),
            self._spec(with_amx, 1),
        )
        return self._rng.choice(choices)

    def _spec(
        self, flavor: Flavor, n_instances: int, architecture: str = "x86_64"
    ) -> RequestSpec:
        return RequestSpec(
            availability_zone=self._rng.choice(_ZONES),
            flavor=flavor,
            image=ImageMeta(properties=ImageMetaProps(hw_architecture=architecture)),
            num_instances=n_instances,
            project_id=self._rng.choice(_TENANTS),
            user_id="demo",
        )

    def _context(self, project_id: str) -> Context:
        made = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        return {"request_id": f"req-{made}", "project_id": project_id}

    def _create(self, spec: RequestSpec) -> None:
        uuids = [
            str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
            for _ in range(spec.num_instances)
        ]
        try:
            self._conductor.create(self._context(spec.project_id), spec, uuids)
        except (NoValidHost, BuildFailed):
            return
        except oslo_messaging.MessagingTimeout:
            self._report(
                "A request was not answered in time: the machine may be busy. The demo "
                "goes on."
            )
