# SPDX-License-Identifier: Apache-2.0
"""Eight schedulers fill one cloud, and nothing is lost, doubled or left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..clouds import host, summed, usages, write_inventory
from ..flaky_proxy import Fault, FlakyProxy
from ..placement_servers import Database, PlacementServer, database_server

N_SCHEDULERS = 8
N_THREADS = 4

#: Requests of each scheduler; those of a run that has to prove it are told outside.
N_REQUESTS = int(os.environ.get("MOORAGE_STRESS_REQUESTS", "60"))

VCPUS_A_HOST = 19

CONFIG = """
[DEFAULT]
host = {name}
[placement]
auth_type = admin_token
endpoint = {url}
endpoint_override = {url}
token = {token}
timeout = {timeout_s}
[moorage]
inventory_file = {inventory_file}
decision_records = {n_requests}
"""

pytestmark = [pytest.mark.database, pytest.mark.xdist_group("functional")]


class Cloud(NamedTuple):
    """A Placement, and hosts with room for 95 % of all requests."""

    server: PlacementServer
    hosts: Sequence[str]
    inventory_file: Path


class Outcome(NamedTuple):
    """What all schedulers answered, by instance; how their claims went."""

    answers: dict[str, Any]
    claims: Counter[str]
    questions: int


@pytest.fixture(params=list(Database), ids=lambda kind: kind.name)
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    """A cloud that is too small for all."""
    n_hosts = N_SCHEDULERS * N_REQUESTS // (VCPUS_A_HOST + 1)
    names = map("h{}".format, range(n_hosts))
    path = write_inventory(tmp_path, *(host(n, vcpus=VCPUS_A_HOST) for n in names))
    inventory = read_inventory(path)
    with PlacementServer(database_server(request.param)) as server:
        seed(server.client, providers(inventory))
        yield Cloud(server, [each.record.uuid for each in inventory.hosts], path)


def started(
    cloud: Cloud, folder: Path, url: str, *, timeout_s: float
) -> list[subprocess.Popen[str]]:
    """Schedulers that wait for the word."""
    processes = []
    for number in range(N_SCHEDULERS):
        config_file = folder / f"{number}.conf"
        config_file.write_text(
            CONFIG.format(
                name=f"scheduler{number}",
                url=url,
                token=TOKEN,
                timeout_s=timeout_s,
                inventory_file=cloud.inventory_file,
                n_requests=N_REQUESTS,
            )
        )
        command = [sys.executable, "-m", "tests.functional.claimer", str(config_file)]
        processes.append(
            subprocess.Popen(
                [*command, str(N_REQUESTS), str(N_THREADS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                cwd=Path(__file__).parents[2],
            )
        )
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    return processes


def finished(processes: Sequence[subprocess.Popen[str]]) -> Outcome:
    """What they answered, once all are done."""
    answers: dict[str, Any] = {}
    claims: Counter[str] = Counter()
    questions = 0
    for process in processes:
        told = json.loads(process.communicate(timeout=600)[0])
        answers.update(told["answers"])
        claims.update(told["claims"])
        questions += told["questions"]
    return Outcome(answers, claims, questions)


def let_go(processes: Sequence[subprocess.Popen[str]]) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def expect_held_is_answered(cloud: Cloud, outcome: Outcome) -> int:
    """Compare Placement with the answers; return how many instances have a host."""
    client: PlacementClient = cloud.server.client
    assert len(outcome.answers) == N_SCHEDULERS * N_REQUESTS
    held = []
    for instance, answer in outcome.answers.items():
        allocations = client.allocations(instance).resources
        assert allocations == (answer if isinstance(answer, dict) else {}), instance
        held.append(allocations)
    used = usages(client, cloud.hosts)
    assert used == {node: summed(held).get(node, {}) for node in cloud.hosts}
    assert max(each["VCPU"] for each in used.values()) <= VCPUS_A_HOST
    return sum(isinstance(answer, dict) for answer in outcome.answers.values())


def room(cloud: Cloud) -> int:
    return len(cloud.hosts) * VCPUS_A_HOST


def tell(outcome: Outcome, n_placed: int, elapsed_s: float) -> None:
    """Print the figures; pytest shows them with -s or -rP."""
    refused = outcome.claims["refused"] + outcome.claims["contended"]
    print(
        f"\n{N_SCHEDULERS} schedulers x {N_REQUESTS} requests: {n_placed} placed in "
        f"{elapsed_s:.1f} s; claims {dict(outcome.claims)}, "
        f"{refused / max(n_placed, 1):.3f} refused for each that was granted; "
        f"{outcome.questions} questions"
    )


def test_full_cloud_holds_what_was_answered(cloud: Cloud, tmp_path: Path) -> None:
    processes = started(cloud, tmp_path, cloud.server.url, timeout_s=120)
    began = time.monotonic()
    let_go(processes)
    outcome = finished(processes)
    elapsed_s = time.monotonic() - began
    n_placed = expect_held_is_answered(cloud, outcome)
    tell(outcome, n_placed, elapsed_s)
    assert n_placed == room(cloud)
    left = {a for a in outcome.answers.values() if not isinstance(a, dict)}
    assert left == {None}, "the others were told that there is no host"


def test_answers_that_are_lost_late_or_doubled_lose_no_claim(
    cloud: Cloud, tmp_path: Path
) -> None:
    with FlakyProxy(cloud.server.url, share=0.1, delay_s=4.0) as proxy:
        processes = started(cloud, tmp_path, proxy.url, timeout_s=3.0)
        began = time.monotonic()
        let_go(processes)
        outcome = finished(processes)
        elapsed_s = time.monotonic() - began
        faults = dict(proxy.n_faults)
    n_placed = expect_held_is_answered(cloud, outcome)
    tell(outcome, n_placed, elapsed_s)
    assert all(faults[each] for each in Fault)
    assert n_placed >= 0.8 * room(cloud)
