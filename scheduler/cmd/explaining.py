# SPDX-License-Identifier: Apache-2.0
"""moorage-api as a service: follow hosts and claims, and explain decisions.

    source of hosts, claims of schedulers ─▶ host table ─▶ explainer ─▶ HTTP API
                                     store of decisions ─────┘

It follows them as a scheduler does, but decides no request of a conductor, and writes
no allocation.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from typing import Final

from oslo_config import cfg

from ..errors import ConfigurationError
from ..failures import one_line
from ..placement.allocations.limits import WEB_THREADS
from ..placement.embedded import MEMORY, EmbeddedPlacement
from ..placement.from_conf import needs_embedded
from ..rpc import get_transport
from ..service import build
from ..telemetry import report
from ..telemetry.capacity import CapacityGauge
from ..telemetry.serving import ProcessTelemetry
from ..waiting import ThreadSpawner
from ..web import Answers, is_open, make_access, make_app, make_web_server
from .daemon import OPERATOR_ERRORS, configure, tune_garbage_collector
from .options import Options, copy_options
from .serving import Serving, serve
from .signals import RELOADING, STOPPING, Signals
from .systemd import notify

LOG = logging.getLogger(__name__)

_NAME: Final = "moorage-api"
_DESCRIPTION: Final = (
    "Serve the HTTP API of explanations, and the page, on [web] port. It claims "
    "nothing. SIGHUP reloads options, plugins and hosts; SIGTERM stops."
)


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reloads options, plugins and hosts.
    """
    try:
        conf = configure(argv, _DESCRIPTION)
        access = make_access(conf)
        get_transport(conf).cleanup()  # does not connect, but checks the options
        _become_reader(conf)
        settings = copy_options(argv, conf)
        with contextlib.ExitStack() as stack:
            placement = _embedded_placement(conf)
            if placement is not None:
                stack.enter_context(placement)
            scheduler = build(conf, settings=settings, placement=placement)
            stack.callback(scheduler.stop)
            telemetry = stack.enter_context(ProcessTelemetry(scheduler.status))
            telemetry.on_stop(report.write_on_signal(scheduler.status, _NAME))
            answers = Answers(
                scheduler.explainer,
                scheduler.status.store,
                max_reads=WEB_THREADS - 1,
                components=scheduler.status.components,
            )
            gauge = CapacityGauge(
                conf.moorage.capacity_flavors,
                answers.capacity_of,
                spawner=ThreadSpawner(),
            )
            stack.callback(gauge.stop)
            app = make_app(answers)
            app.register_blueprint(
                telemetry.pages(has_reasons=is_open(conf), collectors=[gauge])
            )
            server = make_web_server(conf, access(app))
            signals = Signals((*STOPPING, RELOADING))
            scheduler.start()
            gauge.start()
            tune_garbage_collector()
            options = Options(argv, conf, settings)
            with server:
                LOG.info(
                    "Serving the HTTP API on port %d of %s",
                    server.port, conf.web.address,
                )  # fmt: skip
                following = Serving(conf, scheduler, is_deciding=False)
                serve(
                    following, scheduler, options, signals, notify, telemetry=telemetry
                )
    except OPERATOR_ERRORS as e:
        print(f"{_NAME}: {one_line(e)}", file=sys.stderr)
        return 1
    return 0


def _embedded_placement(conf: cfg.ConfigOpts) -> EmbeddedPlacement | None:
    """Return a reader of the schedulers' embedded Placement; None: it is not embedded.

    Raises
    ------
    ConfigurationError
        The embedded Placement is in a process's memory, or its file does not exist yet.
    """
    if not needs_embedded(conf):
        return None
    path = conf.moorage.embedded_placement_database
    if path == MEMORY:
        raise ConfigurationError(
            "[placement] is not set, and the embedded Placement is in the memory of "
            "moorage-scheduler: set [moorage] embedded_placement_database to a file in "
            "the configuration of both, or set [placement]"
        )
    return EmbeddedPlacement(path, is_reader=True)


def _become_reader(conf: cfg.ConfigOpts) -> None:
    """Override the options of tasks that only the schedulers may do.

    These tasks are to write the service record to nova's database, and to release the
    unsettled claims of processes that have ended.
    """
    conf.set_override("register_service", False, group="moorage")
    conf.set_override("claims_directory", None, group="moorage")
