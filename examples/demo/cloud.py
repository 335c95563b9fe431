# SPDX-License-Identifier: Apache-2.0
"""A control plane in one process: Placement, the scheduler and its message bus."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import oslo_messaging
from oslo_config import cfg

from moorage.conductor import ConductorClient
from moorage.scheduler.conf import load
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.rpc import SchedulerAPI, get_server, get_transport
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build
from moorage.scheduler.sources.file import FileSource
from moorage.scheduler.sources.inventory import Inventory

_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class DemoCloud:
    """The parts of a running cloud that a conductor uses, or that the demo shows."""

    inventory: Inventory
    placement: ConductorClient
    scheduler: Scheduler
    api: SchedulerAPI


@contextmanager
def running(
    inventory_file: Path,
    transport_url: str,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[DemoCloud]:
    """Start a cloud, and stop it on leaving.

    Parameters
    ----------
    transport_url : str
        ``fake://`` is in this process; ``rabbit://…`` needs a broker.
    progress : callable, optional
        Called with (hosts that Placement has, all hosts).
    """
    conf = _conf(inventory_file)
    source = FileSource(conf)
    with ExitStack() as stack:
        placement = stack.enter_context(EmbeddedPlacement())
        client = ConductorClient(placement.adapter)
        seed(client, providers(source.inventory), progress=progress)
        scheduler = build(conf, placement=placement, source=source)
        scheduler.start()
        stack.callback(scheduler.stop)
        transport = get_transport(conf, transport_url)
        stack.callback(transport.cleanup)
        server = get_server(conf, transport, scheduler.endpoints)
        server.start()
        stack.callback(server.wait)
        stack.callback(server.stop)
        api = SchedulerAPI(transport, timeout_s=_TIMEOUT_S)
        yield DemoCloud(source.inventory, client, scheduler, api)


def _conf(inventory_file: Path) -> cfg.ConfigOpts:
    conf = load(config_files=[])
    conf.set_override("inventory_file", str(inventory_file), group="moorage")
    # Unique names, because the broker may be used by others.
    for group, opts in oslo_messaging.opts.list_opts():
        conf.register_opts(opts, group=group)
    name = f"moorage-demo-{os.getpid()}"
    conf.set_override("host", name)
    conf.set_override("control_exchange", name)
    conf.set_override("amqp_auto_delete", True, group="oslo_messaging_rabbit")
    return conf
