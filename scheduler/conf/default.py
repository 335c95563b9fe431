# SPDX-License-Identifier: Apache-2.0
"""[DEFAULT]: who this service is, and when a compute service counts as down."""

import socket

from oslo_config import cfg

GROUP = None

OPTS = (
    cfg.HostDomainOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<current hostname>",
        help=(
            "Name of this host, unique among schedulers: its own queue is named by it."
        ),
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        help=(
            "Seconds since the last heartbeat after which a compute service is down. "
            "The same value as on the computes. Read by ComputeFilter."
        ),
    ),
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        help="Availability zone told for a host that is in no aggregate with one.",
    ),
    cfg.IntOpt(
        "long_rpc_timeout",
        default=1800,
        min=1,
        help=(
            "Seconds that a client waits for select_destinations at most; it gives up "
            "sooner when no heartbeat came for rpc_response_timeout seconds."
        ),
    ),
)
