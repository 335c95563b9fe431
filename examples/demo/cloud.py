# SPDX-License-Identifier: Apache-2.0
"""A control plane in one process: Placement, the scheduler and its message bus."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import oslo_messaging
from oslo_config import cfg

from moorage.conductor import ConductorClient
from moorage.scheduler.conf import load
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler.http_server import WebServer
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_server, get_transport
from moorage.scheduler.rpc.broker import BrokerWatch
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.inventory import Inventory
from moorage.scheduler.web import Answers, make_access, make_app, make_web_server

from .interrupt import Interrupt
from .watchdog import watched

#: The levels of places, the smallest first.
LEVELS: Final = ("rack", "row", "room")

_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class DemoCloud:
    """The parts of a running cloud that a conductor uses, or that the demo shows.

    Attributes
    ----------
    url : str
        The URL of the HTTP API, which the command moorage asks.
    """

    inventory: Inventory
    placement: ConductorClient
    scheduler: Scheduler
    api: SchedulerAPI
    url: str


@contextmanager
def running(
    inventory_file: Path,
    distance_file: Path,
    transport_url: str,
    progress: Callable[[int, int], None] | None = None,
    *,
    port: int = 0,
    interrupt: Interrupt | None = None,
) -> Iterator[DemoCloud]:
    """Start a cloud, and stop it on leaving.

    Parameters
    ----------
    distance_file : Path
        The distances between rows of racks, in metres.
    transport_url : str
        ``fake://`` is in this process; ``rabbit://…`` needs a broker.
    progress : callable, optional
        Called with (hosts that Placement has, all hosts).
    port : int
        The port of the HTTP API and the page; 0: any.
    interrupt : Interrupt, optional
        With it, the process ends if the cloud cannot go on or stop: see `watched`.

    Raises
    ------
    SchedulerError
        The broker, the port or a file cannot be used.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="moorage-demo-")
        )
        conf = _conf(inventory_file, distance_file, Path(folder), port)
        conf.set_override("transport_url", transport_url)
        transport = get_transport(conf)
        broker = BrokerWatch(transport)
        broker.record("")
        if interrupt is not None:
            stack.enter_context(watched(broker, interrupt, transport_url, Path(folder)))
        stack.callback(transport.cleanup)
        # Later, the driver would retry without an end, and print a line each time.
        if problem := broker.try_broker():
            raise ConfigurationError(problem)
        broker.start()
        stack.callback(broker.stop)
        source = FileSource(conf)
        placement = stack.enter_context(EmbeddedPlacement())
        client = ConductorClient(placement.adapter)
        seed(client, providers(source.inventory), progress=progress)
        scheduler = build(conf, placement=placement, source=source)
        scheduler.start()
        stack.callback(scheduler.stop)
        server = get_server(conf, transport, scheduler.endpoints)
        server.start()
        stack.callback(server.wait)
        stack.callback(server.stop)
        api = SchedulerAPI(transport, timeout_s=_TIMEOUT_S)
        web = stack.enter_context(_web(conf, scheduler))
        url = f"http://127.0.0.1:{web.port}"
        yield DemoCloud(source.inventory, client, scheduler, api, url)


def _web(conf: cfg.ConfigOpts, scheduler: Scheduler) -> WebServer:
    """Return the HTTP API, which in production is a process of its own, moorage-api."""
    status = scheduler.status
    answers = Answers(scheduler.explainer, status.store, components=status.components)
    return make_web_server(conf, make_access(conf)(make_app(answers)))


def _conf(
    inventory_file: Path, distance_file: Path, folder: Path, port: int
) -> cfg.ConfigOpts:
    conf = load(config_files=[])
    for name, value in {
        "levels": LEVELS,
        "distances": {"rack": 1, "row": 3, "room": 20, "elsewhere": 100},
        "distance_file": str(distance_file),
        # A distance matters more than free memory.
        "weight_multiplier": 10.0,
    }.items():
        conf.set_override(name, value, group="locality")
    conf.set_override("inventory_file", str(inventory_file), group="moorage")
    store = f"sqlite:///{folder}/decisions.sqlite"
    conf.set_override("decision_store_connection", store, group="moorage")
    conf.set_override("port", port, group="web")
    # Unique names, because the broker may be used by others.
    for group, opts in oslo_messaging.opts.list_opts():
        conf.register_opts(opts, group=group)
    name = f"moorage-demo-{os.getpid()}"
    conf.set_override("host", name)
    conf.set_override("control_exchange", name)
    conf.set_override("amqp_auto_delete", True, group="oslo_messaging_rabbit")
    return conf
