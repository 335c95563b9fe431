# SPDX-License-Identifier: Apache-2.0
"""The RPC server of a scheduler."""

from __future__ import annotations

from collections.abc import Sequence

import oslo_messaging
from oslo_config import cfg

from ...objects import Serializer
from .endpoints import TOPIC


def get_server(
    conf: cfg.ConfigOpts,
    transport: oslo_messaging.Transport,
    endpoints: Sequence[object],
    topic: str = TOPIC,
) -> oslo_messaging.MessageHandlingServer:
    """Return a server for a topic and for this host's own queue of it.

    It dispatches in threads, ``executor_thread_pool_size`` of them, and sends the
    heartbeats that a call monitor waits for. The caller starts, stops and waits.
    """
    return oslo_messaging.get_rpc_server(
        transport,
        oslo_messaging.Target(topic=topic, server=conf.host),
        list(endpoints),
        serializer=Serializer(),
        access_policy=oslo_messaging.DefaultRPCAccessPolicy,
    )
