# SPDX-License-Identifier: Apache-2.0
"""The embedded Placement: one per process, quiet, thread-safe, stored in a file."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.placement.adapter import AnswerLost, Verb
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import Provider, seed

UUID = "3b1e0f5c-8f6a-4d5e-9d38-0d0f1b1f9a01"

CONSUMER = "3b1e0f5c-8f6a-4d5e-9d38-0d0f1b1f9c01"
CLAIM = {
    "allocations": {UUID: {"resources": {"VCPU": 3}}},
    "consumer_generation": None,
    "project_id": "p",
    "user_id": "u",
}
HOSTS = [
    Provider(
        uuid=f"{UUID[:-2]}{number:02x}",
        name=f"host{number}",
        inventories={"VCPU": {"total": 8}},
        traits=frozenset({"CUSTOM_FAST"}),
    )
    for number in range(1, 200)
]


def _add(placement: EmbeddedPlacement, uuid: str = UUID) -> None:
    body = {"name": uuid, "uuid": uuid}
    answer = PlacementClient(placement.adapter).write(
        Verb.POST, "/resource_providers", body
    )
    assert answer.is_done


def _names(placement: EmbeddedPlacement) -> list[str]:
    body: Any = PlacementClient(placement.adapter).read("/resource_providers")
    return [p["name"] for p in body["resource_providers"]]


def test_needed_microversions_are_supported():
    with EmbeddedPlacement() as placement:
        PlacementClient(placement.adapter).check()


def test_memory_starts_empty_each_time():
    with EmbeddedPlacement() as placement:
        _add(placement)
        assert _names(placement) == [UUID]
    with EmbeddedPlacement() as placement:
        assert _names(placement) == []


def test_file_survives_a_restart(tmp_path):
    path = str(tmp_path / "placement.db")
    with EmbeddedPlacement(path) as placement:
        _add(placement)
    with EmbeddedPlacement(path) as placement:
        assert _names(placement) == [UUID]


def test_second_one_in_the_process_is_refused():
    with (
        EmbeddedPlacement(),
        pytest.raises(ConfigurationError, match="open in this process already"),
    ):
        EmbeddedPlacement()


def test_closing_twice_is_fine():
    placement = EmbeddedPlacement()
    placement.close()
    placement.close()
    with EmbeddedPlacement():
        pass


def _refused(path: str) -> str:
    """Open it in another process; return what that says."""
    script = (
        "import sys\n"
        "from moorage.scheduler.placement.embedded import EmbeddedPlacement\n"
        "EmbeddedPlacement(sys.argv[1])\n"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, path], capture_output=True, text=True
    )
    assert other.returncode != 0
    return other.stderr


def test_error_of_a_second_process_names_file_and_process(tmp_path):
    path = tmp_path / "placement.db"
    with EmbeddedPlacement(str(path)):
        error = _refused(str(path))
    assert "ConfigurationError: [moorage] embedded_placement_database" in error
    assert f"{path} is used by another process, {os.getpid()}." in error


def test_link_to_the_file_is_locked_too(tmp_path):
    path, link = tmp_path / "placement.db", tmp_path / "link.db"
    link.symlink_to(path)
    with EmbeddedPlacement(str(path)):
        assert f"{path} is used by another process" in _refused(str(link))


_SEEDS_UNTIL_KILLED = """
import sys
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from tests.scheduler.placement.test_embedded import CLAIM, CONSUMER, HOSTS

client = PlacementClient(EmbeddedPlacement(sys.argv[1]).adapter)
seed(client, HOSTS[:1])
assert client.put_allocations(CONSUMER, CLAIM).is_done
seed(client, HOSTS, progress=lambda n, total: print(n, flush=True))
"""


@pytest.mark.deep
def test_killed_process_leaves_a_file_that_is_whole_and_free(tmp_path):
    path = str(tmp_path / "placement.db")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SEEDS_UNTIL_KILLED, path],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:
        assert other.stdout is not None
        lines = [other.stdout.readline().strip() for _ in range(3)]
        other.kill()
    assert (lines, other.returncode) == (["1", "2", "3"], -signal.SIGKILL)
    with EmbeddedPlacement(path) as placement:
        client = PlacementClient(placement.adapter)
        assert set(_names(placement)) >= {p.name for p in HOSTS[:3]}
        assert client.allocations(CONSUMER).resources == {UUID: {"VCPU": 3}}
        assert 0 < seed(client, HOSTS) <= len(HOSTS) - 3
        assert sorted(_names(placement)) == sorted(p.name for p in HOSTS)
        assert seed(client, HOSTS) == 0


def test_file_whose_creation_was_interrupted_is_completed(tmp_path):
    path = str(tmp_path / "placement.db")
    with EmbeddedPlacement(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP TABLE alembic_version")
        database.execute("DROP TABLE inventories")
    with EmbeddedPlacement(path) as placement:
        assert seed(PlacementClient(placement.adapter), HOSTS[:1]) == 1


def test_file_of_another_program_is_rejected(tmp_path):
    path = tmp_path / "placement.db"
    path.write_text("hosts:\n" * 1000)
    with pytest.raises(ConfigurationError, match=r"placement\.db cannot be used as"):
        EmbeddedPlacement(str(path))


def test_file_of_a_newer_placement_is_rejected(tmp_path):
    path = str(tmp_path / "placement.db")
    with EmbeddedPlacement(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE alembic_version SET version_num = 'ffffffffffff'")
        database.commit()
    with pytest.raises(ConfigurationError, match="ffffffffffff"):
        EmbeddedPlacement(path)


@pytest.mark.parametrize("name", ["a b.db", "what?.db", "50%.db", "é#.db"])
def test_file_may_have_any_name(tmp_path, name):
    path = tmp_path / name
    with EmbeddedPlacement(str(path)) as placement:
        _add(placement)
    assert path.exists()


def test_memory_is_kept_for_longer_than_a_connection_usually_is(monkeypatch):
    with EmbeddedPlacement() as placement:
        _add(placement)
        now = time.time()
        monkeypatch.setattr(time, "time", lambda: now + 7 * 86400)
        assert _names(placement) == [UUID]


def test_failed_opening_leaves_room_for_another(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        EmbeddedPlacement(str(tmp_path / "missing" / "placement.db"))
    with EmbeddedPlacement():
        pass


def test_missing_placement_is_reported_with_its_remedy():
    script = (
        "import sys\n"
        "sys.modules['placement'] = None\n"
        "from moorage.scheduler.placement.embedded import EmbeddedPlacement\n"
        "EmbeddedPlacement()\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "extra embedded" in run.stderr
    assert "ConfigurationError" in run.stderr


def test_it_is_quiet_and_leaves_argv_and_the_global_conf_alone():
    script = (
        "import sys, uuid\n"
        "from oslo_config import cfg\n"
        "from moorage.scheduler.placement.client import PlacementClient\n"
        "from moorage.scheduler.placement.embedded import EmbeddedPlacement\n"
        "assert 'placement' not in sys.modules\n"
        "with EmbeddedPlacement() as placement:\n"
        "    PlacementClient(placement.adapter).check()\n"
        "assert 'placement_database' not in cfg.CONF\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "--no-such-option"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


def test_threads_lose_no_write():
    uuids = [f"3b1e0f5c-8f6a-4d5e-9d38-0d0f1b1f9a{i:02}" for i in range(24)]
    with EmbeddedPlacement() as placement:
        threads = [
            threading.Thread(
                target=lambda part: [_add(placement, u) for u in part],
                args=(uuids[i::6],),
            )
            for i in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(_names(placement)) == uuids


def test_malformed_body_is_refused_in_placements_words():
    with EmbeddedPlacement() as placement:
        client = PlacementClient(placement.adapter)
        answer = client.write(Verb.POST, "/resource_providers", {"nom": "x"})
    assert answer.status == 400
    assert "JSON does not validate" in answer.detail


_SEEDS_ON_DEMAND = """
import sys
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from tests.scheduler.placement.test_embedded import CLAIM, CONSUMER, HOSTS

client = PlacementClient(EmbeddedPlacement(sys.argv[1]).adapter)
for line in sys.stdin:
    seed(client, HOSTS[:int(line)])
    client.put_allocations(CONSUMER, CLAIM)
    print("done", flush=True)
"""


def test_reader_sees_what_another_process_writes_and_writes_nothing(tmp_path):
    path = str(tmp_path / "placement.db")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SEEDS_ON_DEMAND, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as other:

        def seed_there(n_hosts: int) -> None:
            assert other.stdin is not None
            assert other.stdout is not None
            print(n_hosts, file=other.stdin, flush=True)
            assert other.stdout.readline() == "done\n"

        seed_there(1)
        with EmbeddedPlacement(path, is_reader=True) as placement:
            client = PlacementClient(placement.adapter)
            assert _names(placement) == ["host1"]
            assert client.allocations(CONSUMER).resources == {UUID: {"VCPU": 3}}
            seed_there(2)
            assert sorted(_names(placement)) == ["host1", "host2"]
            body = {"name": "another", "uuid": CONSUMER}
            with pytest.raises(AnswerLost):
                client.write(Verb.POST, "/resource_providers", body)
            assert sorted(_names(placement)) == ["host1", "host2"]
            seed_there(3)
        other.kill()


def test_reader_creates_no_file(tmp_path):
    path = tmp_path / "placement.db"
    with pytest.raises(ConfigurationError, match="Start moorage-scheduler"):
        EmbeddedPlacement(str(path), is_reader=True)
    assert not list(tmp_path.iterdir())


def test_reader_waits_for_no_upgrade(tmp_path):
    path = tmp_path / "placement.db"
    path.touch()
    with pytest.raises(ConfigurationError, match=r"readonly.*Start moorage-scheduler"):
        EmbeddedPlacement(str(path), is_reader=True)
