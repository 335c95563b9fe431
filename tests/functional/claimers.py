# SPDX-License-Identifier: Apache-2.0
"""Schedulers in processes of their own, let go at once on one Placement."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import fixtures

from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import TOKEN
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.sources.inventory import read_inventory

from ..fixtures.clouds import summed, usages, write_inventory
from ..fixtures.database_servers import Database, database_server
from ..fixtures.placement_servers import PlacementServer
from .claimer import Load

N_SCHEDULERS = 8

#: How long all of them may take.
FINISH_S = 1500.0

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
decision_records = {n_records}
[placement_database]
connection = {database_url}
"""


class Cloud(NamedTuple):
    """A Placement, and hosts that it knows; `vcpus` is the sum of theirs."""

    server: PlacementServer
    hosts: Sequence[str]
    vcpus: int
    inventory_file: Path


@contextmanager
def cloud_of(
    kind: Database, folder: Path, hosts: Sequence[Mapping[str, Any]]
) -> Iterator[Cloud]:
    """Serve a Placement that knows these hosts."""
    path = write_inventory(folder, *map(dict, hosts))
    inventory = read_inventory(path)
    with PlacementServer(database_server(kind)) as server:
        seed(server.client, providers(inventory))
        uuids = [each.record.uuid for each in inventory.hosts]
        yield Cloud(server, uuids, sum(each["vcpus"] for each in hosts), path)


class Answered(NamedTuple):
    """The last answer for one instance.

    Attributes
    ----------
    answer : dict or str or None
        Its allocations; the name of an error; None: that there is no host.
    at : float
        When, on the clock that all processes of a machine share.
    failed : list of str
        The errors that its requests ended in.
    """

    answer: dict[str, Any] | str | None
    at: float
    failed: Sequence[str]

    @property
    def held(self) -> dict[str, Any]:
        """The allocations that it should have."""
        return self.answer if isinstance(self.answer, dict) else {}


@dataclasses.dataclass
class Outcome:
    """The answers of all schedulers by instance, and the outcomes of their claims.

    Attributes
    ----------
    n_sent : int
        How often claims were sent, all attempts counted.
    elapsed_s : float
        Of the slowest.
    """

    answers: dict[str, Answered] = dataclasses.field(default_factory=dict)
    claims: Counter[str] = dataclasses.field(default_factory=Counter)
    n_sent: int = 0
    n_queries: int = 0
    elapsed_s: float = 0.0

    def add(self, report: Mapping[str, Any]) -> None:
        """Add the report of one scheduler."""
        self.answers.update({i: Answered(**a) for i, a in report["answers"].items()})
        self.claims.update(report["claims"])
        self.n_sent += report["n_sent"]
        self.n_queries += report["n_queries"]
        self.elapsed_s = max(self.elapsed_s, report["elapsed_s"])

    @property
    def n_placed(self) -> int:
        return sum(bool(each.held) for each in self.answers.values())

    @property
    def n_refused(self) -> int:
        """The number of writes that Placement did not grant."""
        return self.n_sent - self.claims["claimed"]

    def __str__(self) -> str:
        share = self.n_refused / max(self.claims["claimed"], 1)
        return (
            f"{len(self.answers)} requests to {N_SCHEDULERS} schedulers: "
            f"{self.n_placed} placed in {self.elapsed_s:.1f} s; "
            f"claims {dict(self.claims)}, sent {self.n_sent} times, "
            f"{share:.3f} refused for each that was granted; "
            f"{self.n_queries} queries"
        )


class Claimers(fixtures.Fixture):
    """Eight schedulers that wait for `start_all`.

    Parameters
    ----------
    url : str
        Of Placement, or of what stands before it.
    timeout_s : float
        [placement] timeout.
    in_memory : bool
        Whether they follow Placement's database.
    """

    def __init__(
        self,
        cloud: Cloud,
        folder: Path,
        load: Load,
        *,
        url: str = "",
        timeout_s: float,
        in_memory: bool = False,
    ) -> None:
        super().__init__()
        self._cloud = cloud
        self._folder = folder
        self._load = load
        self._url = url or cloud.server.url
        self._timeout_s = timeout_s
        self._database_url = cloud.server.database_url if in_memory else ""

    def _setUp(self) -> None:
        self._processes = [self._started(number) for number in range(N_SCHEDULERS)]
        for process in self._processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"

    def _started(self, number: int) -> subprocess.Popen[str]:
        config_file = self._folder / f"{number}.conf"
        config = CONFIG.format(
            name=f"scheduler{number}",
            url=self._url,
            token=TOKEN,
            timeout_s=self._timeout_s,
            inventory_file=self._cloud.inventory_file,
            n_records=100 * self._load.n_requests,
            database_url=self._database_url,
        )
        config_file.write_text(config)
        load = json.dumps(dataclasses.asdict(self._load))
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.functional.claimer"),
                *(str(config_file), load),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.addCleanup(_ended, process)
        return process

    def start_all(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()

    def finished(self) -> Outcome:
        """Return the answers, once all are done and nothing is in doubt."""
        outcome = Outcome()
        for process in self._processes:
            outcome.add(json.loads(process.communicate(timeout=FINISH_S)[0]))
        return outcome


def _ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def expect_held_is_answered(cloud: Cloud, outcome: Outcome) -> None:
    """Compare what Placement holds, of whomever, with what was answered."""
    client: PlacementClient = cloud.server.client
    held: dict[str, dict[str, Any]] = {}
    for node in cloud.hosts:
        body: Any = client.read(f"/resource_providers/{node}/allocations")
        for consumer, part in body["allocations"].items():
            held.setdefault(consumer, {})[node] = part["resources"]
    answered = {i: each.held for i, each in outcome.answers.items() if each.held}
    wrong = {i for i in held | answered if held.get(i) != answered.get(i)}
    assert not wrong, {
        i: (held.get(i), outcome.answers.get(i)) for i in sorted(wrong)[:5]
    }
    used = usages(client, cloud.hosts)
    totals = summed(held.values())
    assert used == {node: totals.get(node, {}) for node in cloud.hosts}


def most_used(cloud: Cloud) -> int:
    """VCPUs that are used of the fullest host."""
    return max(
        each["VCPU"] for each in usages(cloud.server.client, cloud.hosts).values()
    )
