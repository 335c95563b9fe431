# SPDX-License-Identifier: Apache-2.0
"""Prefilters shape the query to Placement, and the record names one that refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import NetworkRequest, NetworkRequestList, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import ConfigurationError, NoValidHost
from moorage.scheduler.placement.adapter import Verb
from moorage.scheduler.service import Scheduler, build
from moorage.testing import PlacementFixture

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

MakeScheduler = Callable[..., Scheduler]
ROUTED = "query_placement_for_routed_network_aggregates"


@pytest.fixture
def make(tmp_path: Path) -> Iterator[MakeScheduler]:
    made: list[Scheduler] = []

    def make(*gates: str, network: Any = None) -> Scheduler:
        path = write_inventory(tmp_path, host("h1"), host("h2"))
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        for gate in gates:
            conf.set_override(gate, True, group="scheduler")
        made.append(build(conf, network=network))
        made[-1].start()
        return made[-1]

    yield make
    for scheduler in made:
        scheduler.stop()


def test_record_names_the_prefilter_that_refused(make: MakeScheduler) -> None:
    scheduler = make(
        "limit_tenants_to_placement_aggregate",
        "placement_aggregate_required_for_tenants",
    )
    with pytest.raises(NoValidHost, match="No hosts available for tenant"):
        scheduler.select_destinations(CONTEXT, request(), new_uuids())
    [record] = scheduler.decisions.newest()
    [step] = record.steps
    assert (step.name, step.n_in, step.n_out) == ("require_tenant_aggregate", 2, 0)
    assert step.reason == "Scheduling failed: No hosts available for tenant"
    assert (
        "Placement not queried: require_tenant_aggregate rejected the request, "
        "0 host(s)"
    ) in record.summary()


def test_record_has_placements_refusal(make: MakeScheduler) -> None:
    scheduler = make()
    spec_obj = request(extra_specs={"trait:CUSTOM_NO_SUCH": "required"})
    with pytest.raises(NoValidHost, match=r"No such trait.*CUSTOM_NO_SUCH"):
        scheduler.select_destinations(CONTEXT, spec_obj, new_uuids())
    [record] = scheduler.decisions.newest()
    assert "; Placement rejected the query, 0 host(s)" in record.summary()
    assert "CUSTOM_NO_SUCH" in record.reason


def test_routed_networks_without_neutron_stop_the_start(make: MakeScheduler) -> None:
    with pytest.raises(ConfigurationError, match=ROUTED):
        make(ROUTED)


class Neutron:
    """A Neutron with one routed network of one segment."""

    def __init__(self, segment: str) -> None:
        self.segment = segment

    def show_port(self, port: str) -> Mapping[str, Any]:
        raise AssertionError("a port was requested")

    def show_subnet(self, subnet: str) -> Mapping[str, Any]:
        raise AssertionError("a subnet was requested")

    def list_subnets(self, *, network_id: str) -> Mapping[str, Any]:
        return {"subnets": [{"segment_id": self.segment}]}


def test_hosts_are_in_the_segment_of_a_routed_network(make: MakeScheduler) -> None:
    segment, aggregate = new_uuids(2)
    scheduler = make(ROUTED, network=Neutron(segment))
    write = scheduler.placement.write
    write(Verb.POST, "/resource_providers", {"name": "segment", "uuid": segment})
    [node] = [h.uuid for h in scheduler.table.batch() if h.host == "h2"]
    for provider in (segment, node):
        url = f"/resource_providers/{provider}"
        body: Any = scheduler.placement.read(url)
        reported = {
            "aggregates": [aggregate],
            "resource_provider_generation": body["generation"],
        }
        assert write(Verb.PUT, f"{url}/aggregates", reported).is_done
    networks = NetworkRequestList(objects=[NetworkRequest(network_id="routed")])
    for _ in range(3):
        [[chosen, *others]] = scheduler.select_destinations(
            CONTEXT,
            request(requested_networks=networks),
            new_uuids(),
            return_objects=True,
            return_alternates=True,
        )
        assert isinstance(chosen, Selection)
        assert (chosen.service_host, others) == ("h2", [])


@pytest.mark.parametrize("is_disabled", [False, True])
def test_pinned_guest_may_use_hosts_without_pcpu_by_default(
    make: MakeScheduler, is_disabled: bool
) -> None:
    scheduler = make()
    scheduler.conf.set_override(
        "disable_fallback_pcpu_query", is_disabled, group="workarounds"
    )
    spec_obj = request(extra_specs={"hw:cpu_policy": "dedicated"})
    try:
        scheduler.select_destinations(CONTEXT, spec_obj, new_uuids())
        is_placed = True  # by the second query: these hosts report VCPU only
    except NoValidHost:
        is_placed = False
    assert is_placed is not is_disabled
    [record] = scheduler.decisions.newest()
    assert len(set(record.queries)) == (1 if is_disabled else 2)


def test_empty_placement_is_reported(tmp_path: Path) -> None:
    conf = moorage_conf.load([], config_files=[])
    path = write_inventory(tmp_path, host("h1"))
    conf.set_override("inventory_file", str(path), group="moorage")
    with PlacementFixture() as placement:
        scheduler = build(conf, placement=placement.embedded.adapter)
        scheduler.start()
        try:
            with pytest.raises(NoValidHost, match="no resource provider"):
                scheduler.select_destinations(CONTEXT, request(), new_uuids())
        finally:
            scheduler.stop()
