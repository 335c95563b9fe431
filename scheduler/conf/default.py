# SPDX-License-Identifier: Apache-2.0
"""[DEFAULT]: the identity of this service, heartbeats and timeouts."""

import socket

from oslo_config import cfg

GROUP = None

OPTS = (
    cfg.HostDomainOpt(
        "host",
        default=socket.gethostname(),
        sample_default="<current hostname>",
        help=(
            "Name of this host, unique among schedulers; also the name of its queue."
        ),
    ),
    cfg.IntOpt(
        "service_down_time",
        default=60,
        min=1,
        mutable=True,
        help=(
            "Seconds since the last heartbeat after which a compute service is down. "
            "Must have the same value as on the computes. Used by ComputeFilter."
        ),
    ),
    cfg.StrOpt(
        "servicegroup_driver",
        default="db",
        help=(
            'Where nova\'s services store their heartbeats, for the source "nova_db": '
            "an entry point of moorage.heartbeats. Possible values: db, in nova's "
            "database; mc, in the memcached of [cache], whose options are oslo.cache's "
            "and must be the same as on the computes."
        ),
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        help=(
            "Seconds between two heartbeats of this scheduler in nova's database, if "
            "[moorage] register_service is set. Must be much less than "
            "service_down_time. 0 or less: none."
        ),
    ),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        default=180,
        min=0,
        mutable=True,
        help=(
            "Seconds after SIGTERM until remaining processes are killed. 0: never. "
            "Related option: manager_shutdown_timeout, which must be less."
        ),
    ),
    cfg.IntOpt(
        "manager_shutdown_timeout",
        default=160,
        min=0,
        mutable=True,
        help=(
            "Seconds after SIGTERM for which to wait for requests in progress. Those "
            "that have not begun return to the broker at once. The rest of "
            "graceful_shutdown_timeout is for releasing claims in doubt."
        ),
    ),
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        mutable=True,
        help="Availability zone of hosts without an aggregate that names one.",
    ),
    cfg.IntOpt(
        "long_rpc_timeout",
        default=1800,
        min=1,
        help=(
            "Maximum seconds that a client waits for select_destinations. It times out "
            "earlier without a heartbeat for rpc_response_timeout seconds."
        ),
    ),
    *(
        cfg.FloatOpt(
            f"{name}_allocation_ratio",
            min=0.0,
            help=(
                f"Allocation ratio of {what} on hosts whose row in nova's database has "
                "no ratio or 0. Must have the same value as on the computes. 0 or not "
                f"set: initial_{name}_allocation_ratio."
            ),
        )
        for name, what in (("cpu", "VCPU"), ("ram", "memory"), ("disk", "disk"))
    ),
    *(
        cfg.FloatOpt(
            f"initial_{name}_allocation_ratio",
            default=ratio,
            min=0.0,
            help=f"Used if {name}_allocation_ratio is not set.",
        )
        for name, ratio in (("cpu", 4.0), ("ram", 1.0), ("disk", 1.0))
    ),
)
