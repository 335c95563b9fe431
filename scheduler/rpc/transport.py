# SPDX-License-Identifier: Apache-2.0
"""The message bus, as nova's services use it."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator, Sequence

import oslo_messaging
import oslo_messaging.opts
from oslo_config import cfg

from ..errors import ConfigurationError
from ..failures import Failure, without_secrets

_EXCHANGE = "nova"
#: Loggers of the driver, and of the helper that repeats its reads forever.
_DRIVER_LOGS = ("oslo.messaging._drivers.impl_rabbit", "oslo_utils.excutils")
#: Packages whose errors are caused by a broker.
_DRIVERS = frozenset({"amqp", "kombu", "oslo_messaging"})
_OPTION = "[DEFAULT] transport_url"
_REMEDY = "It must look like rabbit://USER:PASSWORD@HOST:5672/VIRTUAL_HOST"
#: The errors for an invalid URL; ValueError is about the port, or about Kafka.
_UNUSABLE = (
    oslo_messaging.DriverLoadFailure,
    oslo_messaging.InvalidTransportURL,
    ValueError,
)

#: The broker's prefetch count. By default it is unlimited: a busy process would hold
#: messages that others could serve.
_PREFETCHED = 4
_MAX_PORT = 65535


def get_transport(
    conf: cfg.ConfigOpts, url: str | None = None
) -> oslo_messaging.Transport:
    """Return the RPC transport of ``transport_url`` on the exchange "nova".

    Parameters
    ----------
    url : str, optional
        Used instead of the option, for example ``fake://``.

    Raises
    ------
    ConfigurationError
        The URL is malformed, or there is no driver for its scheme.
    """
    register_opts(conf)
    name_servers(url or conf.transport_url)
    # oslo.messaging's own default is "openstack"; an operator's value still wins.
    conf.set_default("control_exchange", _EXCHANGE)
    group = "oslo_messaging_rabbit"
    conf.set_default("rabbit_qos_prefetch_count", _PREFETCHED, group)
    try:
        transport = oslo_messaging.get_rpc_transport(conf, url=url)
        _check_url(oslo_messaging.TransportURL.parse(conf, url))
    except _UNUSABLE as e:
        failure = Failure.of(_OPTION, url or conf.transport_url, e, _REMEDY)
        raise ConfigurationError(f"{failure}") from e
    return transport


def _check_url(url: oslo_messaging.TransportURL) -> None:
    """Refuse what the drivers refuse only at the first call; ValueError says why."""
    if url.transport.partition("+")[0] == "kafka":
        raise ValueError("oslo.messaging has no RPC over Kafka")
    for server in url.hosts:
        if server.port is not None and not 0 <= server.port <= _MAX_PORT:
            raise ValueError(f"port {server.port} is out of range 0-{_MAX_PORT}")


class _NamesServers(logging.Filter):
    """Adds the servers to the driver's log of a failed connection, which names none.

    The traceback is removed: a refused connection is not a programming error.
    """

    def __init__(self) -> None:
        super().__init__()
        self.servers = ""

    def filter(self, record: logging.LogRecord) -> bool:
        if str(record.msg).startswith("Connection failed"):
            record.msg = f"{record.msg}; {self.servers}"
        error = record.exc_info and record.exc_info[1]
        if isinstance(error, OSError) or _package(error) in _DRIVERS:
            record.exc_info = None
        return True


def _package(error: object) -> str:
    return type(error).__module__.partition(".")[0]


_names_servers = _NamesServers()


def name_servers(url: str) -> None:
    """Add the broker's URL to the driver's log lines of failed connections."""
    _names_servers.servers = f"{_OPTION} = {without_secrets(url)}".replace("%", "%%")
    for name in _DRIVER_LOGS:
        logging.getLogger(name).addFilter(_names_servers)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register the options of oslo.messaging, including those it does not list."""
    for group, opts in (*oslo_messaging.opts.list_opts(), *_unlisted()):
        for opt in opts:
            # Options that another owner of this conf registered are left unchanged.
            with contextlib.suppress(cfg.DuplicateOptError):
                conf.register_opt(opt, group=group)


def _unlisted() -> Iterator[tuple[str, Sequence[cfg.Opt]]]:
    """Yield the groups that oslo.messaging 18.3 reads of any conf, but does not list.

    Without them, a server on a separate conf drops every message.
    """
    for name in ("metrics", "tracing"):
        group = f"oslo_messaging_{name}"
        try:
            module = importlib.import_module(f"oslo_messaging._{name}.client")
        except ImportError:
            continue
        yield group, getattr(module, group, ())
