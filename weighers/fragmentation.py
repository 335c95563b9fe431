# SPDX-License-Identifier: Apache-2.0
"""How much room would the instance strand on the host, for the usual flavors?"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Self

import numpy as np
import numpy.typing as npt
from oslo_config import cfg

from ..objects import RequestSpec
from ..scheduler.errors import ConfigurationError, excerpt
from ..scheduler.hosts import HostBatch
from ..scheduler.hosts.numa import CellArrays
from ..scheduler.hosts.pci import PoolArrays
from ..scheduler.request import Request
from ..scheduler.request.pci import Items, PciRequest
from .base import BaseHostWeigher, Weights

_OPTION: Final = "[filter_scheduler] fragmentation_flavors"
_FORM: Final = re.compile(
    r"(?P<vcpus>\d+):(?P<memory_mb>\d+)"
    r"(?:/(?P<n_cells>\d+)(?P<pinned>p?))?"
    r"(?P<devices>(?:\+\d+x[0-9a-fA-F]{4}\.[0-9a-fA-F]{4})*)"
    r"=(?P<share>\d*\.?\d+)"
)
#: Vendor and product of devices.
Product = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class MixFlavor:
    """What one flavor of the mix needs, or a request.

    Attributes
    ----------
    n_cells : int
        NUMA cells, each with an equal part of CPUs and memory; 0: none are requested.
    is_pinned : bool
        Whether the CPUs of the cells are pinned.
    devices : tuple of ((vendor, product), int)
        How many PCI devices are requested of each product.
    """

    vcpus: int
    memory_mb: int
    n_cells: int = 0
    is_pinned: bool = False
    devices: tuple[tuple[Product, int], ...] = ()

    @classmethod
    def of(cls, request: Request) -> Self:
        """Read a request; devices without a vendor and a product are omitted."""
        flavor, guest = request.spec_obj.flavor, request.numa
        counts: dict[Product, int] = {}
        for pci_request in request.pci_requests:
            spec = dict(pci_request.specs[0]) if pci_request.specs else {}
            product = spec.get("vendor_id"), spec.get("product_id")
            if isinstance(product[0], str) and isinstance(product[1], str):
                key = product[0].lower(), product[1].lower()
                counts[key] = counts.get(key, 0) + pci_request.count
        return cls(
            flavor.vcpus,
            flavor.memory_mb,
            0 if guest is None else len(guest.cells),
            guest is not None and guest.is_dedicated,
            tuple(sorted(counts.items())),
        )

    def __str__(self) -> str:
        cells = f"/{self.n_cells}{'p' * self.is_pinned}" if self.n_cells else ""
        devices = "".join(
            f"+{count}x{vendor}.{product}" for (vendor, product), count in self.devices
        )
        return f"{self.vcpus}:{self.memory_mb}{cells}{devices}"


def _match(element: str) -> re.Match[str] | None:
    """Return the parts of an element of the option; None: it has another form."""
    match = _FORM.fullmatch(element.strip())
    if match is None or not float(match["share"]) or not int(match["vcpus"]):
        return None
    return match


def read_mix(elements: Sequence[str]) -> tuple[tuple[MixFlavor, float], ...]:
    """Return the flavors of the option and their shares, which sum up to 1.

    Raises
    ------
    ConfigurationError
        An element has another form.
    """
    mix = []
    for element in elements:
        match = _match(element)
        if match is None:
            raise ConfigurationError(
                f"{_OPTION}: {excerpt(element)} is no flavor with its share: write "
                "VCPUS:MEMORY_MB=SHARE, such as 2:4096=0.3, or with two NUMA cells of "
                "pinned CPUs and a PCI device 16:65536/2p+1x10de.20b0=0.05"
            )
        devices = []
        for text in match["devices"].split("+")[1:]:
            count, _, product = text.partition("x")
            vendor, _, product = product.lower().partition(".")
            devices.append(((vendor, product), int(count)))
        flavor = MixFlavor(
            int(match["vcpus"]),
            int(match["memory_mb"]),
            int(match["n_cells"] or 0),
            bool(match["pinned"]),
            tuple(sorted(devices)),
        )
        mix.append((flavor, float(match["share"])))
    total = sum(share for _, share in mix)
    return tuple((flavor, share / total) for flavor, share in mix)


@dataclasses.dataclass(slots=True)
class _Free:
    """What is free on n hosts.

    Attributes
    ----------
    amounts : list of ndarray of float64, shape (n,)
        CPUs, memory in MiB, and devices of each product.
    cpus, pcpus, memory_mb : ndarray of float64, shape (n, n_cells)
        CPUs for floating guests, CPUs for pinning, and memory of each NUMA cell.
    """

    amounts: list[Weights]
    cpus: Weights
    pcpus: Weights
    memory_mb: Weights

    def cells_for(self, flavor: MixFlavor) -> tuple[Weights, npt.NDArray[np.bool_]]:
        """Return the CPUs that cells have for a flavor, and which cells have enough."""
        cpus = self.pcpus if flavor.is_pinned else self.cpus
        enough = cpus >= flavor.vcpus / flavor.n_cells
        enough &= self.memory_mb >= flavor.memory_mb / flavor.n_cells
        return cpus, enough


class FragmentationWeigher(BaseHostWeigher):
    """Prefer hosts on which the instance leaves most room for the usual flavors.

    Room is stranded for a flavor on each host that has not enough of all that the
    flavor needs: its free CPUs, memory and devices, as far as the flavor needs them.
    The raw weight is how much less room is stranded on the host with the instance than
    without it, as the mean over the flavors of ``fragmentation_flavors``; CPUs, memory
    and devices are measured in what a request needs on average. Free memory that is too
    little for most flavors is used first, and the last host with room for a large
    flavor last. The rule is the steepest descent of FGD (Weng et al., USENIX ATC 2023).

    Flavors with NUMA cells, and requests with them, count the free CPUs and memory of
    each cell; it is assumed that a guest gets the cells with the fewest CPUs that are
    enough. Disks, and devices in Placement only, such as vGPUs, are not counted.
    """

    MULTIPLIER = "fragmentation_weight_multiplier"
    ROWWISE = True

    _request: MixFlavor | None = None

    def __init__(
        self, conf: cfg.ConfigOpts, *, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(conf, clock=clock)
        self._mix = read_mix(conf.filter_scheduler.fragmentation_flavors)
        # Without flavors the weigher is idle; a multiplier of a preset may stand.
        if self._multiplier and not self._mix and not self.origin:
            raise ConfigurationError(
                f"[filter_scheduler] {self.MULTIPLIER} is {self._multiplier:g}, but "
                f"fragmentation_flavors is empty: `moorage flavor-mix` prints it"
            )
        if self._mix:
            # Which flavors they were: records outlive the option's value.
            version = zlib.crc32(repr(self._mix).encode())
            origin = f"{len(self._mix)} flavors, version {version:08x}"
            self.origin = f"{self.origin}, {origin}" if self.origin else origin
        products = {product for flavor, _ in self._mix for product, _ in flavor.devices}
        self._products = sorted(products)
        self._needs = [(flavor, self._amounts(flavor)) for flavor, _ in self._mix]
        #: The mean need of the mix, by amount; of what no flavor needs, 1.
        self._means = [
            sum(
                share * needed[i]
                for (_, share), (_, needed) in zip(self._mix, self._needs, strict=True)
            )
            or 1.0
            for i in range(2 + len(self._products))
        ]

    def prepare(self, spec_obj: RequestSpec) -> Self:
        """Read what the request needs."""
        if not self._mix:
            return self
        prepared = copy.copy(self)
        request = MixFlavor.of(Request.of(spec_obj))
        prepared._request = request  # noqa: SLF001 - a copy of this weigher
        return prepared

    @property
    def is_idle(self) -> bool:
        """Whether there are no flavors for which room could be stranded."""
        return not self._mix

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Weights:
        """Return by how much less room is stranded with the instance, (n_hosts,)."""
        if not self._mix:
            return np.zeros(len(hosts))
        request = self._request or MixFlavor.of(Request.of(spec_obj))
        free = self._free(hosts)
        before = self._stranded(free)
        return before - self._stranded(self._after(free, request))

    def _amounts(self, flavor: MixFlavor) -> list[float]:
        """Return the CPUs, the memory, and the devices of each product of the mix."""
        devices = dict(flavor.devices)
        counts = (devices.get(product, 0) for product in self._products)
        return [float(flavor.vcpus), float(flavor.memory_mb), *map(float, counts)]

    def _free(self, hosts: HostBatch) -> _Free:
        used_mb = hosts.total_usable_ram_mb - hosts.free_ram_mb
        amounts = [
            hosts.vcpus_total * hosts.cpu_allocation_ratio - hosts.vcpus_used,
            hosts.total_usable_ram_mb * hosts.ram_allocation_ratio - used_mb,
            *self._free_devices(hosts),
        ]
        amounts = [np.maximum(amount, 0.0) for amount in amounts]
        if not any(flavor.n_cells for flavor, _ in self._mix):
            none = np.zeros((len(hosts), 0))
            return _Free(amounts, none, none, none)
        rows = hosts.value_arrays("numa_topology", CellArrays).rows()
        cells = rows.take(hosts.codes("numa_topology"))
        cpu_ratio = hosts.cpu_allocation_ratio[:, None]
        ram_ratio = hosts.ram_allocation_ratio[:, None]
        return _Free(
            amounts,
            cells["n_cpus"] * cpu_ratio - cells["cpu_usage"],
            cells["n_free_pcpus"].astype(float),
            cells["memory_mb"] * ram_ratio - cells["memory_usage"],
        )

    def _free_devices(self, hosts: HostBatch) -> Iterator[Weights]:
        """Yield how many devices of each product of the mix are free, (n_hosts,)."""
        if not self._products:
            return
        rows = hosts.value_arrays("pci_stats", PoolArrays).rows()
        pools = rows.take(hosts.codes("pci_stats"))
        for vendor, product in self._products:
            spec: Items = (("product_id", product), ("vendor_id", vendor))
            matches, _ = pools.match(PciRequest(1, (spec,)))
            yield (pools.count * matches).sum(axis=1).astype(float)

    def _stranded(self, free: _Free) -> Weights:
        """Return the stranded room of each host, in mean requests, (n_hosts,)."""
        units = [a / mean for a, mean in zip(free.amounts, self._means, strict=True)]
        stranded = np.zeros(len(free.amounts[0]))
        for (flavor, needed), (_, share) in zip(self._needs, self._mix, strict=True):
            fits = np.ones(len(stranded), bool)
            room = np.zeros(len(stranded))
            for amount, unit, need in zip(free.amounts, units, needed, strict=True):
                if need:
                    fits &= amount >= need
                    room += unit
            if flavor.n_cells:
                _, enough = free.cells_for(flavor)
                fits &= enough.sum(axis=1) >= flavor.n_cells
            stranded += share * np.where(fits, 0.0, room)
        return stranded

    def _after(self, free: _Free, request: MixFlavor) -> _Free:
        """Return what is free with the instance on each host."""
        amounts = [
            np.maximum(amount - need, 0.0)
            for amount, need in zip(free.amounts, self._amounts(request), strict=True)
        ]
        cells = (column.copy() for column in (free.cpus, free.pcpus, free.memory_mb))
        after = _Free(amounts, *cells)
        if not request.n_cells or not after.cpus.shape[1]:
            return after
        cpus, enough = after.cells_for(request)
        hosts = np.arange(len(cpus))
        for _ in range(request.n_cells):
            cell = np.where(enough, cpus, np.inf).argmin(axis=1)
            takes = enough[hosts, cell]
            cpus[hosts, cell] -= takes * (request.vcpus / request.n_cells)
            after.memory_mb[hosts, cell] -= takes * (
                request.memory_mb / request.n_cells
            )
            enough[hosts, cell] = False
        return after


def mix_of(requests: Sequence[tuple[Request, int]], n_flavors: int) -> list[str]:
    """Return the elements of ``fragmentation_flavors``, the most frequent first.

    Parameters
    ----------
    requests : sequence of (Request, int)
        Requests, and how many instances each was for.
    n_flavors : int
        The maximum number of flavors; rarer ones are left out, and those that the
        option cannot name, such as one without CPUs.
    """
    counts: Counter[MixFlavor] = Counter()
    for request, n_instances in requests:
        counts[MixFlavor.of(request)] += n_instances
    most = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    elements = (f"{flavor}={count}" for flavor, count in most)
    return [*itertools.islice(filter(_match, elements), n_flavors)]
