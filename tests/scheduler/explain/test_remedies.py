# SPDX-License-Identifier: Apache-2.0
"""A change that closest names is one that a person can make, and it helps when made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moorage.objects import ImageMeta, ImageMetaProps, InstanceGroup
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.record import Outcome
from moorage.scheduler.service import Scheduler, build

from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

_IMAGE = "11111111-1111-4111-8111-111111111111"


def _image(**properties: Any) -> ImageMeta:
    return ImageMeta(id=_IMAGE, properties=ImageMetaProps(**properties))


class Case(NamedTuple):
    """A request that no host can serve, and what closest says of it.

    `remedied` is how the request, or the cloud, is after the change.
    """

    filters: tuple[str, ...]
    changes: Mapping[str, Any]
    text: str
    offered: str = ""
    by: str = "user"
    alternative: str = ""
    metadata: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}
    remedied: Mapping[str, Any] = {}
    remedied_metadata: Mapping[str, str] | None = None
    remedied_options: Mapping[str, Any] | None = None


_CAPABILITY = "capabilities:hypervisor_type"
_SSD = "aggregate_instance_extra_specs:ssd"
_ARCHITECTURE = "hw_architecture"

CASES = {
    "capability": Case(
        ("ComputeCapabilitiesFilter",),
        {"extra_specs": {_CAPABILITY: "ironic"}},
        f'another flavor, without extra spec {_CAPABILITY} (now "ironic")',
        offered="QEMU (2)",
        remedied={"extra_specs": {_CAPABILITY: "QEMU"}},
    ),
    "address bits": Case(
        ("ComputeCapabilitiesFilter",),
        {"extra_specs": {"hw:maxphysaddr_bits": "46"}},
        'another flavor, without extra spec hw:maxphysaddr_bits (now ">= 46")',
        offered="nothing (2)",
        remedied={"extra_specs": {}},
    ),
    "metadata of aggregates": Case(
        ("AggregateInstanceExtraSpecsFilter",),
        {"extra_specs": {_SSD: "true"}},
        f'another flavor, without extra spec {_SSD} (now "true")',
        offered="false (2)",
        alternative="an aggregate of the hosts with metadata ssd=true",
        metadata={"ssd": "false"},
        remedied={"extra_specs": {_SSD: "false"}},
        remedied_metadata={"ssd": "true"},
    ),
    "extra spec of two filters": Case(
        ("ComputeCapabilitiesFilter", "AggregateInstanceExtraSpecsFilter"),
        {"extra_specs": {"hypervisor_type": "ironic"}},
        'another flavor, without extra spec hypervisor_type (now "ironic")',
        offered="nothing (2)",
        remedied={"extra_specs": {}},
    ),
    "architecture": Case(
        ("ImagePropertiesFilter",),
        {"image": _image(hw_architecture="aarch64", hw_vm_mode="hvm")},
        f'another image, without property {_ARCHITECTURE} (now "aarch64")',
        offered="x86_64 (2)",
        remedied={"image": _image(hw_architecture="x86_64", hw_vm_mode="hvm")},
    ),
    "default architecture": Case(
        ("ImagePropertiesFilter",),
        {},
        f"another image, with {_ARCHITECTURE}",
        offered="x86_64 (2)",
        by="operator",
        options={"image_properties_default_architecture": "aarch64"},
        remedied={"image": _image(hw_architecture="x86_64")},
        remedied_options={},
    ),
    "isolation of image properties": Case(
        ("AggregateImagePropertiesIsolation",),
        {"image": _image(hw_disk_bus="scsi")},
        'another image, without property hw_disk_bus (now "scsi")',
        offered="virtio (2)",
        alternative="metadata hw_disk_bus of the hosts' aggregates with scsi",
        metadata={"hw_disk_bus": "virtio"},
        remedied={"image": _image(hw_disk_bus="virtio")},
        remedied_metadata={"hw_disk_bus": "virtio,scsi"},
    ),
    "tenants": Case(
        ("AggregateMultiTenancyIsolation",),
        {},
        "project project in metadata filter_tenant_id of aggregate all",
        by="operator",
        metadata={"filter_tenant_id": "other"},
        remedied_metadata={"filter_tenant_id": "other,project"},
    ),
    "flavors of aggregates": Case(
        ("AggregateTypeAffinityFilter",),
        {},
        "another flavor than plain",
        offered="large (2)",
        alternative="flavor plain in metadata instance_type of aggregate all",
        metadata={"instance_type": "large"},
        remedied_metadata={"instance_type": "large,plain"},
    ),
    "isolated hosts": Case(
        ("IsolatedHostsFilter",),
        {},
        "another image, one of [filter_scheduler] isolated_images",
        alternative="the hosts not in [filter_scheduler] isolated_hosts",
        options={"isolated_hosts": ["a", "b"], "isolated_images": [_IMAGE]},
        remedied={"image": _image()},
        remedied_options={},
    ),
    "instances": Case(
        ("NumInstancesFilter",),
        {},
        "a higher [filter_scheduler] max_instances_per_host",
        offered="3 (2)",
        by="operator",
        options={"max_instances_per_host": 3},
        remedied_options={"max_instances_per_host": 4},
    ),
    "required trait": Case(
        ("ComputeFilter",),
        {"extra_specs": {"trait:CUSTOM_NONE": "required"}},
        "another flavor, without extra spec trait:CUSTOM_NONE=required",
        alternative="trait CUSTOM_NONE added to the hosts' providers",
        remedied={"extra_specs": {}},
    ),
    "forbidden trait": Case(
        ("ComputeFilter",),
        {"extra_specs": {"trait:CUSTOM_GOLD": "forbidden"}},
        "another flavor, without extra spec trait:CUSTOM_GOLD=forbidden",
        alternative="trait CUSTOM_GOLD removed from the hosts' providers",
        remedied={"extra_specs": {}},
    ),
    "trait of the image": Case(
        ("ComputeFilter",),
        {"image": _image(traits_required=["CUSTOM_NONE"])},
        "another image, without property trait:CUSTOM_NONE=required",
        alternative="trait CUSTOM_NONE added to the hosts' providers",
        remedied={"image": _image()},
    ),
    "memory": Case(
        ("ComputeFilter",), {"memory_mb": 17408}, "1 GiB less memory",
        remedied={"memory_mb": 16384},
    ),
    "hint same_host": Case(
        ("SameHostFilter",),
        {"scheduler_hints": {"same_host": new_uuids()}},
        "without hint same_host",
        remedied={"scheduler_hints": {}},
    ),
    "hint query": Case(
        ("JsonFilter",),
        {"scheduler_hints": {"query": ['["=", "$hypervisor_type", "x"]']}},
        "without hint query",
        remedied={"scheduler_hints": {}},
    ),
    "hints about a network": Case(
        ("SimpleCIDRAffinityFilter",),
        {"scheduler_hints": {"build_near_host_ip": ["192.0.2.1"]}},
        "without hint build_near_host_ip",
        remedied={"scheduler_hints": {}},
    ),
    "affinity": Case(
        ("ServerGroupAffinityFilter",),
        {
            "instance_group": InstanceGroup(
                uuid=new_uuids()[0], policies=["affinity"], policy="affinity",
                members=[], hosts=["elsewhere"],
            )
        },
        "no server group, or one with policy soft-affinity",
        remedied={"instance_group": None},
    ),
}  # fmt: skip


@contextlib.contextmanager
def _cloud(
    folder: Path,
    filters: tuple[str, ...],
    metadata: Mapping[str, str],
    options: Mapping[str, Any],
) -> Iterator[Scheduler]:
    conf = moorage_conf.load([], config_files=[])
    hosts = [
        host(name, num_instances=3, hypervisor_type="QEMU", traits=["CUSTOM_GOLD"])
        for name in "ab"
    ]
    aggregate = {"name": "all", "hosts": ["a", "b"], "metadata": dict(metadata)}
    path = write_inventory(folder, *hosts, aggregates=[aggregate])
    conf.set_override("inventory_file", str(path), group="moorage")
    conf.set_override("enabled_filters", list(filters), group="filter_scheduler")
    for name, value in options.items():
        conf.set_override(name, value, group="filter_scheduler")
    scheduler = build(conf)
    try:
        scheduler.start()
        yield scheduler
    finally:
        scheduler.stop()


def _fits(scheduler: Scheduler, changes: Mapping[str, Any]) -> bool:
    record = scheduler.explainer.dry_run(CONTEXT, request(**changes), 1)
    return record.outcome is Outcome.SELECTED


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_remedy_is_a_part_of_the_request_or_of_the_cloud(
    tmp_path: Path, case: Case
) -> None:
    with _cloud(tmp_path, case.filters, case.metadata, case.options) as scheduler:
        report = scheduler.explainer.closest(CONTEXT, request(**case.changes))
        assert report.n_passing == 0
        [group] = report.groups
        [change] = group.changes
        assert change.text.startswith(case.text)
        assert change.offered == case.offered
        assert change.needs_operator is (case.by == "operator")
        assert change.alternative == case.alternative
        assert group.n_hosts == 2
        fits = _fits(scheduler, {**case.changes, **case.remedied})
        assert fits is bool(case.remedied)
    changed = (case.remedied_metadata, case.remedied_options)
    if any(each is not None for each in changed):
        metadata, options = (
            before if after is None else after
            for before, after in zip(
                (case.metadata, case.options), changed, strict=True
            )
        )
        with _cloud(tmp_path, case.filters, metadata, options) as scheduler:
            assert _fits(scheduler, case.changes)


def test_changes_of_two_extra_specs_are_named_together(tmp_path: Path) -> None:
    specs = {_CAPABILITY: "ironic", "capabilities:vcpus_total": ">= 9"}
    with _cloud(tmp_path, ("ComputeCapabilitiesFilter",), {}, {}) as scheduler:
        report = scheduler.explainer.closest(CONTEXT, request(extra_specs=specs))
    assert report.n_changes == 2
    [group] = report.groups
    assert [change.offered for change in group.changes] == ["QEMU (2)", "8 (2)"]


def test_instances_are_as_many_as_a_decision_places(tmp_path: Path) -> None:
    with _cloud(tmp_path, ("ComputeCapabilitiesFilter",), {}, {}) as scheduler:
        sizes = {"vcpus": 3, "memory_mb": 3000}
        spec = request(extra_specs={_CAPABILITY: "ironic"}, **sizes)
        [group] = scheduler.explainer.closest(CONTEXT, spec).groups
        fitting = request(**sizes)
        n_instances = group.n_instances
        assert n_instances is not None
        assert group.is_exact
        for count, outcome in ((0, Outcome.SELECTED), (1, Outcome.NO_VALID_HOST)):
            n = n_instances + count
            record = scheduler.explainer.dry_run(CONTEXT, fitting, n)
            assert record.outcome is outcome


def test_zone_that_does_not_exist_is_one_to_choose_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zone = {"availability_zone": "north"}
    with _cloud(tmp_path, ("ComputeFilter",), zone, {}) as scheduler:
        # As with the sources push and kafka: no API has checked the zone.
        source = scheduler.parts.source
        monkeypatch.setattr(source, "are_zones_checked", False, raising=True)
        spec = request(availability_zone="south")
        [group] = scheduler.explainer.closest(CONTEXT, spec).groups
        [change] = group.changes
        assert change.text == "in a zone that exists, north, instead of south"
        assert "metadata availability_zone=south" in change.alternative
        assert _fits(scheduler, {"availability_zone": "north"})
