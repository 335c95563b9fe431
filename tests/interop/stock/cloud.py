# SPDX-License-Identifier: Apache-2.0
"""A cloud of stock nova 34 services, with Moorage or nova-scheduler among them."""

from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import fixtures

from ...fixtures.attached_services import AttachedService
from ...fixtures.database_servers import Database, database_server
from ...fixtures.nova_databases import Cell, Kind, NovaDatabases
from ...fixtures.nova_peer import peer_or_skip, peer_python
from ...fixtures.placement_servers import PlacementServer
from ...fixtures.ports import free_port
from ...fixtures.rabbitmq import Broker
from ...fixtures.waiting import wait_until
from .cinder_and_neutron import cinder_of_nova, neutron_of_nova
from .daemons import Daemon
from .glance import GlanceServer

#: Hosts on which builds succeed, with room for a few instances each.
HOSTS = ("host1", "host2", "host3")
#: A host on which each first build of an instance fails. It is large: where it is a
#: candidate, it is the best one. Its service is disabled at first.
FAILING_HOST = "failing"
#: A host in a cell of its own, as large. Its service is disabled at first.
HOST_ELSEWHERE = "elsewhere"

#: A host with a driver like Ironic's, in the first cell once it is started.
BARE_METAL_HOST = "ironic"
#: What each of its nodes has one of, and a trait of the last node.
BARE_METAL_CLASS = "CUSTOM_BAREMETAL_GOLD"
BARE_METAL_TRAIT = "CUSTOM_GPU"

#: The hosts of each cell; nova-api and the scheduler are on the first one's broker.
CELLS = ((*HOSTS, FAILING_HOST), (HOST_ELSEWHERE,))
#: The host of nova-scheduler, or of its replacement.
CONTROL_HOST = "control"

#: Amounts by resource class, by host.
Allocations = dict[str, dict[str, int]]
_Options = Mapping[str, Mapping[str, Any]]

_DRIVERS = {
    FAILING_HOST: "FakeRescheduleDriver",
    HOST_ELSEWHERE: "FakeDriver",
    BARE_METAL_HOST: "FakeIronicDriver",
}
_SCRIPT = Path(__file__).with_name("nova_api.py")
_BARE_METAL = Path(__file__).with_name("nova_bare_metal.py")
_WAIT_S = 60.0
_START_S = 180.0
_LOOK_EVERY_S = 0.2
_MAX_NOVA_S = 60
_PLACEMENT_VERSION = "placement 1.39"


class Scheduler(enum.Enum):
    """The program that serves the topic "scheduler"."""

    MOORAGE = "moorage-scheduler"
    NOVA = "nova-scheduler"


@dataclasses.dataclass(frozen=True, slots=True)
class _DecisionLine:
    """The line that a scheduler logs for a decision."""

    decided: str
    chose: str


_WORDS = {
    Scheduler.MOORAGE: _DecisionLine(r"Decision ", r"{uuid} on (\S+) \("),
    Scheduler.NOVA: _DecisionLine(
        r"Starting to schedule for instances",
        r"instance: {uuid}\] Selected host: \((\S+),",
    ),
}


class StockCloud(fixtures.Fixture):
    """nova-conductor, nova-computes and a scheduler on real servers of their own.

    Parameters
    ----------
    kind : Scheduler
    folder : Path
        For configuration files, logs and state.

    Attributes
    ----------
    scheduler : Daemon
    placement : PlacementServer
    cinder, neutron : AttachedService
    """

    def __init__(self, kind: Scheduler, folder: Path) -> None:
        super().__init__()
        self.kind = kind
        self._folder = folder
        self._compute_port = free_port()

    def _setUp(self) -> None:
        self._bin = peer_python().parent
        self.databases = self.useFixture(NovaDatabases(Kind.MARIADB, len(CELLS)))
        transport_urls = [self.useFixture(Broker()).transport_url for _ in CELLS]
        self.placement = self.useFixture(
            PlacementServer(database_server(Database.MARIADB))
        )
        self.cinder = self._entered(cinder_of_nova())
        self.neutron = self._entered(neutron_of_nova())
        self._write("nova", self._nova_options(transport_urls[0]))
        for cell in zip(self.databases.cells, transport_urls, CELLS, strict=True):
            self._start_cell(*cell)
        self.scheduler = self._start_scheduler()
        self._start_users()
        self.until(self._is_known, within_s=_START_S)
        for host in (FAILING_HOST, HOST_ELSEWHERE):
            self.ask("change_service", host=host, changes={"disabled": True})

    def _entered(
        self, service: AbstractContextManager[AttachedService]
    ) -> AttachedService:
        self.addCleanup(service.__exit__, None, None, None)
        return service.__enter__()

    # -- what runs ---------------------------------------------------------------------

    def _start_cell(self, cell: Cell, transport_url: str, hosts: Sequence[str]) -> None:
        self.databases.change_mapping(cell, transport_url=transport_url)
        options = {
            "DEFAULT": {"transport_url": transport_url},
            "database": {"connection": cell.url},
        }
        self._write(cell.name, options)
        self._start("nova-conductor", f"nova-conductor-{cell.name}", cell.name)
        for host in hosts:
            self._write(host, self._host_options(host))
            self._start("nova-compute", host, cell.name, host)

    def _nova_options(self, transport_url: str) -> _Options:
        glance = self.useFixture(GlanceServer())

        def service_at(url: str) -> Mapping[str, Any]:
            return {
                "auth_type": "admin_token",
                "endpoint": url,
                "endpoint_override": url,
                "token": "admin",
            }

        return {
            "DEFAULT": {
                "host": CONTROL_HOST,
                "my_ip": "127.0.0.1",
                "state_path": self._state(CONTROL_HOST),
                "transport_url": transport_url,
                "rpc_response_timeout": _MAX_NOVA_S,
                # A busy machine must not be mistaken for one that is down.
                "report_interval": 10,
                "service_down_time": 300,
            },
            "api_database": {"connection": self.databases.api_url},
            "database": {"connection": self.databases.main_url},
            "oslo_concurrency": {"lock_path": self._state("locks")},
            "oslo_messaging_notifications": {"driver": "noop"},
            "placement": service_at(self.placement.url),
            # Moorage reads the file, too.
            "neutron": service_at(self.neutron.url),
            "cinder": {"endpoint_template": f"{self.cinder.url}/v3"},
            "glance": {"api_servers": glance.url},
            "quota": {"cores": -1, "instances": -1, "ram": -1},
            "conductor": {"workers": 1},
            "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": 2},
        }

    def _host_options(self, host: str) -> _Options:
        return {
            "DEFAULT": {
                "host": host,
                "state_path": self._state(host),
                "compute_driver": f"fake.{_DRIVERS.get(host, 'MediumFakeDriver')}",
            }
        }

    def _state(self, name: str) -> Path:
        made = self._folder / "state" / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def _write(self, name: str, options: _Options) -> None:
        lines = []
        for group, values in options.items():
            lines += [f"[{group}]", *(f"{key} = {v}" for key, v in values.items())]
        self._conf(name).write_text("\n".join(lines) + "\n")

    def _conf(self, name: str) -> Path:
        return self._folder / f"{name}.conf"

    def _start(self, binary: str, name: str, *confs: str) -> Daemon:
        return self._start_at(self._bin / binary, name, *confs)

    def _start_at(
        self,
        path: Path,
        name: str,
        *confs: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> Daemon:
        command = [str(path), *arguments, *self._files(*confs)]
        return self.useFixture(Daemon(name, command, self._folder, environment))

    def _files(self, *confs: str) -> Sequence[str]:
        return [f"--config-file={self._conf(conf)}" for conf in ("nova", *confs)]

    def _start_ours(self, program: str) -> Daemon:
        store = f"sqlite:///{self._folder}/decisions.sqlite"
        return self._start_at(
            _program(program),
            program,
            "moorage",
            # It takes precedence over the file, and is empty for tests.
            environment={"OS_MOORAGE__DECISION_STORE_CONNECTION": store},
        )

    def _start_scheduler(self) -> Daemon:
        if self.kind is Scheduler.NOVA:
            self._write("scheduler", {"DEFAULT": {"debug": True}})
            return self._start("nova-scheduler", "nova-scheduler", "scheduler")
        options: dict[str, dict[str, Any]] = {
            "moorage": {"source": "nova_db", "register_service": True},
            "scheduler": {"workers": 2},
            "web": {"port": free_port()},
            # Its distances decide before free memory does.
            "locality": {"levels": "rack, row", "weight_multiplier": 100},
            "nova": {
                "endpoint_override": f"http://127.0.0.1:{self._compute_port}/v2.1"
            },
        }
        self._write("moorage", options)
        started = self._start_ours("moorage-scheduler")
        started.wait_for("All 2 workers serve")
        return started

    def start_api(self) -> Daemon:
        """Start moorage-api beside moorage-scheduler; return it once it follows."""
        started = self._start_ours("moorage-api")
        started.wait_for("Following the schedulers")
        return started

    def serve_compute_api(self) -> None:
        """Serve nova's API over HTTP, where the commands of moorage expect it."""
        self.ask("serve", port=self._compute_port)

    def start_bare_metal(self, n_nodes: int) -> list[str]:
        """Start a host with bare-metal nodes; return them once they can be used."""
        others = self._providers().keys()
        self._write(BARE_METAL_HOST, self._host_options(BARE_METAL_HOST))
        self._start_at(
            peer_python(),
            BARE_METAL_HOST,
            self.databases.cells[0].name,
            BARE_METAL_HOST,
            arguments=[str(_BARE_METAL)],
            environment={"BARE_METAL_NODES": str(n_nodes)},
        )

        def nodes() -> list[str]:
            return [uuid for uuid in self._providers() if uuid not in others]

        def are_known() -> bool:
            if BARE_METAL_HOST not in self.ask("hosts") or len(nodes()) < n_nodes:
                return False
            return all(map(self._traits, nodes()))

        self.until(are_known, lambda: f"{len(nodes())} nodes", within_s=_START_S)
        return nodes()

    def _start_users(self) -> None:
        log = (self._folder / "nova-api.log").open("w")
        self.addCleanup(log.close)
        self._users = subprocess.Popen(
            [peer_python(), _SCRIPT, "--config-file", self._conf("nova")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        self.addCleanup(self._users.communicate, timeout=_MAX_NOVA_S)

    def _is_known(self) -> bool:
        """Return whether all hosts are mapped to their cells, with traits in Placement.

        The traits are the last thing that a nova-compute writes at its start.
        """
        every, providers = {host for cell in CELLS for host in cell}, self._providers()
        return set(self.ask("hosts")) == every == set(providers.values()) and all(
            self._traits(uuid) for uuid in providers
        )

    # -- what users do -----------------------------------------------------------------

    def ask(self, op: str, **arguments: Any) -> Any:
        """Return what an operation of nova_api.py gives; fail where it raises."""
        assert self._users.stdin is not None
        assert self._users.stdout is not None
        print(json.dumps({"op": op, **arguments}), file=self._users.stdin, flush=True)
        line = self._users.stdout.readline()
        assert line, f"nova's process ended with {self._users.wait(_MAX_NOVA_S)}"
        answer = json.loads(line)
        assert "error" not in answer, f"{op}: {answer['error']}"
        return answer["result"]

    def show(self, instance: str) -> dict[str, Any]:
        """Return an instance as nova's databases have it."""
        found: dict[str, Any] = self.ask("show", instance=instance)
        return found

    def settled(self, instance: str, *vm_states: str) -> dict[str, Any]:
        """Wait until an instance is in one of these states, with no task; show it."""
        awaited = (*vm_states, "error")
        shown = self.shown_as(
            instance, lambda s: s["vm_state"] in awaited and not s["task_state"]
        )
        assert shown["vm_state"] in vm_states, shown
        return shown

    def shown_as(self, instance: str, claim: Callable[[dict[str, Any]], Any]) -> Any:
        """Wait until what nova shows of an instance is so, and return it.

        nova does not write all of it at once: an instance may be in error
        just before the reason is written.
        """
        seen: list[dict[str, Any]] = []

        def is_so() -> bool:
            seen.append(self.show(instance))
            return bool(claim(seen[-1]))

        self.until(is_so, lambda: f"{instance} stays {seen[-1]}")
        return seen[-1]

    def until(
        self,
        claim: Callable[[], bool],
        describe: Callable[[], str] = lambda: "",
        *,
        within_s: float = _WAIT_S,
    ) -> None:
        """Wait until something is so."""
        wait_until(
            claim,
            timeout_s=within_s,
            interval_s=_LOOK_EVERY_S,
            describe=lambda: f"{describe()}; the log ends:\n{self.scheduler.tail()}",
        )

    # -- what operators do -------------------------------------------------------------

    def moorage(self, *args: str) -> str:
        """Return what the command moorage prints, its white space as single spaces."""
        done = subprocess.run(
            [_program("moorage"), *self._files("moorage"), *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=_WAIT_S,
        )
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    def add_trait(self, host: str, trait: str) -> None:
        """Add a custom trait to a host's provider, as `openstack resource provider`."""
        [uuid] = [u for u, name in self._providers().items() if name == host]
        path = f"/resource_providers/{uuid}/traits"
        found = self._get(path)
        self._put(f"/traits/{trait}", None)
        self._put(path, {**found, "traits": [*found["traits"], trait]})

    # -- what can be seen --------------------------------------------------------------

    @property
    def n_nodes(self) -> int:
        """The number of all compute nodes."""
        return len(self._providers())

    def allocations(self, consumer: str) -> Allocations:
        """Return a consumer's resources in Placement, by host."""
        hosts = self._providers()
        found = self._get(f"/allocations/{consumer}")["allocations"]
        return {hosts[uuid]: each["resources"] for uuid, each in found.items()}

    def assert_allocated(self, consumer: str, expected: Allocations) -> None:
        """Wait until a consumer has exactly these resources, by host.

        nova releases what a move no longer needs after it has reported its end.
        """
        self.until(
            lambda: self.allocations(consumer) == expected,
            lambda: f"{self.allocations(consumer)} is not {expected}",
        )

    def usage(self) -> dict[str, int]:
        """Return what is allocated of all hosts together, by resource class."""
        used: dict[str, int] = {}
        for uuid in self._providers():
            usages = self._get(f"/resource_providers/{uuid}/usages")["usages"]
            for name, amount in usages.items():
                used[name] = used.get(name, 0) + amount
        return {name: amount for name, amount in used.items() if amount}

    def _providers(self) -> dict[str, str]:
        found = self._get("/resource_providers")["resource_providers"]
        return {provider["uuid"]: provider["name"] for provider in found}

    def _traits(self, uuid: str) -> list[str]:
        traits: list[str] = self._get(f"/resource_providers/{uuid}/traits")["traits"]
        return traits

    def _get(self, path: str) -> Any:
        answer = self.placement.adapter.get(
            path, headers={"OpenStack-API-Version": _PLACEMENT_VERSION}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def _put(self, path: str, body: Any) -> None:
        answer = self.placement.adapter.put(
            path, json=body, headers={"OpenStack-API-Version": _PLACEMENT_VERSION}
        )
        assert answer.status_code < 300, answer.text

    @property
    def n_decisions(self) -> int:
        """Return how many requests the scheduler has got so far."""
        return self.scheduler.count(_WORDS[self.kind].decided)

    def chosen(self, instance: str) -> list[str]:
        """Return the hosts that the scheduler chose for an instance, in order."""
        return self.scheduler.matches(_WORDS[self.kind].chose.format(uuid=instance))


def _program(name: str) -> Path:
    """Return the path of a console script of ours."""
    return Path(sys.executable).with_name(name)


def require_peer() -> None:
    """Skip the test, or fail it, where there is no nova 34."""
    for name in ("nova-compute", "nova-conductor", "nova-scheduler"):
        peer_or_skip(name)
