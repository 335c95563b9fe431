# SPDX-License-Identifier: Apache-2.0
"""An image goes where its architecture, hypervisor, mode and version are supported."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_config import cfg

from moorage.filters.image_properties import ImagePropertiesFilter
from moorage.objects import ImageMeta, RequestSpec
from moorage.scheduler.errors import ConfigurationError

from ..conftest import batch, host, image, options, spec

KVM = ("x86_64", "kvm", "hvm")
QEMU_32 = ("i686", "qemu", "hvm")
XEN = ("x86_64", "xen", "xen")


def _passes(spec_obj: RequestSpec, conf: cfg.ConfigOpts, **changes: Any) -> bool:
    filter_ = ImagePropertiesFilter(conf).prepare(spec_obj)
    return bool(filter_.passing(batch(host(**changes)), spec_obj)[0])


@pytest.mark.parametrize(
    ("properties", "supported", "passes"),
    [
        pytest.param({}, [], True, id="nothing required, nothing reported"),
        pytest.param({"hw_architecture": "x86_64"}, [], False, id="nothing reported"),
        pytest.param({"hw_architecture": "x86_64"}, [KVM], True, id="architecture"),
        pytest.param({"hw_architecture": "i686"}, [KVM], False, id="another one"),
        pytest.param({"hw_architecture": "amd64"}, [KVM], True, id="amd64 is x86_64"),
        pytest.param({"hw_architecture": "i386"}, [QEMU_32], True, id="i386 is i686"),
        pytest.param({"img_hv_type": "kvm"}, [KVM], True, id="hypervisor"),
        pytest.param({"img_hv_type": "qemu"}, [KVM], False, id="other hypervisor"),
        pytest.param({"img_hv_type": "xapi"}, [XEN], True, id="xapi is xen"),
        pytest.param({"hw_vm_mode": "hvm"}, [KVM], True, id="mode"),
        pytest.param({"hw_vm_mode": "hv"}, [KVM], True, id="hv is hvm"),
        pytest.param({"hw_vm_mode": "pv"}, [XEN], True, id="pv is xen"),
        pytest.param({"hw_vm_mode": "xen"}, [KVM], False, id="other mode"),
        pytest.param(
            {"hw_architecture": "x86_64", "img_hv_type": "qemu"},
            [KVM, QEMU_32],
            False,
            id="both, of different triples",
        ),
        pytest.param(
            {"hw_architecture": "i686", "img_hv_type": "qemu"},
            [KVM, QEMU_32],
            True,
            id="both, of the second triple",
        ),
    ],
)
def test_triple(
    properties: dict[str, str],
    supported: list[tuple[str, ...]],
    passes: bool,
    conf: cfg.ConfigOpts,
) -> None:
    spec_obj = spec(image=image(**properties))
    assert _passes(spec_obj, conf, supported_instances=tuple(supported)) is passes


@pytest.mark.parametrize(
    ("required", "version", "passes"),
    [
        pytest.param(">=6.0", 6002001, True, id="new enough"),
        pytest.param(">=6.2,<6.3", 6002001, True, id="in a range"),
        pytest.param(">=7.0", 6002001, False, id="too old"),
        pytest.param(">=7.0", 0, True, id="a host that reports none"),
        pytest.param(None, 6002001, True, id="none required"),
    ],
)
def test_hypervisor_version(
    required: str | None, version: int, passes: bool, conf: cfg.ConfigOpts
) -> None:
    more = {} if required is None else {"img_hv_requested_version": required}
    spec_obj = spec(image=image(hw_architecture="x86_64", **more))
    assert _passes(spec_obj, conf, hypervisor_version=version) is passes


@pytest.mark.parametrize(
    ("cpu_info", "passes"),
    [
        pytest.param('{"maxphysaddr": {"bits": 42}}', True, id="enough"),
        pytest.param('{"maxphysaddr": {"bits": 41}}', False, id="too few"),
        pytest.param('{"maxphysaddr": {"bits": "41"}}', False, id="as text"),
        pytest.param('{"maxphysaddr": {"bits": "many"}}', True, id="no number"),
        pytest.param('{"maxphysaddr": {}}', True, id="not reported"),
        pytest.param('{"maxphysaddr": null}', True, id="null"),
        pytest.param("{}", True, id="nothing reported"),
        pytest.param("[]", True, id="no dict"),
        pytest.param("{", True, id="no JSON"),
        pytest.param(None, True, id="no CPU"),
    ],
)
def test_address_bits(cpu_info: str | None, passes: bool, conf: cfg.ConfigOpts) -> None:
    spec_obj = spec(image=image(hw_architecture="x86_64", hw_maxphysaddr_bits=42))
    assert _passes(spec_obj, conf, cpu_info=cpu_info) is passes


@pytest.mark.parametrize(
    "properties",
    [{"img_hv_requested_version": ">=99.0"}, {"hw_maxphysaddr_bits": 99}],
)
def test_image_that_names_none_of_the_three_goes_everywhere(
    properties: dict[str, Any], conf: cfg.ConfigOpts
) -> None:
    spec_obj = spec(image=image(**properties))
    bits = '{"maxphysaddr": {"bits": 1}}'
    assert _passes(spec_obj, conf, supported_instances=(), cpu_info=bits)


@pytest.mark.parametrize(
    "spec_obj",
    [
        pytest.param(spec(image=None), id="no image"),
        pytest.param(spec(image=ImageMeta()), id="an image without properties"),
    ],
)
def test_request_without_properties_goes_everywhere(
    spec_obj: RequestSpec, conf: cfg.ConfigOpts
) -> None:
    assert _passes(spec_obj, conf, supported_instances=())


@pytest.mark.parametrize(
    ("properties", "passes"),
    [
        pytest.param({}, False, id="an image that names none"),
        pytest.param({"hw_architecture": "x86_64"}, True, id="one that does"),
    ],
)
def test_default_architecture_is_that_of_images_without(
    properties: dict[str, str], passes: bool
) -> None:
    conf = options(image_properties_default_architecture="arm64")
    with pytest.raises(ConfigurationError, match=r"_default_architecture: .*arm64"):
        ImagePropertiesFilter(conf)
    conf = options(image_properties_default_architecture="i386")
    assert _passes(spec(image=image(**properties)), conf) is passes


def test_one_filter_serves_several_requests_at_a_time(conf: cfg.ConfigOpts) -> None:
    filter_ = ImagePropertiesFilter(conf)
    arm, plain = spec(image=image(hw_architecture="aarch64")), spec()
    for_arm, for_plain = filter_.prepare(arm), filter_.prepare(plain)
    rows = batch(host())
    assert not for_arm.passing(rows, arm)[0]
    assert for_plain.passing(rows, plain)[0]
    assert not for_arm.passing(rows, arm)[0]
