# SPDX-License-Identifier: Apache-2.0
"""The reason that an end user sees has counts by cause, and no host's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from moorage.objects import Destination
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.drivers.record import DecisionRecord, FilterStep
from moorage.scheduler.drivers.user_reasons import MAX_BYTES, count_causes
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.request import Request
from moorage.scheduler.service import Scheduler, build

from ...conftest import host as record_of
from ...conftest import spec, table
from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ...fixtures.faulty_cloud import FaultyCloud
from ...fixtures.faulty_placement import FaultKind

Refuse = Callable[..., str]

_ZONES = [
    {"name": zone, "hosts": hosts, "metadata": {"availability_zone": zone}}
    for zone, hosts in (("a", ["h1", "h2"]), ("b", ["h3"]))
]


@pytest.fixture
def refuse(tmp_path: Path) -> Iterator[Refuse]:
    """Return the reason of a request that does not fit a cloud."""
    made: list[Scheduler] = []

    def refuse(
        hosts: list[dict[str, Any]], asked: Any, n: int = 1, **options: Any
    ) -> str:
        path = write_inventory(tmp_path, *hosts, aggregates=_ZONES)
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(path), group="moorage")
        for name, value in options.items():
            group, _, option = name.partition("__")
            conf.set_override(option, value, group=group)
        made.append(build(conf))
        made[-1].start()
        with pytest.raises(NoValidHost) as raised:
            made[-1].select_destinations(CONTEXT, asked, new_uuids(n))
        [record] = made[-1].decisions.newest(1)
        assert record.user_message == str(raised.value)
        return raised.value.reason

    yield refuse
    for scheduler in made:
        scheduler.stop()


THREE = [host("h1"), host("h2"), host("h3")]
DOWN = [host(f"h{n}", forced_down=True) for n in (1, 2, 3)]


@pytest.mark.parametrize(
    ("hosts", "asked", "reason"),
    [
        pytest.param(THREE, {"vcpus": 99}, "Of 3 hosts: 3 lack CPUs.", id="CPUs"),
        pytest.param(
            THREE,
            {"memory_mb": 1 << 30},
            "Of 3 hosts: 3 lack memory.",
            id="memory",
        ),
        pytest.param(
            THREE,
            {"vcpus": 99, "availability_zone": "b"},
            "Of 3 hosts: 2 are not in zone b, 1 lacks CPUs.",
            id="zone and CPUs",
        ),
        pytest.param(
            [*THREE[:2], host("h3", disabled=True)],
            {"force_hosts": ["h3"]},
            "Of 3 hosts: 2 excluded by the request, 1 is disabled.",
            id="the requested host is disabled",
        ),
        pytest.param(
            DOWN,
            {},
            "Of 3 hosts: 3 rejected (compute service disabled or down).",
            id="a filter",
        ),
        pytest.param(
            THREE,
            {"extra_specs": {"trait:HW_CPU_X86_AVX2": "required"}},
            "Of 3 hosts: 3 lack trait HW_CPU_X86_AVX2 or room in Placement.",
            id="a trait",
        ),
        pytest.param(
            [host(f"h{n}", cpu_allocation_ratio=16.0) for n in (1, 2, 3)],
            {"vcpus": 99},
            "Of 3 hosts: 3 allow one instance fewer CPUs.",
            id="more than one instance may have",
        ),
    ],
)
def test_hosts_are_counted_by_cause(
    refuse: Refuse, hosts: list[dict[str, Any]], asked: dict[str, Any], reason: str
) -> None:
    assert refuse(hosts, request(**asked)) == reason


DRIVERS = pytest.mark.parametrize("driver", ["filter_scheduler", "solver", "chance"])
SOURCES = pytest.mark.parametrize("candidates", ["placement", "memory"])
RACKED = [host(f"h{n}", places={"rack": f"r{n % 2}"}) for n in (1, 2, 3)]


@DRIVERS
@SOURCES
def test_hosts_that_are_full_of_the_same_request_are_counted(
    refuse: Refuse, driver: str, candidates: str
) -> None:
    reason = refuse(
        THREE, request(vcpus=4, num_instances=7), 7,
        moorage__driver=driver, moorage__candidates=candidates,
    )  # fmt: skip
    assert reason == "Of 3 hosts: 3 are full of instances of this request."


@DRIVERS
@SOURCES
@pytest.mark.parametrize(
    ("options", "asked", "reason"),
    [
        pytest.param(
            {"filter_scheduler__max_instances_per_host": 1},
            {},
            "Of 4 hosts: 3 are full of instances of this request, 1 rejected (compute "
            "service disabled or down).",
            id="a filter that counts them",
        ),
        pytest.param(
            {"locality__levels": ["rack"]},
            {"scheduler_hints": {"max_server_per_rack": ["1"]}},
            "Of 4 hosts: 3 rejected (max_server_per_rack: the rack has an instance of "
            "this request), 1 rejected (compute service disabled or down).",
            id="a rule about places",
        ),
        pytest.param(
            {"locality__levels": ["rack"]},
            {"scheduler_hints": {"max_server_per_rack": ["1"]}, "vcpus": 8},
            "Of 4 hosts: 3 rejected (max_server_per_rack: the rack has an instance of "
            "this request), 1 rejected (compute service disabled or down).",
            id="a rule about places, and hosts that are full",
        ),
    ],
)
def test_what_a_request_does_to_itself_is_not_blamed_on_others(
    refuse: Refuse,
    driver: str,
    candidates: str,
    options: dict[str, Any],
    asked: dict[str, Any],
    reason: str,
) -> None:
    hosts = [*RACKED, host("h4", forced_down=True, places={"rack": "r1"})]
    options = {
        "moorage__driver": driver,
        "moorage__candidates": candidates,
        "filter_scheduler__enabled_filters": [
            "ComputeFilter", "NumInstancesFilter", "LocalityFilter",
        ],
        **options,
    }  # fmt: skip
    assert refuse(hosts, request(num_instances=5, **asked), 5, **options) == reason


@pytest.mark.parametrize("vcpus", [99, 1])
def test_option_keeps_novas_words(refuse: Refuse, vcpus: int) -> None:
    reason = refuse(DOWN, request(vcpus=vcpus), moorage__user_reasons="nova")
    assert reason == ("" if vcpus == 99 else "There are not enough hosts available.")


def test_reason_of_more_use_than_counts_is_kept(refuse: Refuse) -> None:
    assert "No such host" in refuse(THREE, request(force_hosts=["h9"]))


def _reason(steps: list[FilterStep], n_hosts: int = 1, **changes: Any) -> str:
    hosts = [record_of(host=f"secret-{n}") for n in range(n_hosts)]
    made = table(*hosts)
    n_in = steps[0].n_in
    record = DecisionRecord(None, (), 1, 0.0, steps=steps, n_hosts=n_in)
    batch = made.batch()
    return count_causes(
        record, Request.of(spec(**changes)), batch, made.aggregates, batch.uuid.tolist()
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"availability_zone": "z" * 300},
        {"availability_zone": "ü" * 300},
        {"requested_destination": Destination(host="secret-1")},
    ],
)
def test_reason_fits_what_nova_stores(changes: dict[str, Any]) -> None:
    steps = [
        FilterStep(f"F{n}", 10 - n, 9 - n, f"{chr(233 + n) * 60} reason")
        for n in range(9)
    ]
    reason = _reason(steps, 10, **changes)
    assert len(reason.encode()) <= MAX_BYTES
    assert reason.endswith(", others for other reasons.")
    assert "secret" not in reason


@pytest.mark.parametrize("n_instances", [1, 3])
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        pytest.param(None, "2 were taken by other requests", id="taken"),
        pytest.param(
            FaultKind.PROVIDER_CONFLICT, "2 were busy with other requests", id="busy"
        ),
    ],
)
def test_hosts_whose_claims_are_refused_are_counted_as_what_they_are(
    tmp_path: Path, n_instances: int, kind: FaultKind | None, reason: str
) -> None:
    with FaultyCloud(tmp_path, ["h1", "h2"]) as cloud:
        made, uuids = cloud.make(), new_uuids(n_instances)
        if kind is None:
            # Another scheduler fills both hosts after the candidates were read.
            other = cloud.make()
            made.adapter.before(
                lambda call: any(call.allocations_of(uuid) for uuid in uuids),
                lambda: other.select(new_uuids(2), vcpus=8),
            )
        else:
            made.adapter.fault(
                kind, lambda call: call.verb in ("PUT", "POST"), times=None
            )
        with pytest.raises(NoValidHost) as raised:
            made.select(uuids)
    assert raised.value.reason == f"Of 2 hosts: {reason}."


def test_host_that_placement_left_out_for_an_unknown_reason(tmp_path: Path) -> None:
    with FaultyCloud(tmp_path, ["h1", "h2"]) as cloud:
        cloud.make().select(new_uuids(2), vcpus=8)
        # It does not know of the other's claims.
        with pytest.raises(NoValidHost) as raised:
            cloud.make().select(new_uuids())
    assert raised.value.reason == "Of 2 hosts: 2 were not offered by Placement."


def test_hosts_without_a_candidate_left_were_taken_by_others() -> None:
    # Other requests had used up the candidates of two before the filters ran.
    used_up = [FilterStep("A", 3, 0, "one")]
    assert _reason(used_up, 5) == (
        "Of 5 hosts: 3 rejected (one), 2 were taken by other requests."
    )


def test_hosts_of_which_nothing_is_known_are_not_blamed_on_others() -> None:
    passed = [FilterStep("A", 5, 4, "one", 0)]
    assert _reason(passed, 5) == (
        "Of 5 hosts: 4 failed for unknown reasons, 1 rejected (one)."
    )


def test_control_characters_do_not_reach_the_user() -> None:
    reason = _reason([FilterStep("A", 1, 0, "a\x1b[31m\nb\x00")])
    assert reason == "Of 1 host: 1 rejected (a?[31m?b?)."
