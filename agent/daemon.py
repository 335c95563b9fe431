# SPDX-License-Identifier: Apache-2.0
"""The agent as a service: report, wait, report again; signals, stop."""

from __future__ import annotations

import functools
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from oslo_config import cfg

from ..scheduler import logs
from ..scheduler.conf import load
from ..scheduler.errors import PlacementError, SchedulerError
from ..scheduler.failures import one_line, without_secrets
from ..scheduler.hosts import HostRecord
from ..scheduler.placement.client import PlacementClient, make_adapter
from ..scheduler.placement.seed import Provider
from ..scheduler.rpc import get_transport, register_opts
from . import capacity
from .bus import Bus, BusAway
from .provider import keep, provider_of
from .reporter import Reporter

LOG = logging.getLogger(__name__)

#: What may fail and is repeated.
_READING: Final = "Reading the state of this machine"
_SENDING: Final = "Sending a report to the schedulers"
LISTENING: Final = "Listening to questions of schedulers"
_PLACEMENT: Final = "Updating this machine in Placement"

#: What an operator can correct: one line, without a traceback.
_STOPS_THE_START = (cfg.Error, SchedulerError, OSError)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reads the files again that set [agent], tells all of the machine, and
    compares its inventories in Placement.
    """
    conf = cfg.ConfigOpts()
    logs.register_opts(conf)
    try:
        register_opts(conf)
        load(argv, conf=conf)
        # Some options of oslo's libraries are read of the process-wide object only.
        cfg.CONF([f"--config-file={p}" for p in conf.config_file], project="moorage")
        logs.set_up(conf)
        _warn_of_defaults(conf)
        wakes = _Signals()
        agent = Agent(conf)
        agent.check()
        _serve(conf, agent, wakes)
    except _STOPS_THE_START as e:
        print(f"moorage-agent: {one_line(e)}", file=sys.stderr)
        return 1
    return 0


def _warn_of_defaults(conf: cfg.ConfigOpts) -> None:
    if not conf.config_file and not conf.config_dir:
        LOG.warning(
            "No configuration file is given or found. Defaults are used: the broker "
            "of [DEFAULT] transport_url = %s, the host name %s",
            without_secrets(conf.transport_url), conf.host,
        )  # fmt: skip


def _serve(conf: cfg.ConfigOpts, agent: Agent, wakes: _Signals) -> None:
    transport = get_transport(conf)
    bus = Bus(transport, conf.host)
    agent.use(bus)
    try:
        bus.serve(agent.tell_whole, functools.partial(agent.attempt, LISTENING))
        LOG.info("Reporting %s as %s", agent.node_uuid, conf.host)
        while not wakes.is_stopping:
            agent.report()
            if wakes.wait_for_reload(conf.agent.interval):
                _reload(conf, agent)
        LOG.info("Stopping")
    finally:
        bus.stop()
        transport.cleanup()


def _reload(conf: cfg.ConfigOpts, agent: Agent) -> None:
    try:
        conf.mutate_config_files()
        agent.check()
    except (cfg.Error, SchedulerError, OSError) as e:
        LOG.error("The options stay as they were as far as they cannot be used: %s", e)
    agent.look_again()


class Agent:
    """What reports one machine, and keeps it in Placement.

    Parameters
    ----------
    conf : oslo_config.cfg.ConfigOpts

    Raises
    ------
    ConfigurationError
        The file that keeps the node's UUID cannot be used.
    PlacementError
        [placement] cannot be used.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self.node_uuid = capacity.kept_uuid(conf.agent.node_uuid_file)
        self._reporter: Reporter | None = None
        self._placement = _placement(conf)
        self._told: Provider | None = None
        self._failures: dict[str, str] = {}

    def use(self, bus: Bus) -> None:
        """Take the way to schedulers."""
        self._reporter = Reporter(bus.cast, reply=bus.reply)

    def check(self) -> None:
        """Read the machine once, so that a wrong path stops the start.

        Raises
        ------
        OSError
            The operating system does not tell.
        """
        self._read()

    def tell_whole(self, node_uuid: str) -> None:
        """Tell all of the machine, as a scheduler asks."""
        if (reporter := self._reporter) is not None:
            self.attempt(_SENDING, lambda: reporter.tell_whole(node_uuid))

    def look_again(self) -> None:
        """Compare with Placement at the next report, and tell all of the machine."""
        self._told = None
        self.tell_whole(self.node_uuid)

    def report(self) -> None:
        """Tell the machine as it is now; what fails is told once and tried again."""
        read: list[tuple[HostRecord, frozenset[str]]] = []
        # Without a report the schedulers take the machine as down after a while.
        if not self.attempt(_READING, lambda: read.append(self._read())):
            return
        [(record, instances)] = read
        if (reporter := self._reporter) is not None:
            self.attempt(_SENDING, lambda: reporter.report(record, instances))
        # Last: a Placement that is slow to answer delays no sign of life.
        provider = provider_of(self._conf, record)
        if self._placement is not None and provider != self._told:
            self.attempt(_PLACEMENT, lambda: self._keep(provider))

    def _read(self) -> tuple[HostRecord, frozenset[str]]:
        return (
            capacity.record(self._conf, self.node_uuid),
            capacity.instances(self._conf.agent.instances_path),
        )

    def _keep(self, provider: Provider) -> None:
        """Make Placement know the machine."""
        if self._placement is not None and keep(self._placement, provider):
            LOG.info("Placement was told of %s", provider.name)
        self._told = provider

    def attempt(self, part: str, work: Callable[[], object]) -> bool:
        """Do some work; log once why it fails, and once that it succeeds again."""
        why = ""
        try:
            work()
        except (BusAway, PlacementError, OSError) as e:
            why = one_line(e)
        # Two parts may fail for one reason, such as the broker.
        if why and why not in self._failures.values():
            LOG.warning("%s failed, and is repeated: %s", part, why)
        elif not why and part in self._failures:
            LOG.info("%s succeeds again", part)
        self._failures.pop(part, None)
        if why:
            self._failures[part] = why
        return not why


def _placement(conf: cfg.ConfigOpts) -> PlacementClient | None:
    """Return a client where [placement] says how it is reached."""
    options = conf.placement
    if not (options.auth_type or options.auth_section or options.endpoint_override):
        return None
    return PlacementClient(make_adapter(conf))


class _Signals:
    """Turn signals into something that the main thread waits for."""

    def __init__(self) -> None:
        self._wake = threading.Event()
        self.is_stopping = False
        self._is_reloading = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._reload)

    def _stop(self, _number: int, _frame: object) -> None:
        self.is_stopping = True
        self._wake.set()

    def _reload(self, _number: int, _frame: object) -> None:
        self._is_reloading = True
        self._wake.set()

    def wait_for_reload(self, timeout_s: float) -> bool:
        """Wait for a signal, no longer than this; return whether it asks to reload."""
        self._wake.wait(timeout_s)
        self._wake.clear()
        asked, self._is_reloading = self._is_reloading, False
        return asked and not self.is_stopping
