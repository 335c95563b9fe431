# SPDX-License-Identifier: Apache-2.0
"""The message bus, as nova's services use it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator, Sequence

import oslo_messaging
import oslo_messaging.opts
from oslo_config import cfg

_EXCHANGE = "nova"

#: Messages that the broker sends ahead. It sends any number unless told: then one
#: process holds what others could serve, and what it holds waits while it is busy.
_PREFETCHED = 4


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
    group = "oslo_messaging_rabbit"
    conf.set_default("rabbit_qos_prefetch_count", _PREFETCHED, group)
    return oslo_messaging.get_rpc_transport(conf, url=url)


def _register(conf: cfg.ConfigOpts) -> None:
    for group, opts in (*oslo_messaging.opts.list_opts(), *_unlisted()):
        for opt in opts:
            # What another owner of this conf registered is his.
            with contextlib.suppress(cfg.DuplicateOptError):
                conf.register_opt(opt, group=group)


def _unlisted() -> Iterator[tuple[str, Sequence[cfg.Opt]]]:
    """Yield the groups that oslo.messaging 18.3 reads of any conf, but does not list.

    Without them a server on a conf of its own swallows every message.
    """
    for name in ("metrics", "tracing"):
        group = f"oslo_messaging_{name}"
        try:
            module = importlib.import_module(f"oslo_messaging._{name}.client")
        except ImportError:
            continue
        yield group, getattr(module, group, ())
