# SPDX-License-Identifier: Apache-2.0
"""moorage-relay as a service.

    nova's databases, agents or a file ─▶ the relay that leads ─▶ Kafka ─▶ schedulers

It decides no request, and needs no Placement.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from oslo_config import cfg

from ..entry_points import load_plugin
from ..errors import ConfigurationError
from ..failures import one_line
from ..http_server import WebServer
from ..kafka_client import kafka_library
from ..rpc import get_transport
from ..sources.base import BaseHostSource
from ..sources.file import FileSource
from ..telemetry.port import listen_for_telemetry
from .daemon import OPERATOR_ERRORS, configure, tune_garbage_collector
from .options import warn_of_unread_options
from .signals import RELOADING, STOPPING, Signals
from .systemd import SystemdState, notify

if TYPE_CHECKING:
    from ..relay import RelayStatus

LOG = logging.getLogger(__name__)

_NAME: Final = "moorage-relay"
_DESCRIPTION: Final = (
    "Write the hosts of a source, such as nova's databases, to topics of Kafka, which "
    "many schedulers read. Of several relays one writes and the others wait. SIGHUP "
    "reads the source again; SIGTERM stops."
)
#: Seconds between two steps of the relay, unless a signal arrives.
_TICK_S: Final = 0.1
#: Threads that serve metrics and probes.
_THREADS: Final = 2
#: Seconds between polls if [moorage] refresh_interval is 0: a scheduler would then poll
#: before each decision.
_REFRESH_S: Final = 1.0


def run(argv: Sequence[str]) -> int:
    """Run until SIGTERM or SIGINT; return the exit status.

    SIGHUP reads the hosts again.
    """
    try:
        conf = configure(argv, _DESCRIPTION)
        make_source = _source_factory(conf)
        warn_of_unread_options(conf)
        kafka_library()
        _serve(conf, make_source)
    except OPERATOR_ERRORS as e:
        print(f"{_NAME}: {one_line(e)}", file=sys.stderr)
        return 1
    return 0


def _source_factory(conf: cfg.ConfigOpts) -> Callable[[], BaseHostSource]:
    """Check the options of the source; return the function that creates it.

    Raises
    ------
    ConfigurationError
        The options are invalid.
    """
    if conf.moorage.source == "kafka":
        raise ConfigurationError(
            "[moorage] source = kafka: a relay writes to Kafka, and reads another "
            "source, such as nova_db. The schedulers have source = kafka"
        )
    if not conf.moorage.refresh_interval:
        conf.set_override("refresh_interval", _REFRESH_S, group="moorage")
    # Only a scheduler has a service record.
    conf.set_override("register_service", False, group="moorage")
    plugin = load_plugin(
        "moorage.sources", conf.moorage.source, option="[moorage] source"
    )

    def make_source() -> BaseHostSource:
        source: BaseHostSource = plugin(conf)
        source.adopt(conf)
        return source

    source = make_source()
    try:
        if isinstance(source, FileSource):
            _ = source.inventory  # reads the file
        if source.endpoints:
            get_transport(conf).cleanup()  # does not connect, but checks the options
    finally:
        source.stop()
    return make_source


def _serve(conf: cfg.ConfigOpts, make_source: Callable[[], BaseHostSource]) -> None:
    from ..relay import Relay  # its import needs Kafka's client library

    signals = Signals((*STOPPING, RELOADING))
    relay = Relay(conf, make_source)
    try:
        with _pages(conf, relay.status):
            tune_garbage_collector()
            LOG.info("Relaying the hosts of %s", conf.moorage.source)
            notify(SystemdState.READY)
            while True:
                received, _ = signals.wait(_TICK_S)
                if received & STOPPING:
                    notify(SystemdState.STOPPING)
                    return
                if RELOADING in received:
                    relay.refresh()
                relay.step()
    finally:
        relay.stop()


@contextlib.contextmanager
def _pages(conf: cfg.ConfigOpts, status: RelayStatus) -> Iterator[None]:
    """Serve metrics and probes, if [telemetry] http_port is set."""
    listening = listen_for_telemetry(conf)
    if listening is None:
        yield
        return
    from ..telemetry.pages import make_relay_app

    with contextlib.closing(listening):
        app = make_relay_app(status)
        with WebServer(listening, app, threads=_THREADS, name="telemetry"):
            yield
