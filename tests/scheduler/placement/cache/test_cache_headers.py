# SPDX-License-Identifier: Apache-2.0
"""Placement's cache headers allow a client to save nothing."""

from __future__ import annotations

from ..watched import Cloud


def test_placement_answers_no_conditional_get_with_304(cloud: Cloud) -> None:
    """So an answer cannot be revalidated for less than the first one cost."""
    adapter = cloud.placement.adapter
    version = {"OpenStack-API-Version": "placement 1.36"}
    for path in ("/allocation_candidates?resources=VCPU:1", "/resource_providers"):
        first = adapter.get(path, headers=version)
        assert first.headers["Cache-Control"] == "no-cache"
        assert "ETag" not in first.headers
        since = {"If-Modified-Since": first.headers["Last-Modified"]}
        for condition in (since, {"If-None-Match": "*"}):
            again = adapter.get(path, headers={**version, **condition})
            assert (again.status_code, again.json()) == (200, first.json())
