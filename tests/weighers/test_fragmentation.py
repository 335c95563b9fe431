# SPDX-License-Identifier: Apache-2.0
"""Hosts are weighed by the room that an instance strands there for usual flavors."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from moorage.objects import RequestSpec
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.hosts import HostTopology
from moorage.scheduler.hosts.pci import HostPools
from moorage.scheduler.request import Request
from moorage.testing import builders
from moorage.weighers.fragmentation import (
    FragmentationWeigher,
    MixFlavor,
    mix_of,
    read_mix,
)

from ..conftest import batch, host, options, spec
from ..fixtures.property_tests import examples

GPU = "10de", "20b0"


def weigher(*flavors: str) -> FragmentationWeigher:
    return FragmentationWeigher(
        options(
            fragmentation_flavors=list(flavors), fragmentation_weight_multiplier=1.0
        )
    )


def request(vcpus: int, memory_mb: int, cells: int = 0, gpus: int = 0) -> RequestSpec:
    guest = None
    if cells:
        each = vcpus // cells
        guest = builders.guest_topology(
            *(
                builders.guest_cell(
                    i,
                    pcpuset=set(range(i * each, (i + 1) * each)),
                    memory=memory_mb // cells,
                )
                for i in range(cells)
            )
        )
    wanted = builders.pci_request(
        gpus, spec=[{"vendor_id": "10de", "product_id": "20b0"}]
    )
    return spec(
        vcpus=vcpus,
        memory_mb=memory_mb,
        numa_topology=guest,
        pci_requests=builders.pci_requests(wanted) if gpus else None,
    )


def a_host(
    name: str,
    vcpus_used: int,
    used_mb: int,
    pinned: tuple[int, int],
    gpus: int,
    has_cells: bool = True,
) -> Any:
    """A host of 8 CPUs and 16 GiB, in two cells, with GPUs."""
    cells = [
        builders.numa_cell(
            i, memory=8192, memory_usage=used_mb // 2,
            pinned_cpus=set(range(4 * i, 4 * i + n)), cpu_usage=vcpus_used // 2,
        )
        for i, n in enumerate(pinned)
    ]  # fmt: skip
    pool = builders.pci_pool(gpus, vendor_id="10de", product_id="20b0")
    return host(
        host=name,
        vcpus_total=8,
        vcpus_used=vcpus_used,
        cpu_allocation_ratio=1.0,
        ram_allocation_ratio=1.0,
        total_usable_ram_mb=16384,
        free_ram_mb=16384 - used_mb,
        numa_topology=HostTopology.read(builders.numa_topology(*cells))
        if has_cells
        else None,
        pci_stats=HostPools.read(builders.pci_pools(pool)),
    )


def plain_weight(
    mix: tuple[tuple[MixFlavor, float], ...],
    wanted: MixFlavor,
    one: tuple[int, int, tuple[int, int], int, bool],
) -> float:
    """The formula for one host, without arrays."""
    vcpus_used, used_mb, pinned, gpus, has_cells = one
    free = {"cpu": 8.0 - vcpus_used, "mb": 16384.0 - used_mb, "gpu": float(gpus)}
    cells = [
        {
            "pinned": 4.0 - n,
            "floating": 4.0 - vcpus_used // 2,
            "mb": 8192.0 - used_mb // 2,
        }
        for n in (pinned if has_cells else ())
    ]

    def needs(of: MixFlavor) -> dict[str, float]:
        return {
            "cpu": of.vcpus,
            "mb": of.memory_mb,
            "gpu": dict(of.devices).get(GPU, 0),
        }

    mean = {
        name: sum(share * needs(of)[name] for of, share in mix) or 1.0 for name in free
    }

    def fitting(of: MixFlavor) -> list[dict[str, float]]:
        kind = "pinned" if of.is_pinned else "floating"
        return [
            cell
            for cell in cells
            if cell[kind] >= of.vcpus / of.n_cells
            and cell["mb"] >= of.memory_mb / of.n_cells
        ]

    def stranded() -> float:
        total = 0.0
        for of, share in mix:
            need = {name: amount for name, amount in needs(of).items() if amount}
            fits = all(free[name] >= amount for name, amount in need.items())
            if of.n_cells:
                fits = fits and len(fitting(of)) >= of.n_cells
            if not fits:
                total += share * sum(free[name] / mean[name] for name in need)
        return total

    before = stranded()
    if wanted.n_cells:
        kind = "pinned" if wanted.is_pinned else "floating"
        chosen = sorted(fitting(wanted), key=lambda cell: cell[kind])
        for cell in chosen[: wanted.n_cells]:
            cell[kind] -= wanted.vcpus / wanted.n_cells
            cell["mb"] -= wanted.memory_mb / wanted.n_cells
    for name, amount in needs(wanted).items():
        free[name] = max(0.0, free[name] - amount)
    return before - stranded()


FLAVORS = st.sampled_from(
    [
        "1:512=8", "2:8192=1", "8:16384=1", "4:4096/2p=3", "4:8192/1=2",
        "2:2048+1x10de.20B0=1",
    ]
)  # fmt: skip
ONE = st.tuples(
    st.integers(0, 8),
    st.sampled_from([0, 2048, 8192, 12288, 16384]),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.integers(0, 3),
    st.booleans(),
)


@examples(1)
@given(
    flavors=st.lists(FLAVORS, min_size=1, max_size=4, unique=True),
    hosts=st.lists(ONE, min_size=1, max_size=6),
    wanted=st.sampled_from([(1, 512, 0, 0), (4, 4096, 2, 0), (2, 2048, 1, 1)]),
)
def test_weights_are_those_of_the_formula_for_each_host(
    flavors: list[str], hosts: list[Any], wanted: tuple[int, int, int, int]
) -> None:
    rows = batch(*(a_host(f"h{i}", *one) for i, one in enumerate(hosts)))
    spec_obj = request(*wanted)
    weights = weigher(*flavors).prepare(spec_obj).weigh_all(rows, spec_obj)
    needed = MixFlavor.of(Request.of(spec_obj))
    expected = [plain_weight(read_mix(flavors), needed, one) for one in hosts]
    assert weights.tolist() == pytest.approx(expected, abs=1e-9)


def test_room_for_the_large_flavor_is_kept() -> None:
    empty, started = a_host("empty", 0, 0, (0, 0), 0), a_host("b", 1, 512, (1, 0), 0)
    spec_obj = request(1, 512)
    raw = weigher("1:512=9", "8:16384=1").weigh_all(batch(empty, started), spec_obj)
    assert raw[0] < 0 < raw[1]


def test_last_device_of_a_host_is_kept_with_its_cpus() -> None:
    hosts = a_host("gpus", 0, 0, (0, 0), 1), a_host("none", 0, 0, (0, 0), 0)
    spec_obj = request(7, 512)
    raw = weigher("1:512=1", "2:512+1x10de.20b0=1").weigh_all(batch(*hosts), spec_obj)
    assert raw[0] < raw[1]


@pytest.mark.parametrize(
    "element",
    ["2:4096", "2:4096=0", "0:4096=1", "2=1", "2:4096+1x10de=1", "m1.small=1", "2:x=1"],
)
def test_element_of_another_form_stops_the_start(element: str) -> None:
    with pytest.raises(ConfigurationError, match="no flavor with its share"):
        weigher("1:512=1", element)


def test_multiplier_without_flavors_stops_the_start() -> None:
    with pytest.raises(ConfigurationError, match="moorage flavor-mix"):
        weigher()


def test_origin_names_the_version_of_the_flavors() -> None:
    one, same, other = (weigher(f"1:512={n}", "2:4096=1") for n in (3, 3, 4))
    assert one.origin == same.origin != other.origin
    assert one.origin.startswith("2 flavors, version ")


def test_without_flavors_the_weigher_is_idle_and_off() -> None:
    plain = FragmentationWeigher(options())
    rows = batch(a_host("h", 0, 0, (0, 0), 0))
    assert plain.is_idle
    assert plain.is_off(rows)
    assert plain.prepare(request(1, 512)).weigh_all(rows, request(1, 512)).tolist() == [
        0
    ]


def test_printed_mix_is_what_the_option_reads() -> None:
    requests = [(request(4, 4096, 2), 3), (request(2, 512, gpus=1), 5)]
    read = [(Request.of(spec_obj), n) for spec_obj, n in requests]
    elements = mix_of(read, 9)
    assert elements == ["2:512+1x10de.20b0=5", "4:4096/2p=3"]
    assert [flavor for flavor, _ in read_mix(elements)] == [
        MixFlavor(2, 512, devices=((GPU, 1),)),
        MixFlavor(4, 4096, 2, is_pinned=True),
    ]
    assert mix_of(read, 1) == elements[:1]
    unnamed = Request.of(request(0, 512))
    assert mix_of([(unnamed, 9), *read], 1) == elements[:1]
