# SPDX-License-Identifier: Apache-2.0
"""Volumes and ports are read over HTTP, and every failure of that is one error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from oslo_config import cfg

from moorage.scheduler.attachments import (
    Attachment,
    LookupFailed,
    make_port_reader,
    make_volume_reader,
)
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.waiting import SystemWaiter, ThreadSpawner

from ...conftest import instance_uuid, options
from ...fixtures.attached_services import (
    AttachedService,
    ServiceFault,
    attached_service,
)
from ...fixtures.ports import refusing_url

VOLUME, PORT, NETWORK = map(instance_uuid, ("volume", "port", "network"))
SUBNET, SEGMENT = map(instance_uuid, ("subnet", "segment"))


@pytest.fixture
def service() -> Iterator[AttachedService]:
    with attached_service() as service:
        yield service


def _conf(url: str) -> cfg.ConfigOpts:
    conf = options()
    conf.set_override("endpoint_template", f"{url}/v3", group="cinder")
    conf.set_override("endpoint_override", url, group="neutron")
    for group in ("cinder", "neutron"):
        conf.set_override("http_retries", 0, group=group)
    conf.set_override("lookup_timeout", 0.3, group="locality")
    return conf


def _volume(url: str, uuid: str = VOLUME) -> Attachment:
    reader = make_volume_reader(_conf(url))
    assert reader is not None
    return reader(uuid)


def _port(url: str, uuid: str = PORT) -> Attachment:
    reader = make_port_reader(_conf(url), SystemWaiter(), ThreadSpawner())
    assert reader is not None
    return reader(uuid)


def _clues(found: Attachment) -> list[tuple[str, set[str]]]:
    return [(clue.key, set(clue.values)) for clue in found.clues]


@pytest.mark.parametrize(
    ("host", "clues"),
    [
        (
            "node1@lvm#pool",
            [
                ("moorage:volume_backend", {"node1@lvm#pool"}),
                ("moorage:volume_backend", {"node1@lvm"}),
                ("moorage:volume_backend", {"node1"}),
                ("host", {"node1"}),
            ],
        ),
        (
            "ceph@rbd",
            [
                ("moorage:volume_backend", {"ceph@rbd"}),
                ("moorage:volume_backend", {"ceph"}),
                ("host", {"ceph"}),
            ],
        ),
        (None, []),
    ],
)
def test_volume_is_where_its_backend_is(
    service: AttachedService, host: str | None, clues: list[Any]
) -> None:
    service.volume(VOLUME, host)
    found = _volume(service.url)
    assert (found.project_id, _clues(found)) == ("project", clues)


def test_bound_port_is_on_its_host(service: AttachedService) -> None:
    service.port(PORT, **{"binding:host_id": "node1", "network_id": NETWORK})
    service.network(NETWORK)
    assert _clues(_port(service.url)) == [
        ("host", {"node1"}),
        ("moorage:physical_network", {"physnet1"}),
    ]


def test_port_with_an_address_is_in_the_segment_of_its_subnet(
    service: AttachedService,
) -> None:
    address = {"subnet_id": SUBNET, "ip_address": "10.0.0.5"}
    service.port(PORT, network_id=NETWORK, fixed_ips=[address])
    service.add(f"/v2.0/subnets/{SUBNET}", "subnet", segment_id=SEGMENT)
    service.add(f"/v2.0/segments/{SEGMENT}", "segment", physical_network="physnet2")
    assert _clues(_port(service.url)) == [
        ("moorage:segment", {SEGMENT}),
        ("moorage:physical_network", {"physnet2"}),
    ]


def test_network_of_several_segments_is_on_all_physical_networks(
    service: AttachedService,
) -> None:
    service.port(PORT, network_id=NETWORK)
    each = [{"provider:physical_network": name} for name in ("one", "two", None)]
    service.network(NETWORK, segments=each)
    assert _clues(_port(service.url)) == [("moorage:physical_network", {"one", "two"})]


def test_tunnelled_network_is_nowhere(service: AttachedService) -> None:
    service.port(PORT, network_id=NETWORK)
    service.network(NETWORK, **{"provider:physical_network": None})
    assert _port(service.url).clues == ()


def test_ports_of_one_network_read_it_once(service: AttachedService) -> None:
    service.network(NETWORK)
    others = [service.port(instance_uuid(f"p{i}"), network_id=NETWORK) for i in (1, 2)]
    reader = make_port_reader(_conf(service.url), SystemWaiter(), ThreadSpawner())
    assert reader is not None
    for uuid in others:
        reader(uuid)
    assert sum("networks" in path for path in service.asked) == 1


@pytest.mark.parametrize(
    ("fault", "message", "is_outage"),
    [
        (None, "has no /", False),
        (ServiceFault.FORBIDDEN, "403: the user of .* needs the role admin", False),
        (ServiceFault.BROKEN, "answered 500", False),
        (ServiceFault.UNAVAILABLE, "answered 503", False),
        (ServiceFault.HANGS, "got no answer", True),
        (ServiceFault.CLOSES, "got no answer", True),
        (ServiceFault.GARBAGE, "answered no JSON", False),
        (ServiceFault.HUGE, "more than 262144 bytes", False),
        (ServiceFault.EMPTY, "answered no '(volume|port)'", False),
    ],
    ids=str,
)
@pytest.mark.parametrize("read", [_volume, _port])
def test_faults_are_one_error(
    service: AttachedService,
    read: Any,
    fault: ServiceFault | None,
    message: str,
    is_outage: bool,
) -> None:
    service.fault = fault
    with pytest.raises(LookupFailed, match=message) as caught:
        read(service.url)
    assert caught.value.is_outage is is_outage
    assert caught.value.is_unknown is (fault is None)


@pytest.mark.parametrize(
    "lacking", ["os-vol-host-attr:host", "os-vol-tenant-attr:tenant_id"]
)
def test_answer_for_a_user_without_the_role_names_what_is_missing(
    service: AttachedService, lacking: str
) -> None:
    service.volume(VOLUME, "ceph@rbd")
    del service.answers[f"/v3/volumes/{VOLUME}"]["volume"][lacking]
    with pytest.raises(LookupFailed, match=f"answered no {lacking}.*role admin"):
        _volume(service.url)


def test_service_that_is_away_is_that_error_too() -> None:
    with pytest.raises(LookupFailed, match="Cinder got no answer") as caught:
        _volume(refusing_url())
    assert caught.value.is_outage


def test_no_reader_unless_configured() -> None:
    assert make_volume_reader(options()) is None
    assert make_port_reader(options(), SystemWaiter(), ThreadSpawner()) is None


def test_auth_type_that_does_not_exist_stops_the_start() -> None:
    conf = options()
    conf.set_override("auth_type", "nonsense", group="cinder")
    with pytest.raises(ConfigurationError, match=r"\[cinder\] auth_type = nonsense: "):
        make_volume_reader(conf)


def test_project_of_the_user_is_filled_into_the_endpoint(
    service: AttachedService,
) -> None:
    conf = options()
    template = f"{service.url}/v3/%(project_id)s"
    conf.set_override("endpoint_template", template, group="cinder")
    reader = make_volume_reader(conf)
    assert reader is not None
    with pytest.raises(LookupFailed, match="required to get project_id"):
        reader(VOLUME)  # without auth_type there is no project
    assert not service.asked
