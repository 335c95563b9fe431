# SPDX-License-Identifier: Apache-2.0
"""A host passes if its pools have the devices, by the candidate's providers if any."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.pci_passthrough import PciPassthroughFilter
from moorage.objects import RequestSpec
from moorage.scheduler.hosts import HostBatch, HostPools, HostRecord
from moorage.testing.builders import pci_pool, pci_pools, pci_request, pci_requests

from ..conftest import batch, host, instance_uuid, node_uuid, spec, table
from ..fixtures.clouds import offer

REQUEST = instance_uuid("PCI request")
VF = [{"vendor_id": "8086", "product_id": "1520", "dev_type": "type-VF"}]


def with_pools(name: str, *pools: Any) -> HostRecord:
    return host(host=name, pci_stats=HostPools.read(pci_pools(*pools)))


def passing(
    conf: cfg.ConfigOpts, hosts: HostBatch, spec_obj: RequestSpec
) -> list[bool]:
    """Return the column form's result, after comparing it with the per-host form."""
    filter_ = PciPassthroughFilter(conf).prepare(spec_obj)
    answer: list[bool] = filter_.passing(hosts, spec_obj).tolist()
    assert [filter_.host_passes(each, spec_obj) for each in hosts] == answer
    return answer


def test_request_without_devices_fits_anywhere(conf: cfg.ConfigOpts) -> None:
    hosts = batch(host(host="a"), with_pools("b", pci_pool()))
    assert passing(conf, hosts, spec()) == [True, True]
    assert passing(conf, hosts, spec(pci_requests=pci_requests())) == [True, True]


def test_port_needs_free_devices_that_match(conf: cfg.ConfigOpts) -> None:
    hosts = batch(
        host(host="a"),
        with_pools("b", pci_pool(1)),
        with_pools("c", pci_pool(1), pci_pool(1, numa_node=1)),
        with_pools("d", pci_pool(5, product_id="ffff")),
    )
    spec_obj = spec(pci_requests=pci_requests(pci_request(2)))
    assert passing(conf, hosts, spec_obj) == [False, False, True, False]


def test_requests_do_not_share_devices(conf: cfg.ConfigOpts) -> None:
    hosts = batch(with_pools("a", pci_pool(2)), with_pools("b", pci_pool(3)))
    spec_obj = spec(
        pci_requests=pci_requests(
            pci_request(1, request_id=instance_uuid(1)),
            pci_request(2, request_id=instance_uuid(2)),
        )
    )
    assert passing(conf, hosts, spec_obj) == [False, True]


def _offered(records: list[HostRecord], *mapped: tuple[str, str]) -> HostBatch:
    """Hosts with candidates: a host's name and the provider of its device each."""
    requests = [
        {
            "allocations": {node_uuid(name): {"resources": {"VCPU": 1}}},
            "mappings": {"": [node_uuid(name)], f"{REQUEST}-0": [node_uuid(provider)]},
        }
        for name, provider in mapped
    ]
    summaries = {
        node_uuid(name): {"resources": {}, "root_provider_uuid": node_uuid(name)}
        for name, _ in mapped
    }
    body = {"allocation_requests": requests, "provider_summaries": summaries}
    return table(*records).batch_of_offer(offer(body))


def test_each_candidate_is_evaluated_for_its_own_provider(conf: cfg.ConfigOpts) -> None:
    records = [
        with_pools(
            "a",
            pci_pool(0, rp_uuid=node_uuid("pf0"), dev_type="type-VF"),
            pci_pool(1, rp_uuid=node_uuid("pf1"), dev_type="type-VF", extra="x"),
            pci_pool(9, dev_type="type-VF"),
        ),
        with_pools("b", pci_pool(9, dev_type="type-VF")),
    ]
    hosts = _offered(records, ("a", "pf0"), ("a", "pf1"), ("a", "gone"), ("b", "pf2"))
    spec_obj = spec(
        pci_requests=pci_requests(
            pci_request(1, alias_name="vf", request_id=REQUEST, spec=VF)
        )
    )
    filter_ = PciPassthroughFilter(conf).prepare(spec_obj)
    mask = filter_.passing_candidates(hosts, spec_obj)
    assert mask is not None
    assert hosts.candidates.numbers[mask].tolist() == [1]
    assert passing(conf, hosts, spec_obj) == [True, False]


def test_candidates_of_ports_are_all_alike(conf: cfg.ConfigOpts) -> None:
    hosts = _offered([with_pools("a", pci_pool())], ("a", "pf0"))
    spec_obj = spec(pci_requests=pci_requests(pci_request(request_id=REQUEST)))
    filter_ = PciPassthroughFilter(conf).prepare(spec_obj)
    assert filter_.passing_candidates(hosts, spec_obj) is None
    assert passing(conf, hosts, spec_obj) == [True]


def test_rejection_names_required_and_available_devices(conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(pci_requests=pci_requests(pci_request(2)))
    filter_ = PciPassthroughFilter(conf).prepare(spec_obj)
    [state] = batch(with_pools("a", pci_pool(1, physical_network="net")))
    rejection = filter_.explain_rejection(state, spec_obj)
    assert rejection is not None
    assert "2 PCI devices" in str(rejection.required)
    assert "physical_network net" in str(rejection.available)


def test_repeated_request_for_devices_is_evaluated_once(
    conf: cfg.ConfigOpts, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated: list[str] = []
    columns = HostBatch.value_arrays

    def watched(self: HostBatch, name: str, make: Any) -> Any:
        evaluated.append(name)
        return columns(self, name, make)

    monkeypatch.setattr(HostBatch, "value_arrays", watched)
    hosts = batch(with_pools("a", pci_pool(1)))
    for number in range(3):
        request = pci_request(1, request_id=instance_uuid(number))
        spec_obj = spec(pci_requests=pci_requests(request))
        filter_ = PciPassthroughFilter(conf).prepare(spec_obj)
        assert filter_.passing(hosts, spec_obj).tolist() == [True]
    assert evaluated == ["pci_stats"]
