# SPDX-License-Identifier: Apache-2.0
"""A rack fails: its instances are evacuated one by one, by the rules of levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from moorage.objects import InstanceGroup, RequestSpec, Selection
from moorage.scheduler import conf as moorage_conf
from moorage.scheduler.errors import NoValidHost
from moorage.scheduler.service import Scheduler, build

from ...conftest import instance_uuid
from ...fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory

RACKS = ("r1", "r2", "r3", "r4")
GROUP = instance_uuid("group")
Hints = dict[str, list[str]]


def _write(folder: Path, *, failed: str | None) -> Path:
    """Three hosts a rack, of which one rack may be down."""
    return write_inventory(
        folder,
        *(
            host(
                f"{rack}-{n}",
                places={"rack": rack, "row": "a" if rack in RACKS[:2] else "b"},
                forced_down=rack == failed,
            )
            for rack in RACKS
            for n in range(3)
        ),
    )


class Cloud:
    """A cloud of four racks, and the instances of one server group in it."""

    def __init__(self, folder: Path, **options: object) -> None:
        self._folder = folder
        conf = moorage_conf.load([], config_files=[])
        conf.set_override("inventory_file", str(_write(folder, failed=None)), "moorage")
        conf.set_override("levels", ["rack", "row"], group="locality")
        for name, value in options.items():
            conf.set_override(name, value, group="locality")
        self.scheduler: Scheduler = build(conf)
        self.scheduler.start()
        self.hosts: dict[str, str] = {}

    def _spec(self, hints: Hints, policy: str, uuid: str) -> RequestSpec:
        spec = request(instance_uuid=uuid, scheduler_hints=hints)
        spec.instance_group = InstanceGroup(
            uuid=GROUP, policy=policy, members=sorted({*self.hosts, uuid})
        )
        return spec

    def create(self, n: int, hints: Hints, policy: str) -> None:
        for uuid in new_uuids(n):
            spec = self._spec(hints, policy, uuid)
            self.hosts[uuid] = self._select(spec, uuid)

    def _select(self, spec: RequestSpec, uuid: str) -> str:
        [[chosen, *_]] = self.scheduler.select_destinations(
            CONTEXT, spec, [uuid], return_objects=True, return_alternates=True
        )
        assert isinstance(chosen, Selection)
        return chosen.service_host

    def fail(self, rack: str) -> list[str]:
        """Let the hosts of a rack be down; return the instances on them."""
        _write(self._folder, failed=rack)
        self.scheduler.reset()
        return [uuid for uuid, name in self.hosts.items() if name.startswith(rack)]

    def evacuation(self, uuid: str, hints: Hints, policy: str) -> RequestSpec:
        spec = self._spec(hints, policy, uuid)
        spec.ignore_hosts = [self.hosts[uuid]]
        return spec

    def evacuate(self, uuids: Sequence[str], hints: Hints, policy: str) -> None:
        for uuid in uuids:
            spec = self.evacuation(uuid, hints, policy)
            self.hosts[uuid] = self._select(spec, uuid)

    def racks(self) -> Counter[str]:
        return Counter(name.split("-")[0] for name in self.hosts.values())


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    made = Cloud(tmp_path)
    yield made
    made.scheduler.stop()


@pytest.mark.deep
@pytest.mark.parametrize(
    ("policy", "hints", "n", "expected"),
    [
        ("soft-anti-affinity", {"spread_level": ["rack"]}, 9, [3, 3, 3]),
        ("soft-anti-affinity", {"max_server_per_rack": ["3"]}, 9, [3, 3, 3]),
        ("anti-affinity", {"group_level": ["rack"]}, 3, [1, 1, 1]),
        ("anti-affinity", {"max_server_per_rack": ["2"]}, 6, [2, 2, 2]),
        ("soft-affinity", {"group_level": ["rack"]}, 3, [3]),
        ("soft-affinity", {"same_row": [GROUP]}, 3, [3]),
    ],
    ids=["spread", "limit", "apart", "apart and limit", "together", "row"],
)
def test_instances_of_a_failed_rack_keep_the_rules(
    cloud: Cloud, policy: str, hints: Hints, n: int, expected: list[int]
) -> None:
    cloud.create(n, hints, policy)
    failed = max(cloud.racks())
    cloud.evacuate(cloud.fail(failed), hints, policy)
    assert failed not in cloud.racks()
    assert sorted(cloud.racks().values()) == expected


@pytest.mark.parametrize(
    ("policy", "hints", "n", "reason", "available", "change"),
    [
        (
            "soft-anti-affinity", {"max_server_per_rack": ["2"]}, 8,
            "9 rejected (max_server_per_rack: the rack has 2 members)",
            "rack {} has 2 of 2 members", "without max_server_per_rack (",
        ),
        (
            "anti-affinity", {"group_level": ["rack"]}, 4,
            "6 rejected (group_level=rack: the rack has a member of the server group)",
            "rack {} has 1 of 1 members", "without group_level=rack (",
        ),
        (
            "soft-affinity", {"same_rack": [GROUP]}, 3,
            "9 rejected (same_rack: the rack has no member of the server group)",
            "rack {}", "without same_rack (rack ",
        ),
    ],
    ids=["limit", "apart", "together"],
)  # fmt: skip
def test_a_rule_that_no_other_rack_can_keep_is_named(
    cloud: Cloud,
    policy: str,
    hints: Hints,
    n: int,
    reason: str,
    available: str,
    change: str,
) -> None:
    cloud.create(n, hints, policy)
    failed = max(cloud.racks())
    [one, *_] = cloud.fail(failed)
    with pytest.raises(NoValidHost) as caught:
        cloud.evacuate([one], hints, policy)
    assert f"No valid host was found. Of 12 hosts: {reason}, " in str(caught.value)

    spec, explainer = cloud.evacuation(one, hints, policy), cloud.scheduler.explainer
    up = next(rack for rack in RACKS if rack != failed)
    [verdict] = explainer.why_not(CONTEXT, spec, f"{up}-0")
    assert available.format(up) in [each.available for each in verdict.reasons]
    [down] = explainer.why_not(CONTEXT, spec, f"{failed}-0")
    assert "ComputeFilter" in [each.check for each in down.reasons]
    texts = [g.changes[0].text for g in explainer.closest(CONTEXT, spec).groups]
    assert any(text.startswith(change) for text in texts)
    assert "the host's compute service up again" in texts


def test_the_members_of_a_rack_follow_the_first_that_was_moved(cloud: Cloud) -> None:
    hints = {"same_rack": [GROUP]}
    cloud.create(3, hints, "soft-affinity")
    [first, *others] = cloud.fail(max(cloud.racks()))
    # As with the API's `force`, no rule applies to the first one.
    cloud.evacuate([first], {}, "soft-affinity")
    cloud.evacuate(others, hints, "soft-affinity")
    assert sorted(cloud.racks().values()) == [3]


def test_a_start_names_places_of_the_distance_file_without_a_host(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "distances.csv"
    path.write_text("level,from,to,distance\nrow,a,b,1\nrow,a,rwo-c,2\n")
    cloud = Cloud(tmp_path, distance_file=str(path))
    cloud.scheduler.stop()
    warnings = [r.getMessage() for r in caplog.records if "distance_file" in r.message]
    assert warnings == [
        "Places of hosts: [locality] distance_file has 1 place(s) of level row without "
        "a host: rwo-c"
    ]
