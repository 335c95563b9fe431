# SPDX-License-Identifier: Apache-2.0
"""The scheduler over oslo.messaging: the server, and the client of a conductor."""

from .client import SchedulerAPI
from .endpoints import BaseAPIEndpoint, SchedulerEndpoint
from .peers import PEERS_TOPIC, Peers, PeersEndpoint
from .private_api import warn_of_missing_api
from .reports import AgentAPI, DeletionEndpoint, IgnoredReports, connect_agents
from .server import SchedulerRPCServer, get_server, start_all
from .transport import get_transport, register_opts

__all__ = [
    "PEERS_TOPIC",
    "AgentAPI",
    "BaseAPIEndpoint",
    "DeletionEndpoint",
    "IgnoredReports",
    "Peers",
    "PeersEndpoint",
    "SchedulerAPI",
    "SchedulerEndpoint",
    "SchedulerRPCServer",
    "connect_agents",
    "get_server",
    "get_transport",
    "register_opts",
    "start_all",
    "warn_of_missing_api",
]
