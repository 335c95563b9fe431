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
from moorage.scheduler.drivers.restrictions import REQUIRED
from moorage.scheduler.drivers.user_reasons import MAX_BYTES, count_causes
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.request import Request
from moorage.scheduler.service import Scheduler, build

from ...conftest import host as record_of
from ...conftest import spec, table
from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

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


def test_hosts_that_are_full_of_the_same_request_are_counted(refuse: Refuse) -> None:
    reason = refuse(THREE, request(vcpus=4, num_instances=7), 7)
    assert reason == "Of 3 hosts: 3 have no room left."


@pytest.mark.parametrize("vcpus", [99, 1])
def test_option_keeps_novas_words(refuse: Refuse, vcpus: int) -> None:
    reason = refuse(DOWN, request(vcpus=vcpus), moorage__user_reasons="nova")
    assert reason == ("" if vcpus == 99 else "There are not enough hosts available.")


def test_reason_of_more_use_than_counts_is_kept(refuse: Refuse) -> None:
    assert "No such host" in refuse(THREE, request(force_hosts=["h9"]))


def _reason(steps: list[FilterStep], n_hosts: int = 1, **changes: Any) -> str:
    hosts = [record_of(host=f"secret-{n}") for n in range(n_hosts)]
    made = table(*hosts)
    record = DecisionRecord(None, (), 1, 0.0, steps=steps, n_hosts=n_hosts)
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


def test_only_the_last_pass_of_filters_is_counted() -> None:
    steps = [
        FilterStep("A", 5, 4, "one"),
        FilterStep("B", 4, 0, "two"),
        FilterStep("force_hosts", 5, 3, REQUIRED),
        FilterStep("A", 3, 1, "one"),
        FilterStep("B", 1, 0, "rejected by the filter"),
    ]
    assert _reason(steps, 5) == (
        "Of 5 hosts: 2 excluded by the request, 2 rejected (one), 1 rejected by B."
    )


def test_hosts_that_others_took_meanwhile_are_counted() -> None:
    # Placement refused the claim of one that had passed, and the others were filtered.
    refused = [
        FilterStep("A", 5, 4, "one"),
        FilterStep("B", 4, 2, "two"),
        FilterStep("A", 1, 1, "one"),
        FilterStep("B", 1, 0, "two"),
    ]
    assert _reason(refused, 5) == (
        "Of 5 hosts: 3 rejected (two), 1 rejected (one), 1 was taken by other requests."
    )
    # Other requests had used up the candidates of two before the filters ran.
    used_up = [FilterStep("A", 3, 0, "one")]
    assert _reason(used_up, 5) == (
        "Of 5 hosts: 3 rejected (one), 2 were taken by other requests."
    )


def test_control_characters_do_not_reach_the_user() -> None:
    reason = _reason([FilterStep("A", 1, 0, "a\x1b[31m\nb\x00")])
    assert reason == "Of 1 host: 1 rejected (a?[31m?b?)."
