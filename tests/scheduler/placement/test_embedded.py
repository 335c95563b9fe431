# SPDX-License-Identifier: Apache-2.0
"""The embedded Placement: one a process, quiet, safe for threads, kept in a file."""

import os
import subprocess
import sys
import threading

import pytest

from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.placement.client import PlacementClient, Verb
from moorage.scheduler.placement.embedded import EmbeddedPlacement

UUID = "3b1e0f5c-8f6a-4d5e-9d38-0d0f1b1f9a01"


def _add(placement: EmbeddedPlacement, uuid: str = UUID) -> None:
    body = {"name": uuid, "uuid": uuid}
    answer = PlacementClient(placement.adapter).write(
        Verb.POST, "/resource_providers", body
    )
    assert answer.is_done


def _names(placement: EmbeddedPlacement) -> list[str]:
    body = PlacementClient(placement.adapter).read("/resource_providers")
    return [p["name"] for p in body["resource_providers"]]


def test_it_speaks_what_is_needed():
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


def test_file_is_locked_against_another_process(tmp_path):
    path = str(tmp_path / "placement.db")
    script = (
        "import sys\n"
        "from moorage.scheduler.placement.embedded import EmbeddedPlacement\n"
        "EmbeddedPlacement(sys.argv[1])\n"
    )
    with EmbeddedPlacement(path):
        other = subprocess.run(
            [sys.executable, "-c", script, path], capture_output=True, text=True
        )
    assert other.returncode != 0
    assert "ConfigurationError" in other.stderr
    assert "is used by another process" in other.stderr


def test_failed_opening_leaves_room_for_another(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be written"):
        EmbeddedPlacement(str(tmp_path / "missing" / "placement.db"))
    with EmbeddedPlacement():
        pass


def test_missing_placement_is_told_with_its_remedy():
    script = (
        "import sys\n"
        "sys.modules['placement'] = None\n"
        "from moorage.scheduler.placement.embedded import EmbeddedPlacement\n"
        "EmbeddedPlacement()\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "pip install moorage[embedded]" in run.stderr
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
