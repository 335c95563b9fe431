# SPDX-License-Identifier: Apache-2.0
"""Hosts are weighed down by their free PCI devices, up to 99 of them."""

from __future__ import annotations

import pytest

from moorage.scheduler.hosts.pci import HostPools
from moorage.weighers.pci import PCIWeigher

from ..conftest import aggregate, batch, hosts, options, spec


def free(*counts: int) -> HostPools:
    """One pool for each of these counts."""
    return HostPools.read(
        [
            {"vendor_id": "8086", "product_id": f"{i}", "count": count}
            for i, count in enumerate(counts)
        ]
    )


@pytest.mark.parametrize(
    ("pools", "raw"),
    [
        pytest.param(free(), 100, id="no pools"),
        pytest.param(free(0, 0), 100, id="used up"),
        pytest.param(free(2, 3), 95, id="of all pools"),
        pytest.param(free(98), 2, id="98"),
        pytest.param(free(99), 1, id="99"),
        pytest.param(free(60, 40), 1, id="100"),
        pytest.param(free(2000), 1, id="many"),
    ],
)
def test_free_devices_count_up_to_99(pools: HostPools, raw: float) -> None:
    rows = batch(*hosts("pci_stats", [pools, free(1)]))
    assert PCIWeigher(options()).weigh_all(rows, spec()).tolist() == [raw, 99]


def test_multiplier_is_the_option_unless_an_aggregate_has_its_own() -> None:
    mine = aggregate(1, "a", pci_weight_multiplier="3")
    rows = batch(*hosts("pci_stats", [free(1), free(1)]), aggregates=[mine])
    weigher = PCIWeigher(options(pci_weight_multiplier=2.0))
    assert weigher.multipliers(rows).tolist() == [3, 2]
