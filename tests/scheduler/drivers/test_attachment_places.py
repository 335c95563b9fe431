# SPDX-License-Identifier: Apache-2.0
"""Instances near to volumes and ports, as Cinder and Neutron locate these."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from moorage.objects import NetworkRequest, NetworkRequestList
from moorage.scheduler.errors import InvalidRequest

from ...conftest import instance_uuid
from ...fixtures.attached_services import ServiceFault
from ...fixtures.attaching_clouds import (
    DEFAULT,
    SEGMENT,
    AttachingCloud,
    attaching_cloud,
    attaching_spec,
)
from ...fixtures.clouds import CONTEXT, new_uuids

NETWORK, SUBNET = map(instance_uuid, ("network", "subnet"))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AttachingCloud]:
    with attaching_cloud(tmp_path_factory.mktemp("cloud")) as cloud:
        yield cloud


@pytest.fixture
def cloud(shared: AttachingCloud) -> AttachingCloud:
    """The cloud of all tests: they claim nothing, and cause no outage."""
    shared.renew()
    return shared


# -- hints -----------------------------------------------------------------------------


def test_nothing_is_asked_for_a_request_without_hints(cloud: AttachingCloud) -> None:
    assert cloud.first() == DEFAULT
    assert cloud.asked == []
    assert cloud.noted == []


@pytest.mark.parametrize("backend", ["ceph@ssd", "ceph@hdd#pool", "b@lvm"])
def test_volume_draws_instances_to_its_rack(
    cloud: AttachingCloud, backend: str
) -> None:
    cloud.cinder.volume(cloud.volume, backend)
    assert cloud.first({"near_volume": cloud.volume}) in {"a", "b"}


def test_volume_on_a_compute_host_draws_instances_to_it(cloud: AttachingCloud) -> None:
    cloud.cinder.volume(cloud.volume, "c@lvm")
    assert cloud.select({"near_volume": cloud.volume})[:2] == ["c", "d"]
    [note] = cloud.noted
    assert str(note) == f"near_volume {cloud.volume}: host c"


def test_row_of_a_backend_is_near_enough(cloud: AttachingCloud) -> None:
    cloud.cinder.volume(cloud.volume, "far@array")
    assert cloud.first({"near_volume": cloud.volume}) in set("abcd")


@pytest.mark.parametrize(
    "port",
    [
        {"binding:host_id": "d"},
        {"network_id": NETWORK},
        {"fixed_ips": [{"subnet_id": SUBNET, "ip_address": "10.0.0.5"}]},
    ],
    ids=["bound", "physical network", "segment"],
)
def test_port_draws_instances_to_itsplace(
    cloud: AttachingCloud, port: dict[str, Any]
) -> None:
    cloud.neutron.port(cloud.port, **port)
    cloud.neutron.network(NETWORK)
    cloud.neutron.add(f"/v2.0/subnets/{SUBNET}", "subnet", segment_id=SEGMENT)
    cloud.neutron.add(f"/v2.0/segments/{SEGMENT}", "segment", physical_network=None)
    assert cloud.first({"near_port": cloud.port}) in {"c", "d"}


@pytest.mark.parametrize(
    ("hint", "backend", "passing"),
    [
        ("same_rack_volume", "ceph@ssd", "ab"),
        ("same_rack_volume", "c@lvm", "cd"),
        ("same_row_volume", "ceph@ssd", "abcd"),
        ("same_row_volume", "far@array", "abcd"),
    ],
)
def test_required_place_is_kept(
    cloud: AttachingCloud, hint: str, backend: str, passing: str
) -> None:
    cloud.cinder.volume(cloud.volume, backend)
    hosts = cloud.select({hint: cloud.volume})
    assert set(hosts) <= set(passing)
    assert len(hosts) == min(3, len(passing))


def test_required_place_of_a_port(cloud: AttachingCloud) -> None:
    cloud.neutron.port(cloud.port, network_id=NETWORK)
    cloud.neutron.network(NETWORK)
    assert set(cloud.select({"same_rack_port": cloud.port})) == {"c", "d"}


def test_one_of_several_required_volumes_is_enough(cloud: AttachingCloud) -> None:
    volumes = [
        cloud.cinder.volume(new_uuids()[0], backend) for backend in ("ceph@ssd", "c@x")
    ]
    assert set(cloud.select({"same_rack_volume": volumes})) <= set("abcd")


def test_backend_of_a_row_is_in_no_rack(cloud: AttachingCloud) -> None:
    cloud.cinder.volume(cloud.volume, "far@array")
    reason = cloud.refused({"same_rack_volume": cloud.volume})
    assert reason.endswith(f"volume {cloud.volume} is in no known place")
    assert cloud.detail == "row left is in no rack that is known"


# -- failures --------------------------------------------------------------------------

FAULTS = [
    (ServiceFault.FORBIDDEN, "answered 403"),
    (ServiceFault.BROKEN, "answered 500"),
    (ServiceFault.GARBAGE, "answered no JSON"),
    (ServiceFault.HUGE, "more than 262144 bytes"),
]


@pytest.mark.parametrize(("fault", "detail"), FAULTS, ids=str)
def test_preference_is_dropped_if_a_service_fails(
    cloud: AttachingCloud, fault: ServiceFault, detail: str
) -> None:
    cloud.cinder.volume(cloud.volume, "ceph@ssd")
    cloud.cinder.fault = fault
    assert cloud.first({"near_volume": cloud.volume}) == DEFAULT
    assert detail in cloud.detail
    assert f"; near_volume {cloud.volume} dropped: " in cloud.record.summary()


@pytest.mark.parametrize(("fault", "detail"), FAULTS, ids=str)
def test_requirement_fails_if_a_service_fails(
    cloud: AttachingCloud, fault: ServiceFault, detail: str
) -> None:
    cloud.neutron.port(cloud.port, **{"binding:host_id": "d"})
    cloud.neutron.fault = fault
    reason = cloud.refused({"same_rack_port": cloud.port})
    where = f"same_rack_port: port {cloud.port}"
    assert reason == f"Scheduling failed: {where} cannot be looked up now"
    assert detail in cloud.detail
    because = "attachments rejected the request"
    assert cloud.record.no_answer == f"Placement not queried: {because}"


def test_volume_of_another_project_is_like_none(cloud: AttachingCloud) -> None:
    others = {"os-vol-tenant-attr:tenant_id": "another"}
    cloud.cinder.volume(cloud.volume, "ceph@ssd", **others)
    none = new_uuids()[0]
    theirs = cloud.refused({"same_rack_volume": cloud.volume})
    assert cloud.detail == "volume of project another"
    missing = cloud.refused({"same_rack_volume": none})
    assert theirs.replace(cloud.volume, none) == missing
    assert missing.endswith(f"volume {none} is not known in the project")
    assert cloud.first({"near_volume": cloud.volume}) == DEFAULT


def test_port_of_another_project_is_like_none(cloud: AttachingCloud) -> None:
    cloud.neutron.port(cloud.port, **{"binding:host_id": "d", "project_id": "another"})
    assert cloud.first({"near_port": cloud.port}) == DEFAULT
    assert cloud.refused({"same_rack_port": cloud.port}).endswith(
        f"port {cloud.port} is not known in the project"
    )


@pytest.mark.parametrize(
    ("backend", "detail"),
    [
        ("other@x", "no place is mapped to moorage:volume_backend other@x or "
         "moorage:volume_backend other or host other"),
        (None, "it has no host"),
    ],
)  # fmt: skip
def test_volume_that_is_nowhere_names_what_could_be_mapped(
    cloud: AttachingCloud, backend: str | None, detail: str
) -> None:
    cloud.cinder.volume(cloud.volume, backend)
    assert cloud.first({"near_volume": cloud.volume}) == DEFAULT
    assert cloud.detail == detail


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        ("near_volume", "../ports"),
        ("same_rack_volume", "x"),
        ("near_port", "0c6df2a5-5a3c-4ba3-a4b5-8a9c2f1f1a0e/x"),
        ("same_row_port", "9"),
    ],
)
def test_hint_must_be_a_uuid(cloud: AttachingCloud, hint: str, value: str) -> None:
    with pytest.raises(InvalidRequest, match=f"scheduler_hints: {hint} is"):
        cloud.select({hint: value})
    assert cloud.asked == []


def test_forced_host_needs_noplace(cloud: AttachingCloud) -> None:
    assert cloud.first({"same_rack_volume": cloud.volume}, force_hosts=["e"]) == "e"
    assert cloud.asked == []


# -- without a hint --------------------------------------------------------------------


def _networks(*ports: str) -> NetworkRequestList:
    return NetworkRequestList(objects=[NetworkRequest(port_id=p) for p in ports])


def test_requested_ports_draw_instances_to_their_network(cloud: AttachingCloud) -> None:
    cloud.neutron.port(cloud.port, network_id=NETWORK)
    cloud.neutron.network(NETWORK)
    assert cloud.first(requested_networks=_networks(cloud.port)) in {"c", "d"}
    [note] = cloud.noted
    assert (note.hint, note.places) == ("ports", (("rack", "r2"),))


def test_host_of_the_own_port_does_not_count(cloud: AttachingCloud) -> None:
    cloud.neutron.port(cloud.port, **{"binding:host_id": "a"})
    assert cloud.first(requested_networks=_networks(cloud.port)) == DEFAULT


def test_boot_volume_draws_its_instance(cloud: AttachingCloud) -> None:
    cloud.cinder.volume(cloud.volume, "ceph@ssd")
    [instance] = new_uuids()
    cloud.source.booted = {instance: cloud.volume}
    assert cloud.first(is_bfv=True, instance_uuid=instance) in {"a", "b"}
    [note] = cloud.noted
    assert (note.hint, note.uuid) == ("boot_volume", cloud.volume)


def test_volume_that_does_not_exist_yet_draws_nothing(cloud: AttachingCloud) -> None:
    assert cloud.first(is_bfv=True) == DEFAULT
    assert cloud.noted == []


def test_build_request_that_cannot_be_read_is_noted(cloud: AttachingCloud) -> None:
    cloud.source.booted = None
    assert cloud.first(is_bfv=True) == DEFAULT
    assert cloud.detail == "the database is down"


# -- explained and repeated ------------------------------------------------------------


def test_explanations_know_theplace(cloud: AttachingCloud) -> None:
    cloud.cinder.volume(cloud.volume, "ceph@ssd")
    spec = attaching_spec({"same_rack_volume": cloud.volume})
    explainer = cloud.scheduler.explainer
    [verdict] = explainer.why_not(CONTEXT, spec, "e")
    [reason] = verdict.reasons
    assert (reason.check, reason.required) == (
        "LocalityFilter",
        "r1 (same_rack_volume)",
    )
    record = explainer.dry_run(CONTEXT, spec, 1)
    assert record.instances[0].host in {"a", "b"}


def test_explanations_name_the_volume_that_is_unknown(cloud: AttachingCloud) -> None:
    spec = attaching_spec({"same_rack_volume": cloud.volume})
    explainer = cloud.scheduler.explainer
    [verdict] = explainer.why_not(CONTEXT, spec, "a")
    assert verdict.reasons[0].check == "attachments"
    assert f"volume {cloud.volume} is not known" in verdict.reasons[0].reason
    assert explainer.closest(CONTEXT, spec).n_passing == 0
