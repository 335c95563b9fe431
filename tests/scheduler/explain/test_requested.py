# SPDX-License-Identifier: Apache-2.0
"""What a request asked for is described for operators, without what is not set."""

from __future__ import annotations

from moorage.objects import (
    CellMapping,
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstanceGroup,
    NetworkRequest,
    NetworkRequestList,
    RequestSpec,
)
from moorage.scheduler.display import request_rows
from moorage.scheduler.explain import describe_request

CELL = "11111111-1111-4111-8111-111111111111"
GROUP = "22222222-2222-4222-8222-222222222222"
PORT = "33333333-3333-4333-8333-333333333333"
NETWORK = "44444444-4444-4444-8444-444444444444"
FLAVOR = Flavor(
    name="large",
    vcpus=8,
    memory_mb=16384,
    root_gb=0,
    ephemeral_gb=20,
    swap=0,
    extra_specs={"hw:cpu_policy": "dedicated"},
)


def test_all_parts_that_are_set_are_described() -> None:
    spec = RequestSpec(
        flavor=FLAVOR,
        image=ImageMeta(
            name="debian",
            properties=ImageMetaProps.from_dict({"hw_machine_type": "q35"}),
        ),
        availability_zone="zone1",
        scheduler_hints={"different_host": ["a", "b"], "query": ['["=", 1]']},
        instance_group=InstanceGroup(
            uuid=GROUP, policy="anti-affinity", members=["a", "b", "c"]
        ),
        requested_destination=Destination(
            host="h1", cell=CellMapping(uuid=CELL), allow_cross_cell_move=False
        ),
        is_bfv=True,
        requested_networks=NetworkRequestList(
            objects=[NetworkRequest(port_id=PORT), NetworkRequest(network_id=NETWORK)]
        ),
        ignore_hosts=["h9"],
        force_hosts=None,
    )
    described = describe_request(spec)
    assert described["flavor"]["extra_specs"] == {"hw:cpu_policy": "dedicated"}
    assert described["server_group"]["n_members"] == 3
    assert "force_hosts" not in described
    assert dict(request_rows(described)) == {
        "flavor": "large (8 vCPU, 16,384 MiB RAM, 20 GB ephemeral disk)",
        "extra specs": "hw:cpu_policy=dedicated",
        "image": "debian",
        "image properties": "hw_machine_type=q35",
        "boot from volume": "yes",
        "availability zone": "zone1",
        "hint different_host": "a, b",
        "hint query": '["=", 1]',
        "server group": f"{GROUP} anti-affinity, 3 member(s)",
        "ports": PORT,
        "networks": NETWORK,
        "requested host": "h1",
        "requested cell": CELL,
        "ignored hosts": "h9",
    }


def test_request_with_nothing_but_a_flavor_has_no_other_row() -> None:
    rows = request_rows(describe_request(RequestSpec(flavor=FLAVOR)))
    assert [label for label, _ in rows] == ["flavor", "extra specs"]


def test_control_characters_and_long_lists_are_shown_safely() -> None:
    hosts = [f"h{number}" for number in range(30)]
    spec = RequestSpec(flavor=FLAVOR, availability_zone="a\x1b[2J", ignore_hosts=hosts)
    rows = dict(request_rows(describe_request(spec)))
    assert rows["availability zone"] == "a\\x1b[2J"
    assert rows["ignored hosts"].endswith("h9 and 20 more")
