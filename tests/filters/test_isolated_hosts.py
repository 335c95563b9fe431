# SPDX-License-Identifier: Apache-2.0
"""Isolated images and isolated hosts are for each other."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.filters.isolated_hosts import IsolatedHostsFilter
from moorage.objects import ImageMeta

from ..conftest import batch, hosts, instance_uuid, options, spec

IMAGE = instance_uuid("isolated image")
ROWS = batch(*hosts("free_ram_mb", [1, 2]))  # a is isolated, b is not


def _passing(
    image: Any, *, restrict: bool, images: tuple[str, ...] = (IMAGE,)
) -> tuple[str, Any]:
    filter_ = IsolatedHostsFilter(
        options(
            isolated_hosts=["a", "B"],
            isolated_images=list(images),
            restrict_isolated_hosts_to_isolated_images=restrict,
        )
    )
    spec_obj = spec(image=image)
    reasons = [filter_.explain_rejection(row, spec_obj) for row in ROWS]
    return "".join(ROWS.host[filter_.passing(ROWS, spec_obj)]), reasons


@pytest.mark.parametrize(
    ("image", "restrict", "passing"),
    [
        pytest.param(ImageMeta(id=IMAGE), True, "a", id="isolated, restricted"),
        pytest.param(ImageMeta(id=IMAGE), False, "a", id="isolated"),
        pytest.param(
            ImageMeta(id=instance_uuid("x")), True, "b", id="other, restricted"
        ),
        pytest.param(ImageMeta(id=instance_uuid("x")), False, "ab", id="other"),
        pytest.param(ImageMeta(), True, "b", id="an image without ID, restricted"),
        pytest.param(ImageMeta(), False, "ab", id="an image without ID"),
        pytest.param(None, True, "b", id="no image, restricted"),
        pytest.param(None, False, "ab", id="no image"),
    ],
)
def test_image(image: ImageMeta | None, restrict: bool, passing: str) -> None:
    assert _passing(image, restrict=restrict)[0] == passing


@pytest.mark.parametrize(("restrict", "passing"), [(True, "b"), (False, "ab")])
def test_no_isolated_images(restrict: bool, passing: str) -> None:
    image = ImageMeta(id=IMAGE)
    assert _passing(image, restrict=restrict, images=())[0] == passing


def test_rejection_names_the_hosts() -> None:
    isolated, other = _passing(None, restrict=True)[1]
    assert other is None
    assert (isolated.required, isolated.available) == (
        "none of isolated_hosts: a, B",
        "a",
    )
    assert _passing(ImageMeta(id=IMAGE), restrict=True)[1][1].required == (
        "one of isolated_hosts: a, B"
    )
