"""The message bus, as nova's services use it."""

from __future__ import annotations

import contextlib

import oslo_messaging
import oslo_messaging.opts
from oslo_config import cfg

_EXCHANGE = "nova"


def get_transport(
    conf: cfg.ConfigOpts, url: str | None = None
) -> oslo_messaging.Transport:
    """Return the RPC transport of ``transport_url`` on the exchange "nova".

    Parameters
    ----------
    url : str, optional
        Used instead of the option, for example ``fake://``.
    """
    _register(conf)
    # oslo.messaging's own default is "openstack"; an operator's value still wins.
    conf.set_default("control_exchange", _EXCHANGE)
    return oslo_messaging.get_rpc_transport(conf, url=url)


def _register(conf: cfg.ConfigOpts) -> None:
    for group, opts in oslo_messaging.opts.list_opts():
        for opt in opts:
            # What another owner of this conf registered is his.
            with contextlib.suppress(cfg.DuplicateOptError):
                conf.register_opt(opt, group=group)
    _register_tracing(conf)


def _register_tracing(conf: cfg.ConfigOpts) -> None:
    # oslo.messaging 18.3 reads this group of any conf, but leaves it out of its list:
    # a server on a conf of its own would swallow every message.
    try:
        from oslo_messaging._tracing.client import oslo_messaging_tracing
    except ImportError:
        return
    with contextlib.suppress(cfg.DuplicateOptError):
        conf.register_opts(oslo_messaging_tracing, group="oslo_messaging_tracing")
