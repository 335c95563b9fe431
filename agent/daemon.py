# SPDX-License-Identifier: Apache-2.0
"""The agent as a service: report at intervals until a signal to stop."""

from __future__ import annotations

import contextlib
import functools
import logging
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import os_resource_classes as orc
from oslo_config import cfg

from ..scheduler import logs
from ..scheduler.conf import ProgramOptions, load
from ..scheduler.conf.keystoneauth import has_endpoint
from ..scheduler.errors import PlacementError, SchedulerError
from ..scheduler.failures import one_line, without_secrets
from ..scheduler.hosts import HostRecord
from ..scheduler.placement.adapter import Verb, make_adapter
from ..scheduler.placement.client import PlacementClient
from ..scheduler.placement.seed import Provider, read_body, refused, seed
from ..scheduler.rpc import get_transport, register_opts
from . import capacity
from .bus import Bus, BusUnavailable
from .kafka_bus import KafkaBus
from .reporter import Reporter

#: The resource classes whose inventories the agent manages.
OWN: Final = frozenset({orc.VCPU, orc.MEMORY_MB, orc.DISK_GB})

_GENERATION: Final = "resource_provider_generation"
_MAX_ATTEMPTS: Final = 3


def provider_of(conf: cfg.ConfigOpts, record: HostRecord) -> Provider:
    """Return the provider that Placement should have for a machine.

    The reserved amounts are part of the inventories; usage follows from allocations.
    """
    agent = conf.agent
    amounts = {
        orc.VCPU: (
            record.vcpus_total,
            agent.reserved_cpus,
            record.cpu_allocation_ratio,
        ),
        orc.MEMORY_MB: (
            record.total_usable_ram_mb,
            agent.reserved_memory_mb,
            record.ram_allocation_ratio,
        ),
        orc.DISK_GB: (
            record.total_usable_disk_gb,
            agent.reserved_disk_gb,
            record.disk_allocation_ratio,
        ),
    }
    return Provider(
        uuid=record.uuid,
        name=record.nodename,
        inventories={
            name: {
                "total": total,
                "reserved": min(reserved, total),
                "max_unit": total,
                "allocation_ratio": ratio,
            }
            for name, (total, reserved, ratio) in amounts.items()
            if total
        },
    )


def update_provider(client: PlacementClient, provider: Provider) -> bool:
    """Create or update a provider in Placement; return whether anything was written.

    What other clients set is not changed: traits, aggregates, inventories of resource
    classes that are not in `OWN`, and other keys of an inventory.

    Raises
    ------
    PlacementError
        Placement failed.
    """
    url = f"/resource_providers/{provider.uuid}"
    query, key = f"/resource_providers?uuid={provider.uuid}", "resource_providers"
    providers = read_body(client, query, key)[key]
    if not providers:
        return seed(client, [provider]) > 0
    is_renamed = providers[0].get("name") != provider.name
    if is_renamed:
        answer = client.write(Verb.PUT, url, {"name": provider.name})
        if not answer.is_done:
            raise refused(provider.name, answer)
    return _update_inventories(client, f"{url}/inventories", provider) or is_renamed


def _update_inventories(client: PlacementClient, url: str, provider: Provider) -> bool:
    for _ in range(_MAX_ATTEMPTS):
        current = read_body(client, url, "inventories", _GENERATION)
        inventories = current["inventories"]
        unmanaged = {name: inventories[name] for name in inventories.keys() - OWN}
        wanted = unmanaged | {
            name: {**inventories.get(name, {}), **inventory}
            for name, inventory in provider.inventories.items()
        }
        if inventories == wanted:
            return False
        # Inventories and generation come from one answer, so that no concurrent update
        # is overwritten.
        body = {"inventories": wanted, _GENERATION: current[_GENERATION]}
        answer = client.write(Verb.PUT, url, body)
        if answer.is_done:
            return True
        if not answer.is_concurrent_update:
            break
    raise refused(provider.name, answer)


LOG = logging.getLogger(__name__)

#: Operations that may fail and are retried, as the log names them.
_READING: Final = "Reading the state of this machine"
_SENDING: Final = "Sending a report to the schedulers"
LISTENING: Final = "Listening for requests of schedulers"
_PLACEMENT: Final = "Updating this machine in Placement"

_DESCRIPTION: Final = (
    "Report the state of this machine to the schedulers every [agent] interval "
    "seconds. SIGHUP reloads the options of [agent] and sends a whole report; SIGTERM "
    "stops."
)

#: Errors that an operator can correct: printed in one line, without a traceback.
_OPERATOR_ERRORS = (cfg.Error, SchedulerError, OSError)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reloads the options of [agent], sends a whole report, and compares the
    machine's inventories in Placement.
    """
    conf = ProgramOptions()
    logs.register_opts(conf)
    try:
        register_opts(conf)
        load(argv, conf=conf, description=_DESCRIPTION)
        # oslo's libraries read some options only from the global object.
        cfg.CONF([f"--config-file={p}" for p in conf.config_file], project="moorage")
        logs.set_up(conf)
        _warn_of_defaults(conf)
        signals = _AgentSignals()
        agent = Agent(conf)
        agent.check()
        _serve(conf, agent, signals)
    except _OPERATOR_ERRORS as e:
        print(f"moorage-agent: {one_line(e)}", file=sys.stderr)
        return 1
    return 0


def _warn_of_defaults(conf: cfg.ConfigOpts) -> None:
    if not conf.config_file and not conf.config_dir:
        LOG.warning(
            "No configuration file is given or found; using the defaults: the broker "
            "of [DEFAULT] transport_url = %s, the host name %s",
            without_secrets(conf.transport_url), conf.host,
        )  # fmt: skip


def _serve(conf: cfg.ConfigOpts, agent: Agent, signals: _AgentSignals) -> None:
    with contextlib.ExitStack() as closing:
        bus = _open_bus(conf, closing)
        agent.connect(bus)
        bus.serve(agent.send_whole_report, functools.partial(agent.attempt, LISTENING))
        LOG.info("Reporting %s as %s", agent.node_uuid, conf.host)
        while not signals.is_stopping:
            agent.report()
            if signals.wait_for_reload(conf.agent.interval):
                _reload(conf, agent)
        LOG.info("Stopping")


def _open_bus(conf: cfg.ConfigOpts, closing: contextlib.ExitStack) -> Bus | KafkaBus:
    if conf.agent.transport == "kafka":
        return KafkaBus(conf)
    transport = get_transport(conf)
    closing.callback(transport.cleanup)
    bus = Bus(transport, conf.host)
    closing.callback(bus.stop)
    return bus


def _reload(conf: cfg.ConfigOpts, agent: Agent) -> None:
    try:
        conf.mutate_config_files()
        agent.check()
    except (cfg.Error, SchedulerError, OSError) as e:
        LOG.error("Reload failed; invalid options remain unchanged: %s", e)
    agent.resync()


class Agent:
    """Reports one machine to the schedulers, and updates it in Placement.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts

    Raises
    ------
    ConfigurationError
        The file with the node's UUID cannot be used.
    PlacementError
        [placement] is invalid.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self.node_uuid = capacity.read_node_uuid(conf.agent.node_uuid_file)
        self._reporter: Reporter | None = None
        #: When a whole report is due though nothing has changed; None: never.
        self._whole_due_at: float | None = None
        self._placement = _placement(conf)
        self._last_provider: Provider | None = None
        self._failures: dict[str, str] = {}

    def connect(self, bus: Bus | KafkaBus) -> None:
        """Use this bus for reports to the schedulers."""
        self._reporter = Reporter(
            bus.cast, reply=bus.reply, sends_deltas=bus.takes_deltas
        )
        if not bus.takes_deltas:  # and no scheduler can request a whole report
            self._whole_due_at = self._next_whole_at()

    def _next_whole_at(self) -> float:
        interval_s: float = self._conf.agent.whole_report_interval
        return time.monotonic() + interval_s

    def check(self) -> None:
        """Read the machine's state once, so that an invalid path stops the start.

        Raises
        ------
        OSError
            The state cannot be read.
        """
        self._read()

    def send_whole_report(self, node_uuid: str) -> None:
        """Send a whole report, as a scheduler requests it."""
        if (reporter := self._reporter) is not None:
            self.attempt(_SENDING, lambda: reporter.send_whole_report(node_uuid))

    def resync(self) -> None:
        """Send a whole report, and compare with Placement at the next report."""
        self._last_provider = None
        self.send_whole_report(self.node_uuid)

    def report(self) -> None:
        """Report the machine's state; a failure is logged once, and retried."""
        states: list[tuple[HostRecord, frozenset[str]]] = []
        # Without reports the schedulers consider the machine down after a while.
        if not self.attempt(_READING, lambda: states.append(self._read())):
            return
        [(record, instances)] = states
        if (reporter := self._reporter) is not None:
            self.attempt(_SENDING, lambda: reporter.report(record, instances))
            if self._whole_due_at is not None and time.monotonic() > self._whole_due_at:
                self._whole_due_at = self._next_whole_at()
                self.send_whole_report(self.node_uuid)
        # Placement comes last: if it is slow, the report is not delayed.
        provider = provider_of(self._conf, record)
        if self._placement is not None and provider != self._last_provider:
            self.attempt(_PLACEMENT, lambda: self._update_placement(provider))

    def _read(self) -> tuple[HostRecord, frozenset[str]]:
        return (
            capacity.record(self._conf, self.node_uuid),
            capacity.instances(self._conf.agent.instances_path),
        )

    def _update_placement(self, provider: Provider) -> None:
        """Create or update the machine in Placement."""
        if self._placement is not None and update_provider(self._placement, provider):
            LOG.info("Updated %s in Placement", provider.name)
        self._last_provider = provider

    def attempt(self, part: str, work: Callable[[], object]) -> bool:
        """Call `work`; return whether it succeeded; log failure and recovery once."""
        why = ""
        try:
            work()
        except (BusUnavailable, PlacementError, OSError) as e:
            why = one_line(e)
        # Two operations may fail for the same reason, such as the broker.
        if why and why not in self._failures.values():
            LOG.warning("%s failed, retrying: %s", part, why)
        elif not why and part in self._failures:
            LOG.info("%s succeeds again", part)
        self._failures.pop(part, None)
        if why:
            self._failures[part] = why
        return not why


def _placement(conf: cfg.ConfigOpts) -> PlacementClient | None:
    """Return a client if [placement] is configured."""
    if not has_endpoint(conf, "placement"):
        return None
    return PlacementClient(make_adapter(conf))


class _AgentSignals:
    """Receives signals, and wakes the main thread.

    A handler may interrupt this thread anywhere, also while it holds the lock of a
    `threading.Event`: setting the event would then wait for ever. So the interpreter
    itself writes each signal to a socket, and the thread waits for that.
    """

    def __init__(self) -> None:
        self._woken, self._wakeup = socket.socketpair()
        self._woken.setblocking(False)
        self._wakeup.setblocking(False)
        signal.set_wakeup_fd(self._wakeup.fileno(), warn_on_full_buffer=False)
        self.is_stopping = False
        self._is_reloading = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)

    def _stop(self, _number: int, _frame: object) -> None:
        self.is_stopping = True

    def _reload(self, _number: int, _frame: object) -> None:
        self._is_reloading = True

    def wait_for_reload(self, timeout_s: float) -> bool:
        """Wait for a signal, up to a timeout; return whether to reload."""
        if select.select([self._woken], [], [], timeout_s)[0]:
            self._woken.recv(4096)
        is_reloading, self._is_reloading = self._is_reloading, False
        return is_reloading and not self.is_stopping
