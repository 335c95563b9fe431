# SPDX-License-Identifier: Apache-2.0
"""Each source of hosts leads to the same hosts and explanations, also after a restart.

The combinations of drivers, candidates, places and storage are those of a file's hosts.
"""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from werkzeug.test import Client

from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler
from moorage.scheduler.web import Answers, make_app

from ...fixtures.placed_clouds import (
    RACK_OF,
    ROW_OF,
    CloudKind,
    chosen_hosts,
    placed_processes,
    placing,
    uuid_of,
)

ONE = uuid_of("an instance in rack r1")

DRIVERS, CANDIDATES = ("filter_scheduler", "solver"), ("memory", "api")
PLACES = ("aggregates", "placement")

#: Each pair of two properties, except those of Kafka, is among these, which are quick.
QUICK = [
    CloudKind("filter_scheduler", "memory", "aggregates", False, "push"),
    CloudKind("solver", "api", "placement", True, "push"),
    CloudKind("filter_scheduler", "api", "placement", False, "nova_db"),
    CloudKind("solver", "memory", "aggregates", True, "nova_db"),
    CloudKind("filter_scheduler", "api", "aggregates", True, "file"),
    CloudKind("solver", "memory", "placement", False, "file"),
]
#: Each three properties with each source, and all four with two sources: half of all.
ALL = [
    CloudKind(
        DRIVERS[i], CANDIDATES[j], PLACES[k], bool((i + j + k + half) % 2), source
    )
    for source, half in (("file", 1), ("push", 0), ("nova_db", 0), ("kafka", 1))
    for i, j, k in itertools.product(range(2), repeat=3)
]

#: Hints of a request for four instances, and how many get a rack.
SPREAD = {"in_row": ["B"], "spread_level": ["rack"]}
APART = {"different_row": [ONE], "spread_level": ["rack"]}


def _kinds() -> list[Any]:
    marks = {
        "kafka": [
            pytest.mark.kafka,
            pytest.mark.deep,
            pytest.mark.xdist_group("kafka"),
        ]
    }
    others = [
        pytest.param(each, id=str(each), marks=marks.get(each.source, pytest.mark.deep))
        for each in ALL
        if each not in QUICK
    ]
    return [*(pytest.param(each, id=str(each)) for each in QUICK), *others]


def _racks(scheduler: Scheduler, n_instances: int, **changes: Any) -> Counter[str]:
    hosts = chosen_hosts(scheduler, *placing(n_instances, **changes))
    return Counter(RACK_OF.get(host, "nowhere") for host in hosts)


def _answer(api: Scheduler, path: str, **body: Any) -> Any:
    client = Client(make_app(Answers(api.explainer, None)))
    flavor = {"vcpus": 1, "memory_mb": 1024, "root_gb": 10}
    wanted = {"flavor": flavor, "project_id": "project", **body.pop("request")}
    answer = client.post(f"/v1/{path}", json={"request": wanted, **body})
    assert answer.status_code == 200, answer.text
    return answer.json


@pytest.mark.parametrize("kind", _kinds())
def test_each_source_means_the_same(kind: CloudKind, tmp_path: Path) -> None:
    with placed_processes(kind, tmp_path, {"a": [ONE]}) as start:
        before = start()
        _check_decisions(kind, before)
        before.stop()
        _check_decisions(kind, start())  # which no agent has reported to
        _check_answers(start())  # as moorage-api


def _check_decisions(kind: CloudKind, scheduler: Scheduler) -> None:
    assert _racks(scheduler, 4, scheduler_hints=SPREAD) == {"r2": 2, "r3": 2}
    assert _racks(scheduler, 4, scheduler_hints=APART) == {"r2": 2, "r3": 2}
    one = _racks(scheduler, 1, scheduler_hints={"same_rack": [ONE]})
    assert one == {"r1": 1}
    if not kind.is_shared:  # the pool is not in the zone's aggregate
        assert not _racks(scheduler, 2, availability_zone="az1")["nowhere"]
    with pytest.raises(NoValidHost, match="no host is in rack"):
        _racks(scheduler, 1, scheduler_hints={"in_rack": ["r9"]})


def _check_answers(api: Scheduler) -> None:
    """Check what moorage-api says of a request that only the hosts of row B serve."""
    wanted = {"hints": {"in_row": ["B"]}}
    passing = {
        name
        for name in (*RACK_OF, "x")
        if _answer(api, "why-not", host=name, request=wanted)["nodes"][0]["passes"]
    }
    assert passing == {name for name, rack in RACK_OF.items() if ROW_OF[rack] == "B"}
    for count in (1, 4):
        found = _answer(api, "dry-run", count=count, request=wanted)["decision"]
        assert len(found["instances"]) == count
        assert {each["host"] for each in found["instances"]} <= passing
    closest = _answer(api, "closest", request={"hints": {"in_rack": ["r9"]}})
    assert closest["n_passing"] == 0
    zones = {each.host: each.zone for each in api.explainer.hosts().hosts}
    assert zones == {**dict.fromkeys(RACK_OF, "az1"), "x": "nova"}
