# SPDX-License-Identifier: Apache-2.0
"""POST /v1/closest: of several instances, and of hosts that a request names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from moorage.objects import Destination

from ...fixtures.clouds import new_uuids
from ...fixtures.explaining_api import ExplainingAPI, decide, explaining_api

SMALL = {"flavor": {"vcpus": 1, "memory_mb": 128}}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    with explaining_api(tmp_path_factory.mktemp("closest")) as made:
        yield made


def _closest(api: ExplainingAPI, **body: Any) -> Any:
    answer = Client(api.app).post("/v1/closest", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json


def _fits(api: ExplainingAPI, count: int) -> bool:
    body = {"request": SMALL, "count": count}
    answer = Client(api.app).post("/v1/dry-run", json=body).json
    assert answer is not None
    return bool(answer["decision"]["outcome"] == "selected")


def test_one_instance_fits_if_a_host_passes(api: ExplainingAPI) -> None:
    answer = _closest(api, request=SMALL)
    assert answer["n_passing"] > 0
    assert (answer["n_instances"], answer["n_fitting"]) == (1, 1)
    assert answer["refusal"] == ""


def test_of_several_as_many_fit_as_a_decision_would_place(api: ExplainingAPI) -> None:
    answer = _closest(api, request=SMALL, count=100)
    n_fitting = answer["n_fitting"]
    assert answer["n_passing"] <= n_fitting < 100
    assert _fits(api, n_fitting)
    assert not _fits(api, n_fitting + 1)
    assert answer["refusal"].startswith("Of 5 hosts: ")
    small = _closest(api, request=SMALL, count=n_fitting)
    assert (small["n_fitting"], small["refusal"]) == (n_fitting, "")


def test_stored_request_is_for_as_many_as_it_was(api: ExplainingAPI) -> None:
    decide(api.scheduler, "req-many", new_uuids(99), memory_mb=128, root_gb=0)
    api.store.flush()
    answer = _closest(api, stored="req-many")
    assert answer["n_instances"] == 99
    assert 0 < answer["n_fitting"] < 99


@pytest.mark.parametrize("host", ["h1", "nowhere"])
def test_host_that_is_requested_without_a_node_is_no_error(
    api: ExplainingAPI, host: str
) -> None:
    """As a migration asks, whose host may be gone when it is explained."""
    asked = Destination(host=host, node=None, cell=None, aggregates=None)
    id_ = f"req-to-{host}"
    decide(api.scheduler, id_, new_uuids(), vcpus=512, requested_destination=asked)
    api.store.flush()
    answer = _closest(api, stored=id_)
    assert answer["n_passing"] == 0
    without = {c["check"] for g in answer["groups"] for c in g["changes"]}
    assert without <= {"requested_destination host", "VCPU", "MEMORY_MB", "DISK_GB"}


@pytest.mark.parametrize("host", ["h1", "nowhere"])
def test_host_that_is_requested_may_be_what_has_to_change(
    api: ExplainingAPI, host: str
) -> None:
    asked = Destination(host=host, node=None, cell=None, aggregates=None)
    decide(
        api.scheduler, f"req-2-{host}", new_uuids(), memory_mb=128, root_gb=0,
        requested_destination=asked, ignore_hosts=["h1"],
    )  # fmt: skip
    api.store.flush()
    answer = _closest(api, stored=f"req-2-{host}")
    assert answer["n_passing"] == 0
    checks = [c["check"] for g in answer["groups"] for c in g["changes"]]
    assert "requested_destination host" in checks
