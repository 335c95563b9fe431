# SPDX-License-Identifier: Apache-2.0
"""Aggregates admit images by their properties."""

from __future__ import annotations

from typing import Any

import pytest

from moorage.filters.aggregates import (
    AggregateImagePropertiesIsolation,
)
from moorage.objects import ImageMeta

from ..conftest import aggregate, batch, host, image, options, spec


@pytest.mark.parametrize(
    ("properties", "metadata", "passes"),
    [
        pytest.param({"os_distro": "ubuntu"}, [{}], True, id="nothing said"),
        pytest.param({"os_distro": "ubuntu"}, [{"os_distro": "ubuntu"}], True, id="it"),
        pytest.param({"os_distro": "rhel"}, [{"os_distro": "ubuntu"}], False, id="not"),
        pytest.param({}, [{"os_distro": "ubuntu"}], True, id="an image without it"),
        pytest.param(
            {"os_distro": "rhel"}, [{"os_distro": "ubuntu, rhel"}], True, id="a list"
        ),
        pytest.param(
            {"os_distro": "rhel"},
            [{"os_distro": "ubuntu"}, {"os_distro": "rhel"}],
            True,
            id="two aggregates",
        ),
        pytest.param(
            {"os_distro": "rhel", "hw_disk_bus": "ide"},
            [{"os_distro": "rhel", "hw_disk_bus": "virtio"}],
            False,
            id="one of two properties",
        ),
        pytest.param({"hw_cpu_cores": 4}, [{"hw_cpu_cores": "4"}], True, id="number"),
        pytest.param(
            {"os_require_quiesce": True},
            [{"os_require_quiesce": "False"}],
            False,
            id="truth",
        ),
        pytest.param(
            {"os_require_quiesce": False},
            [{"os_require_quiesce": "True"}],
            True,
            id="what is false is not looked at",
        ),
        pytest.param(
            {"os_distro": "rhel"},
            [{"availability_zone": "z", "no_property": "x", "fields": "x"}],
            True,
            id="no image properties",
        ),
    ],
)
def test_image(
    properties: dict[str, Any], metadata: list[dict[str, str]], passes: bool
) -> None:
    aggregates = [aggregate(i, "host", **each) for i, each in enumerate(metadata)]
    rows, request = (
        batch(host(), aggregates=aggregates),
        spec(image=image(**properties)),
    )
    filter_ = AggregateImagePropertiesIsolation(options())
    assert filter_.passing(rows, request).tolist() == [passes]


@pytest.mark.parametrize("meta", [None, ImageMeta()], ids=["none", "no properties"])
def test_request_without_properties_goes_everywhere(meta: ImageMeta | None) -> None:
    rows = batch(host(), aggregates=[aggregate(1, "host", os_distro="ubuntu")])
    filter_ = AggregateImagePropertiesIsolation(options())
    assert filter_.passing(rows, spec(image=meta)).all()


def test_unusable_namespace_excludes_all_metadata_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    conf = options(aggregate_image_properties_isolation_namespace="os")
    filter_ = AggregateImagePropertiesIsolation(conf)
    rows = batch(host(), aggregates=[aggregate(1, "host", os_distro="ubuntu")])
    for _ in range(2):
        assert filter_.passing(rows, spec(image=image(os_distro="rhel"))).all()
    (record,) = [r for r in caplog.records if r.name.startswith("moorage")]
    assert "'os.'" in record.getMessage()


def test_rejection_names_the_property() -> None:
    rows = batch(host(), aggregates=[aggregate(1, "host", os_distro="a,b")])
    filter_ = AggregateImagePropertiesIsolation(options())
    reason = filter_.explain_rejection(rows[0], spec(image=image(os_distro="rhel")))
    assert reason is not None
    assert (reason.attribute, reason.required, reason.available) == (
        "aggregates' os_distro",
        "rhel",
        "a, b",
    )
