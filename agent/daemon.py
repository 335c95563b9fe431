# SPDX-License-Identifier: Apache-2.0
"""The agent as a service: report, wait, report again; signals, stop."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from collections.abc import Sequence

import oslo_messaging
from oslo_config import cfg
from oslo_log import log as oslo_logging

from ..scheduler.conf import load
from ..scheduler.errors import PlacementError, SchedulerError
from ..scheduler.placement.client import PlacementClient, make_adapter
from ..scheduler.placement.seed import Provider
from ..scheduler.rpc import get_transport
from . import capacity
from .bus import Bus, BusAway
from .provider import keep, provider_of
from .reporter import Reporter

LOG = logging.getLogger(__name__)

#: What an operator can mend: told in one line, without a traceback.
_STOPS_THE_START = (
    cfg.Error,
    SchedulerError,
    oslo_messaging.DriverLoadFailure,
    oslo_messaging.InvalidTransportURL,
    OSError,
)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reads the files again that set [agent], tells all of the machine, and
    compares its inventories in Placement.
    """
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    try:
        load(argv, conf=conf)
        # Some options of oslo's libraries are read of the process-wide object only.
        cfg.CONF([f"--config-file={p}" for p in conf.config_file], project="moorage")
        oslo_logging.setup(conf, "moorage")
        wakes = _Signals()
        agent = Agent(conf)
        agent.check()
        _serve(conf, agent, wakes)
    except _STOPS_THE_START as e:
        print(f"moorage-agent: {e}", file=sys.stderr)
        return 1
    return 0


def _serve(conf: cfg.ConfigOpts, agent: Agent, wakes: _Signals) -> None:
    transport = get_transport(conf)
    bus = Bus(transport, conf.host)
    agent.use(bus)
    try:
        bus.serve(agent.tell_whole)
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
        self._troubles: dict[str, str] = {}

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
        capacity.record(self._conf, self.node_uuid)
        capacity.instances(self._conf.agent.instances_path)

    def tell_whole(self, node_uuid: str) -> None:
        """Tell all of the machine, as a scheduler asks."""
        try:
            if self._reporter is not None:
                self._reporter.tell_whole(node_uuid)
        except BusAway as e:
            self._is_troubled("bus", str(e))

    def look_again(self) -> None:
        """Compare with Placement at the next report, and tell all of the machine."""
        self._told = None
        self.tell_whole(self.node_uuid)

    def report(self) -> None:
        """Tell the machine as it is now; what fails is told once and tried again."""
        try:
            record = capacity.record(self._conf, self.node_uuid)
            its = capacity.instances(self._conf.agent.instances_path)
        except OSError as e:
            # No report: the schedulers take the machine as down after a while.
            self._is_troubled("machine", str(e))
            return
        self._is_well("machine")
        try:
            if self._reporter is not None:
                self._reporter.report(record, its)
            self._is_well("bus")
        except BusAway as e:
            self._is_troubled("bus", str(e))
        # Last: a Placement that is slow to answer delays no sign of life.
        self._keep(provider_of(self._conf, record))

    def _keep(self, provider: Provider) -> None:
        """Make Placement know the machine, where it does not yet."""
        if self._placement is None or provider == self._told:
            return
        try:
            if keep(self._placement, provider):
                LOG.info("Placement was told of %s", provider.name)
            self._told = provider
            self._is_well("Placement")
        except PlacementError as e:
            self._is_troubled("Placement", str(e))

    def _is_troubled(self, part: str, why: str) -> None:
        if self._troubles.get(part) != why:
            LOG.warning("The %s does not do its part: %s; tried again", part, why)
        self._troubles[part] = why

    def _is_well(self, part: str) -> None:
        if self._troubles.pop(part, None) is not None:
            LOG.info("The %s does its part again", part)


def _placement(conf: cfg.ConfigOpts) -> PlacementClient | None:
    """Return a client where [placement] says how it is reached."""
    if not (conf.placement.auth_type or conf.placement.endpoint_override):
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
