# SPDX-License-Identifier: Apache-2.0
"""Hosts have to know the disk format of an image."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.objects import ImageMeta
from moorage.scheduler.placement.query import Requirements
from moorage.scheduler.prefilters.traits import require_image_type_support

from .surroundings import required, root

GATE = "query_placement_for_image_type_support"
QCOW2 = ImageMeta(disk_format="qcow2")


@pytest.mark.parametrize(
    ("fields", "traits"),
    [
        ({"image": QCOW2}, ["COMPUTE_IMAGE_TYPE_QCOW2"]),
        ({"image": QCOW2, "is_bfv": False}, ["COMPUTE_IMAGE_TYPE_QCOW2"]),
        ({"image": QCOW2, "is_bfv": True}, []),
        ({"image": ImageMeta(disk_format="")}, []),
        ({"image": ImageMeta()}, []),
        ({"image": None}, []),
    ],
)
def test_format(fields: dict[str, Any], traits: list[str]) -> None:
    found = required(require_image_type_support, on=(GATE,), **fields)
    assert found == root(*traits)


def test_format_without_a_trait_is_logged_and_not_required(
    caplog: pytest.LogCaptureFixture,
) -> None:
    odd = ImageMeta(disk_format="odd")
    found = required(require_image_type_support, on=(GATE,), image=odd)
    assert found == Requirements()
    assert "COMPUTE_IMAGE_TYPE_ODD" in caplog.text
