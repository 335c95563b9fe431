# SPDX-License-Identifier: Apache-2.0
"""Schedulers in processes of their own, let go at once on one Placement."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
from ..fixtures.waiting import wait_until
from .claimer import Load

N_SCHEDULERS = 8

#: How long they may take to stop.
STOP_S = 60.0

#: How long claims in doubt may take to be released, and how long nothing else is then.
SETTLED_S = 60.0
QUIET_S = 3.0

Held = dict[str, dict[str, Any]]

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


@contextlib.contextmanager
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
    n_orphans : int
        Claims in doubt when the last request was answered.
    elapsed_s : float
        Of the slowest.
    """

    answers: dict[str, Answered] = dataclasses.field(default_factory=dict)
    claims: Counter[str] = dataclasses.field(default_factory=Counter)
    n_sent: int = 0
    n_queries: int = 0
    n_orphans: int = 0
    elapsed_s: float = 0.0

    def add(self, report: Mapping[str, Any]) -> None:
        """Add the report of one scheduler."""
        self.answers.update({i: Answered(**a) for i, a in report["answers"].items()})
        self.claims.update(report["claims"])
        self.n_sent += report["n_sent"]
        self.n_queries += report["n_queries"]
        self.n_orphans += report["n_orphans"]
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
        names = [f"scheduler{number}" for number in range(N_SCHEDULERS)]
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.functional.claimer"),
                json.dumps(dataclasses.asdict(self._load)),
                *map(str, map(self._config_file, names)),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        self.addCleanup(self._end)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    def _config_file(self, name: str) -> Path:
        config_file = self._folder / f"{name}.conf"
        config = CONFIG.format(
            name=name,
            url=self._url,
            token=TOKEN,
            timeout_s=self._timeout_s,
            inventory_file=self._cloud.inventory_file,
            n_records=100 * self._load.n_requests,
            database_url=self._database_url,
        )
        config_file.write_text(config)
        return config_file

    def start_all(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def finished(self) -> Outcome:
        """Return the answers, once all have decided; some claims may be in doubt."""
        outcome = Outcome()
        assert self._process.stdout is not None
        for _ in range(N_SCHEDULERS):
            outcome.add(json.loads(self._process.stdout.readline()))
        return outcome

    def _end(self) -> None:
        try:
            self._process.communicate(timeout=STOP_S)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.returncode == 0, "some scheduler failed to stop"


def expect_held_is_answered(cloud: Cloud, outcome: Outcome) -> None:
    """Compare what Placement holds, of whomever, with what was answered.

    Claims in doubt may be released meanwhile; then nothing else is.
    """
    client: PlacementClient = cloud.server.client
    answered = {i: each.held for i, each in outcome.answers.items() if each.held}
    if outcome.n_orphans:
        with contextlib.suppress(AssertionError):  # of which more is said below
            wait_until(
                lambda: held_by(cloud) == answered, timeout_s=SETTLED_S, interval_s=0.5
            )
        time.sleep(QUIET_S)
    held = held_by(cloud)
    wrong = {i for i in held | answered if held.get(i) != answered.get(i)}
    assert not wrong, {
        i: (held.get(i), outcome.answers.get(i)) for i in sorted(wrong)[:5]
    }
    used = usages(client, cloud.hosts)
    totals = summed(held.values())
    assert used == {node: totals.get(node, {}) for node in cloud.hosts}


def held_by(cloud: Cloud) -> Held:
    """Return the allocations in Placement, by consumer."""
    held: Held = {}
    for node in cloud.hosts:
        body: Any = cloud.server.client.read(f"/resource_providers/{node}/allocations")
        for consumer, part in body["allocations"].items():
            held.setdefault(consumer, {})[node] = part["resources"]
    return held


def most_used(cloud: Cloud) -> int:
    """VCPUs that are used of the fullest host."""
    return max(
        each["VCPU"] for each in usages(cloud.server.client, cloud.hosts).values()
    )
