# SPDX-License-Identifier: Apache-2.0
"""POST /v1/why-not: what a reason names."""

from __future__ import annotations

from pathlib import Path

from werkzeug.test import Client

from ...fixtures.explaining_api import explaining_api


def test_why_not_names_a_capability_once(tmp_path: Path) -> None:
    filters = ["ComputeCapabilitiesFilter"]
    with explaining_api(tmp_path, filter_scheduler__enabled_filters=filters) as api:
        wanted = {
            "vcpus": 1,
            "memory_mb": 128,
            "extra_specs": {"capabilities:tier": "9"},
        }
        answer = Client(api.app).post(
            "/v1/why-not", json={"host": "h1", "request": {"flavor": wanted}}
        )
        assert answer.json is not None
        [reason] = [
            each
            for each in answer.json["nodes"][0]["reasons"]
            if each["check"] == "ComputeCapabilitiesFilter"
        ]
    assert reason["reason"] == "capability tier is missing or different"
    assert reason["required"] == "9"
