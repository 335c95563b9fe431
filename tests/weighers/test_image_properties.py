# SPDX-License-Identifier: Apache-2.0
"""Hosts are weighed by the image properties of the instances they have."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import ImageMeta
from moorage.scheduler.hosts import Consumption, HostTable, properties_of_image
from moorage.weighers.image_properties import ImagePropertiesWeigher

from ..conftest import (
    aggregate,
    hosts,
    image,
    instance_uuid,
    node_uuid,
    options,
    spec,
    table,
)

UBUNTU = image(os_distro="ubuntu", hw_disk_bus="virtio")
ARCH = image(os_distro="arch", hw_disk_bus="virtio")
IMAGES = {"u1": UBUNTU, "u2": UBUNTU, "a1": ARCH}


def cloud(**more: Any) -> HostTable:
    """Hosts a with two Ubuntus, b with an Arch, c with an unknown instance."""
    made = table(*hosts("free_ram_mb", [1, 2, 3]), **more)
    on = {"a": ["u1", "u2"], "b": ["a1"], "c": ["unknown"]}
    for host, names in on.items():
        uuids = {name: instance_uuid(name) for name in names}
        known = {u: properties_of_image(IMAGES.get(n)) for n, u in uuids.items()}
        made.add_instances(host, list(uuids.values()), known)
    return made


def weigher(multiplier: float = 1.0, setting: Any = ()) -> ImagePropertiesWeigher:
    return ImagePropertiesWeigher(
        options(
            image_props_weight_multiplier=multiplier,
            image_props_weight_setting=list(setting),
        )
    )


@pytest.mark.parametrize(
    ("meta", "setting", "raw"),
    [
        pytest.param(UBUNTU, [], [4, 1, 0], id="every property counts"),
        pytest.param(UBUNTU, ["os_distro=2"], [4, 0, 0], id="one with a factor"),
        pytest.param(
            UBUNTU, ["os_distro=2", "hw_disk_bus=-0.5"], [3, -0.5, 0], id="two"
        ),
        pytest.param(UBUNTU, ["os_type=1"], [0, 0, 0], id="another property"),
        pytest.param(image(), [], [0, 0, 0], id="no properties"),
        pytest.param(None, [], [0, 0, 0], id="no image"),
    ],
)
def test_instances_that_share_properties_count(
    meta: ImageMeta | None, setting: list[str], raw: list[float]
) -> None:
    weights = weigher(setting=setting).weigh_all(cloud().batch(), spec(image=meta))
    assert weights.tolist() == raw


def test_multiplier_of_an_aggregate_alone_takes_effect() -> None:
    mine = aggregate(1, "b", image_props_weight_multiplier="2")
    rows = cloud(aggregates=[mine]).batch()
    made = weigher(0.0)
    assert not made.is_off(rows)
    assert made.weigh_all(rows, spec(image=UBUNTU)).tolist() == [4, 1, 0]
    assert made.multipliers(rows).tolist() == [0, 2, 0]


def test_nothing_is_counted_while_all_multipliers_are_0() -> None:
    assert weigher(0.0).is_off(cloud().batch())
    assert not weigher().is_off(cloud().batch())


CLAIM = Consumption(
    memory_mb=1, disk_mb=1, vcpus=1, image_properties=properties_of_image(UBUNTU)
)


def test_claims_count_until_they_are_given_back() -> None:
    made, claimed = cloud(), instance_uuid("claimed")
    made.claims.consume(node_uuid("c"), claimed, CLAIM)
    spec_obj = spec(image=UBUNTU)
    assert weigher().weigh_all(made.batch(), spec_obj).tolist() == [4, 1, 2]
    made.claims.release("c", claimed)
    assert weigher().weigh_all(made.batch(), spec_obj).tolist() == [4, 1, 0]


def test_instances_that_this_request_placed_count() -> None:
    rows = cloud().batch().with_instance(2, instance_uuid("placed"), CLAIM)
    assert weigher().weigh_all(rows, spec(image=UBUNTU)).tolist() == [4, 1, 2]


def test_instances_that_left_do_not_count() -> None:
    made = cloud()
    made.set_instances("a", [instance_uuid("u1")])
    weights = weigher().weigh_all(made.batch(), spec(image=UBUNTU))
    assert weights.tolist() == [2, 1, 0]


def test_instance_that_moves_counts_on_both_hosts() -> None:
    made = cloud()
    made.add_instances("b", [instance_uuid("u1")])
    weights = weigher().weigh_all(made.batch(), spec(image=UBUNTU))
    assert weights.tolist() == [4, 3, 0]
