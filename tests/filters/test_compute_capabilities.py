# SPDX-License-Identifier: Apache-2.0
"""Extra specs are held against a host's attributes, stats and CPU."""

from __future__ import annotations

import pytest
from oslo_config import cfg

from moorage.filters.compute_capabilities import ComputeCapabilitiesFilter
from moorage.objects import Flavor

from ..conftest import batch, host, spec

HOST = host(
    free_ram_mb=8192,
    cpu_allocation_ratio=1.5,
    hypervisor_type="QEMU",
    hypervisor_version=6002001,
    host_ip=None,
    stats={"num_os_type_linux": "3", "tier": '{"disk": {"kind": "ssd"}}', "odd": "["},
    cpu_info='{"arch": "x86_64", "features": ["aes", "vmx"], '
    '"topology": {"cores": 4}, "maxphysaddr": {"bits": 42}}',
)


@pytest.mark.parametrize(
    ("key", "required", "passes"),
    [
        pytest.param("capabilities:free_ram_mb", ">= 8192", True, id="number"),
        pytest.param("capabilities:free_ram_mb", ">= 8193", False, id="too small"),
        pytest.param("capabilities:free_ram_mb", "8192", True, id="number as text"),
        pytest.param("capabilities:free_ram_mb", "8192.0", False, id="another text"),
        pytest.param("capabilities:cpu_allocation_ratio", "1.5", True, id="ratio"),
        pytest.param("capabilities:hypervisor_type", "QEMU", True, id="text"),
        pytest.param("capabilities:hypervisor_type", "s!= QEMU", False, id="other"),
        pytest.param("capabilities:hypervisor_version", ">= 6000000", True, id="vers"),
        pytest.param("capabilities:num_os_type_linux", "<= 3", True, id="of stats"),
        pytest.param("capabilities:tier:disk:kind", "ssd", True, id="JSON in stats"),
        pytest.param("capabilities:odd:x", "1", False, id="no JSON in stats"),
        pytest.param("capabilities:cpu_info:arch", "x86_64", True, id="CPU"),
        pytest.param("capabilities:cpu_info:topology:cores", ">= 4", True, id="deep"),
        pytest.param("capabilities:cpu_info:topology:cpus", "4", False, id="no key"),
        pytest.param(
            "capabilities:cpu_info:features", "<all-in> aes vmx", True, id="list"
        ),
        pytest.param("capabilities:cpu_info:features:aes", "1", False, id="in a list"),
        pytest.param("capabilities:free_ram_mb:x", "1", False, id="key of a number"),
        pytest.param("capabilities:no_such", "1", False, id="missing everywhere"),
        pytest.param("capabilities:host_ip", "1", False, id="unknown value"),
        pytest.param("capabilities:disabled", "False", False, id="not nova's"),
        pytest.param("capabilities:", "1", False, id="no name"),
        pytest.param("free_ram_mb", ">= 1", True, id="unscoped attribute"),
        pytest.param("free_ram_mb", ">= 9999", False, id="unscoped and too small"),
        pytest.param("num_os_type_linux", "4", False, id="unscoped, of stats"),
        pytest.param("no_such", "1", True, id="unscoped and unknown is not meant"),
        pytest.param("hw:cpu_policy", "dedicated", True, id="another scope"),
        pytest.param("resources:VGPU", "1", True, id="for Placement"),
        pytest.param("hw:maxphysaddr_bits", "42", True, id="address bits"),
        pytest.param("hw:maxphysaddr_bits", "43", False, id="too few address bits"),
        pytest.param("capabilities:free_ram_mb", ">= lots", False, id="no number"),
        pytest.param("capabilities:free_ram_mb", "<or>", False, id="no operand"),
    ],
)
def test_extra_spec(
    key: str, required: str, passes: bool, conf: cfg.ConfigOpts
) -> None:
    filter_ = ComputeCapabilitiesFilter(conf)
    spec_obj = spec(extra_specs={key: required})
    assert filter_.passing(batch(HOST), spec_obj).tolist() == [passes]


def test_every_extra_spec_has_to_hold(conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(
        extra_specs={"free_ram_mb": ">= 1", "capabilities:num_io_ops": "< 1"}
    )
    passing = ComputeCapabilitiesFilter(conf).passing(batch(HOST), spec_obj)
    assert passing.tolist() == [False]


def test_unknown_attribute_is_read_from_the_stats(
    conf: cfg.ConfigOpts,
) -> None:
    rows = batch(
        host(host="a", host_ip=None, stats={"host_ip": "x"}),
        host(host="b", host_ip="x"),
        host(host="c", host_ip=None),
    )
    spec_obj = spec(extra_specs={"capabilities:host_ip": "x"})
    passing = ComputeCapabilitiesFilter(conf).passing(rows, spec_obj)
    assert passing.tolist() == [True, True, False]


def test_unscoped_key_is_meant_for_the_hosts_that_have_it(conf: cfg.ConfigOpts) -> None:
    rows = batch(host(host="a", stats={"tier": "1"}), host(host="b"))
    spec_obj = spec(extra_specs={"tier": "2"})
    passing = ComputeCapabilitiesFilter(conf).passing(rows, spec_obj)
    assert passing.tolist() == [False, True]


@pytest.mark.parametrize("text", [None, "", "[", "[]", "4", "null"])
def test_cpu_without_the_attribute_does_not_satisfy(
    text: str | None, conf: cfg.ConfigOpts
) -> None:
    spec_obj = spec(extra_specs={"capabilities:cpu_info:arch": "x86_64"})
    passing = ComputeCapabilitiesFilter(conf).passing(
        batch(host(cpu_info=text)), spec_obj
    )
    assert passing.tolist() == [False]


def test_flavor_whose_extra_specs_are_not_known_goes_everywhere(
    conf: cfg.ConfigOpts,
) -> None:
    spec_obj = spec(
        flavor=Flavor(vcpus=1, memory_mb=1, root_gb=1, ephemeral_gb=0, swap=0)
    )
    passing = ComputeCapabilitiesFilter(conf).passing(batch(HOST), spec_obj)
    assert passing.tolist() == [True]


@pytest.mark.parametrize(
    ("required", "name"),
    [
        pytest.param({"hypervisor_type": "xen"}, "hypervisor_type", id="one"),
        pytest.param(
            {"hypervisor_type": "QEMU", "cpu_info:arch": "ppc64"},
            "cpu_info:arch",
            id="of-two",
        ),
        pytest.param(
            {"hypervisor_type": "xen", "host_ip": "none"},
            "hypervisor_type or host_ip",
            id="both",
        ),
    ],
)
def test_capability_that_hosts_lack_is_named(
    required: dict[str, str], name: str, conf: cfg.ConfigOpts
) -> None:
    specs = {f"capabilities:{key}": value for key, value in required.items()}
    rows = batch(host(hypervisor_type="QEMU", host_ip="10.0.0.1"))
    spec_obj = spec(extra_specs=specs)
    reason = ComputeCapabilitiesFilter(conf).reason_for(spec_obj, rows)
    assert reason == f"capability {name} is missing or different"
