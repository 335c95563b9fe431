# SPDX-License-Identifier: Apache-2.0
"""Our prefilters and nova 34's make the same query for any request."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from moorage.objects import (
    Destination,
    Flavor,
    ImageMeta,
    ImageMetaProps,
    InstancePCIRequest,
    InstancePCIRequests,
    NetworkRequest,
    NetworkRequestList,
    RequestGroup,
    RequestLevelParams,
    RequestSpec,
)
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.placement_queries import is_enabled
from moorage.scheduler.drivers.plugins import load_prefilters
from moorage.scheduler.errors import InvalidRequest, NoValidHost
from moorage.scheduler.placement.query import (
    Requirements,
    build_query,
)
from moorage.scheduler.prefilters import (
    DEFAULT_PREFILTERS,
    NetworkLookup,
    PrefilterRequest,
)
from moorage.scheduler.request import Request

from ..fixtures.nova_peer import Peer, PeerError

GATES = (
    "limit_tenants_to_placement_aggregate",
    "placement_aggregate_required_for_tenants",
    "query_placement_for_image_type_support",
    "enable_isolated_aggregate_filtering",
    "image_metadata_prefilter",
    "query_placement_for_routed_network_aggregates",
)


def id_of(name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


PORTS = {
    id_of("plain"): {"network_id": id_of("flat"), "fixed_ips": []},
    id_of("bound"): {
        "network_id": id_of("routed"),
        "fixed_ips": [{"subnet_id": id_of("s1")}, {"subnet_id": id_of("s2")}],
    },
    id_of("unbound"): {"network_id": id_of("routed"), "fixed_ips": []},
    id_of("remote"): {
        "network_id": id_of("flat"),
        "fixed_ips": [{"subnet_id": id_of("s3")}],
        "binding:vnic_type": "remote-managed",
    },
    id_of("lost"): {
        "network_id": id_of("broken"),
        "fixed_ips": [{"subnet_id": id_of("s4")}],
    },
}
SUBNETS = {
    id_of("s1"): id_of("segment1"),
    id_of("s2"): id_of("segment2"),
    id_of("s3"): None,
    id_of("s4"): id_of("segment4"),
}
NETWORKS = {
    id_of("flat"): ["s3"],
    id_of("routed"): ["s1", "s2"],
    id_of("broken"): ["s1", "s4"],
}
SEGMENTS = {
    id_of("segment1"): [id_of("agg5")],
    id_of("segment2"): [id_of("agg6"), id_of("agg7")],
    id_of("segment4"): [],
}


class Neutron:
    """A Neutron that holds the above."""

    def show_port(self, port: str) -> Mapping[str, Any]:
        return {"port": PORTS[port]}

    def show_subnet(self, subnet: str) -> Mapping[str, Any]:
        return {"subnet": {"segment_id": SUBNETS[subnet]}}

    def list_subnets(self, *, network_id: str) -> Mapping[str, Any]:
        names = map(id_of, NETWORKS[network_id])
        return {"subnets": [{"segment_id": SUBNETS[name]} for name in names]}


def novas_neutron() -> dict[str, Any]:
    segments = {
        network: [found for name in names if (found := SUBNETS[id_of(name)])]
        for network, names in NETWORKS.items()
    }
    return {"ports": PORTS, "subnets": SUBNETS, "networks": segments}


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """An aggregate as prefilters read it."""

    uuid: str
    metadata: dict[str, str]


class Aggregates(list[Aggregate]):
    """All aggregates as prefilters read them."""

    def uuids_with_metadata(self, key: str, value: str) -> frozenset[str]:
        return frozenset(a.uuid for a in self if a.metadata.get(key) == value)


def optional(**values: list[Any]) -> st.SearchStrategy[dict[str, Any]]:
    some = {name: st.sampled_from(found) for name, found in values.items()}
    return st.fixed_dictionaries({}, optional=some)


METADATA = st.dictionaries(
    st.sampled_from(
        [
            "availability_zone",
            "filter_tenant_id",
            "filter_tenant_id2",
            "trait:CUSTOM_A",
            "trait:HW_CPU_X86_AVX2",
            "other",
        ]
    ),
    st.sampled_from(["east", "p1", "p2", "p1,p2", "required", "forbidden", ""]),
    max_size=4,
)
_AVX2 = "trait1:HW_CPU_X86_AVX2"  # needs resources: only then is nova's query valid
EXTRA_SPECS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(found)
        for name, found in {
            "accel:device_profile": ["p", ""],
            "hw:virtio_packed_ring": ["true", "0"],
            "hw:ephemeral_encryption": ["yes", "no"],
            "hw:ephemeral_encryption_format": ["luks", "luksv2", "plain"],
            "hw:sound_model": ["virtio", "ich9"],
            "hw:tpm_version": ["2.0"],
            "hw:tpm_secret_security": ["user", "host", "deployment", "nobody"],
            "hw:cpu_policy": ["dedicated"],
            "trait:CUSTOM_A": ["required", "forbidden"],
            _AVX2: ["required"],
            "resources1:VGPU": ["1"],
        }.items()
    },
).map(lambda found: found | ({"resources1:VGPU": "1"} if _AVX2 in found else {}))
PROPERTIES = optional(
    hw_virtio_packed_ring=[True, False],
    hw_ephemeral_encryption=[True],
    hw_ephemeral_encryption_format=["luks"],
    hw_sound_model=["virtio", "sb16"],
    hw_tpm_version=["2.0"],
    hw_cdrom_bus=["ide", "sata", "virtio"],
    hw_disk_bus=["virtio", "scsi"],
    hw_video_model=["vga", "none", "cirrus"],
    hw_vif_model=["virtio", "e1000", "VirtualE1000"],
    hw_architecture=["x86_64", "aarch64"],
    hw_emulation_architecture=["aarch64", "x86_64"],
    traits_required=[["CUSTOM_A"], ["CUSTOM_B", "HW_CPU_X86_AVX2"]],
)
NETWORK_REQUESTS = st.sampled_from(
    [{"port_id": port} for port in PORTS] + [{"network_id": n} for n in NETWORKS]
)


@st.composite
def pci(draw: st.DrawFn) -> dict[str, Any]:
    """PCI requests of flavor and ports, and groups of some, as in nova's conductor."""
    origins = draw(st.lists(st.sampled_from(["alias", "port"]), max_size=3))
    requests, groups = [], []
    for number, kind in enumerate(origins):
        request_id = id_of(f"pci{number}")
        requests.append(
            InstancePCIRequest(
                count=1,
                request_id=request_id,
                alias_name="gpu" if kind == "alias" else None,
                requester_id=None if kind == "alias" else id_of("remote"),
                spec=[{"remote_managed": str(kind == "port")}],
            )
        )
        groups.append(
            RequestGroup(
                requester_id=f"{request_id}-0",
                resources={"CUSTOM_GPU": 1},
                required_traits=set(draw(st.sampled_from([[], ["CUSTOM_A"]]))),
            )
        )
    return {
        "pci_requests": InstancePCIRequests(requests=requests),
        "requested_resources": groups,
    }


@st.composite
def specs(draw: st.DrawFn) -> RequestSpec:
    """Requests with everything that prefilters read."""
    pci_fields = draw(pci())
    networks = draw(st.lists(NETWORK_REQUESTS, max_size=3))
    # nova's API requests PCI devices only for ports that the request has.
    if any(each.requester_id for each in pci_fields["pci_requests"].requests):
        networks.append({"port_id": id_of("remote")})
    return RequestSpec(
        flavor=Flavor(
            name="drawn",
            vcpus=2,
            memory_mb=512,
            root_gb=1,
            ephemeral_gb=0,
            swap=0,
            extra_specs=draw(EXTRA_SPECS),
        ),
        image=ImageMeta(
            id=id_of("image"),
            name="drawn",
            disk_format=draw(st.sampled_from(["raw", "qcow2", "vmdk", "unheard", ""])),
            properties=ImageMetaProps(**draw(PROPERTIES)),
        ),
        is_bfv=draw(st.booleans()),
        project_id=draw(st.sampled_from(["p1", "p2", "p3"])),
        availability_zone=draw(st.sampled_from([None, "east", "nowhere"])),
        force_hosts=None,
        force_nodes=None,
        scheduler_hints=draw(st.sampled_from([{}, {"group": ["g"]}])),
        requested_networks=NetworkRequestList(
            objects=[NetworkRequest(**wanted) for wanted in networks]
        ),
        request_level_params=RequestLevelParams(
            root_required=set(draw(st.sampled_from([[], ["OWNER_NOVA"]])))
        ),
        requested_destination=draw(
            st.sampled_from(
                [None, Destination(aggregates=["b,a"], forbidden_aggregates={"q"})]
            )
        ),
        **pci_fields,
    )


@dataclasses.dataclass(frozen=True)
class Surroundings:
    """The surroundings in which a request is evaluated."""

    aggregates: Aggregates
    options: dict[str, bool]
    min_version: int


SURROUNDINGS = st.builds(
    Surroundings,
    st.lists(METADATA, max_size=4).map(
        lambda rows: Aggregates(
            Aggregate(id_of(f"agg{i}"), metadata) for i, metadata in enumerate(rows)
        )
    ),
    st.fixed_dictionaries({gate: st.booleans() for gate in GATES}),
    st.sampled_from([0, 72, 73, 74]),
)


def theirs(peer: Peer, spec_obj: RequestSpec, around: Surroundings) -> Any:
    return peer.ask(
        "query",
        spec_obj=spec_obj.obj_to_primitive(),
        prefilters=list(DEFAULT_PREFILTERS),
        aggregates=[dataclasses.astuple(a) for a in around.aggregates],
        nodes=[],
        options=around.options,
        neutron=novas_neutron(),
        segments=SEGMENTS,
        min_version=around.min_version,
    )


def ours(spec_obj: RequestSpec, around: Surroundings) -> Any:
    conf = load([], config_files=[])
    for name, value in around.options.items():
        conf.set_override(name, value, group="scheduler")
    requirements = Requirements()
    request = PrefilterRequest(
        spec_obj=spec_obj,
        requirements=requirements,
        aggregates=around.aggregates,
        conf=conf,
        network=NetworkLookup(Neutron(), lambda uuid: frozenset(SEGMENTS[uuid])),
        min_service_version=around.min_version,
    )
    enabled = [p for name, p in load_prefilters() if is_enabled(name, conf)]
    for prefilter in enabled:
        prefilter(request)
    parsed = Request.validated(spec_obj)
    queries = [build_query(parsed, requirements, limit=1000)]
    if (groups := parsed.fallback_groups) is not None:
        queries.append(build_query(parsed, requirements, limit=1000, groups=groups))
    strings: list[str | None] = [query.path.partition("?")[2] for query in queries]
    return strings if groups is not None else [*strings, None]


#: What nova raises: a request that fits nowhere, or a contradictory one.
ERRORS = {
    "RequestFilterFailed": NoValidHost,
    "FlavorImageConflict": InvalidRequest,
    "Invalid": InvalidRequest,
}


@pytest.mark.deep
@pytest.mark.peer
@settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(spec_obj=specs(), around=SURROUNDINGS)
def test_prefilters_are_novas(
    peer: Peer, spec_obj: RequestSpec, around: Surroundings
) -> None:
    try:
        expected = theirs(peer, spec_obj, around)
    except PeerError as error:
        name, _, message = str(error).partition(": ")
        with pytest.raises(ERRORS[name]) as raised:
            ours(spec_obj, around)
        if name == "RequestFilterFailed":
            assert str(raised.value) == f"No valid host was found. {message}"
    else:
        before = spec_obj.obj_to_primitive()
        assert ours(spec_obj, around) == expected
        assert spec_obj.obj_to_primitive() == before


def plain(**fields: Any) -> RequestSpec:
    """A request that no prefilter concerns."""
    flavor = Flavor(
        name="plain",
        vcpus=1,
        memory_mb=1,
        root_gb=0,
        ephemeral_gb=0,
        swap=0,
        extra_specs={},
    )
    image = ImageMeta(id=id_of("image"), name="plain", properties=ImageMetaProps())
    usual: dict[str, Any] = {
        "flavor": flavor,
        "image": image,
        "is_bfv": False,
        "project_id": "p1",
        "availability_zone": None,
        "force_hosts": None,
        "force_nodes": None,
        "scheduler_hints": {},
        "requested_networks": NetworkRequestList(objects=[]),
        "request_level_params": RequestLevelParams(),
        "requested_destination": None,
        "requested_resources": [],
        "pci_requests": None,
    }
    return RequestSpec(**{**usual, **fields})


def with_image(**properties: Any) -> RequestSpec:
    image = ImageMeta(
        id=id_of("image"), name="i", properties=ImageMetaProps(**properties)
    )
    return plain(image=image)


ANY = "limit=1000&resources=MEMORY_MB%3A1%2CVCPU%3A1"
NOT_DISABLED = "root_required=%21COMPUTE_STATUS_DISABLED"


@pytest.mark.deep
@pytest.mark.peer
@pytest.mark.parametrize(
    ("spec_obj", "gate", "nova_says", "we_say"),
    [
        pytest.param(
            with_image(hw_disk_bus="virtio", hw_viommu_model="intel"),
            "image_metadata_prefilter",
            f"{ANY}&{NOT_DISABLED}",
            f"{ANY}&root_required=COMPUTE_STORAGE_BUS_VIRTIO%2C"
            "COMPUTE_VIOMMU_MODEL_INTEL%2C%21COMPUTE_STATUS_DISABLED",
            id="models of an IOMMU have traits",
        ),
        pytest.param(
            with_image(hw_disk_bus="virtio", hw_architecture="armv7l"),
            "image_metadata_prefilter",
            f"{ANY}&{NOT_DISABLED}",
            f"{ANY}&root_required=COMPUTE_STORAGE_BUS_VIRTIO%2C"
            "%21COMPUTE_STATUS_DISABLED",
            id="an unknown trait drops only itself",
        ),
        pytest.param(
            plain(image=None),
            "query_placement_for_image_type_support",
            "AttributeError",
            f"{ANY}&{NOT_DISABLED}",
            id="no image",
        ),
        pytest.param(
            plain(requested_networks=NetworkRequestList(objects=[NetworkRequest()])),
            "query_placement_for_routed_network_aggregates",
            "UnboundLocalError",
            f"{ANY}&{NOT_DISABLED}",
            id="neither port nor network",
        ),
        pytest.param(
            plain(
                requested_networks=NetworkRequestList(
                    objects=[
                        NetworkRequest(port_id=id_of("bound")),
                        NetworkRequest(),
                    ]
                )
            ),
            "query_placement_for_routed_network_aggregates",
            None,
            None,
            id="after one with a port",
        ),
    ],
)
def test_where_nova_is_wrong(
    peer: Peer, spec_obj: RequestSpec, gate: str, nova_says: Any, we_say: Any
) -> None:
    around = Surroundings(Aggregates(), {gate: True}, 0)
    mine = ours(spec_obj, around)[0]
    if nova_says is None:  # the aggregates of the entry before, once more
        member_of = f"member_of=in%3A{id_of('agg5')}"
        assert mine.count(member_of) == 1
        assert theirs(peer, spec_obj, around)[0].count(member_of) == 2
        return
    assert mine == we_say
    if nova_says.startswith("limit"):
        assert theirs(peer, spec_obj, around)[0] == nova_says
    else:
        with pytest.raises(PeerError, match=nova_says):
            theirs(peer, spec_obj, around)
