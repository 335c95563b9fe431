# SPDX-License-Identifier: Apache-2.0
"""The cells of a flavor's guest, or why nova's API would refuse them."""

from __future__ import annotations

import pytest

from moorage.scheduler.errors import InvalidRequest
from moorage.scheduler.request.guest_cells import cells_of_flavor

from ...fixtures.clouds import request

_TWO = {"hw:numa_nodes": "2", "hw:numa_cpus.0": "0", "hw:numa_mem.0": "512"}


@pytest.mark.parametrize("amount", ["abc", "\u00b2", "-1", "0", "9" * 5000])
def test_only_a_positive_amount_of_pcpus_pins(amount: str) -> None:
    flavor = request(extra_specs={"resources:PCPU": amount}).flavor
    found = cells_of_flavor(flavor)
    assert (found is not None) == amount.startswith("9")


@pytest.mark.parametrize(
    ("specs", "error"),
    [
        ({"hw:numa_cpus.1": "1", "hw:numa_mem.1": "-512"}, "hw:numa_mem must be"),
        ({"hw:numa_cpus.1": "1", "hw:numa_mem.1": "1024"}, "hw:numa_mem must be"),
        ({"hw:numa_cpus.1": "0", "hw:numa_mem.1": "512"}, "hw:numa_cpus must have"),
        ({"hw:numa_cpus.1": "1-2", "hw:numa_mem.1": "512"}, "hw:numa_cpus must have"),
        ({"hw:numa_nodes": "9" * 5000}, "hw:numa_nodes is"),
    ],
)
def test_cells_are_just_the_flavor(specs: dict[str, str], error: str) -> None:
    flavor = request(vcpus=2, extra_specs={**_TWO, **specs}).flavor
    with pytest.raises(InvalidRequest, match=error):
        cells_of_flavor(flavor)


def test_cells_may_differ() -> None:
    more = {"hw:numa_cpus.0": "0,2", "hw:numa_cpus.1": "1", "hw:numa_mem.1": "512"}
    found = cells_of_flavor(request(vcpus=3, extra_specs={**_TWO, **more}).flavor)
    assert found is not None
    assert [(each.cpuset, each.memory) for each in found.cells] == [
        ({0, 2}, 512),
        ({1}, 512),
    ]


def test_more_cpus_than_any_host_has_are_refused() -> None:
    specs = {"hw:cpu_policy": "dedicated"}
    flavor = request(vcpus=2**31 - 1, extra_specs=specs).flavor
    with pytest.raises(InvalidRequest, match="at most 65536"):
        cells_of_flavor(flavor)
