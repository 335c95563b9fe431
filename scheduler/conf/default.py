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
        mutable=True,
        help=(
            "Seconds since the last heartbeat after which a compute service is down. "
            "The same value as on the computes. Read by ComputeFilter."
        ),
    ),
    cfg.StrOpt(
        "servicegroup_driver",
        default="db",
        help=(
            'Where nova\'s services keep their heartbeats, for the source "nova_db": '
            "an entry point of moorage.heartbeats. Possible values: db, in nova's "
            "database; mc, in the memcached of [cache], whose options are oslo.cache's "
            "and the same as on the computes."
        ),
    ),
    cfg.IntOpt(
        "report_interval",
        default=10,
        help=(
            "Seconds between two heartbeats of this scheduler in nova's database, if "
            "[moorage] register_service asks for them; much less than "
            "service_down_time. 0 or less: none."
        ),
    ),
    cfg.IntOpt(
        "graceful_shutdown_timeout",
        default=180,
        min=0,
        mutable=True,
        help=(
            "Seconds from SIGTERM after which processes that have not ended are "
            "killed. 0: never. Related option: manager_shutdown_timeout, which must be "
            "less."
        ),
    ),
    cfg.IntOpt(
        "manager_shutdown_timeout",
        default=160,
        min=0,
        mutable=True,
        help=(
            "Seconds from SIGTERM for which requests under way are waited for. Those "
            "that have not begun go back to the broker at once. What is left of "
            "graceful_shutdown_timeout is for giving back claims that are in doubt."
        ),
    ),
    cfg.StrOpt(
        "default_availability_zone",
        default="nova",
        mutable=True,
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
    *(
        cfg.FloatOpt(
            f"{name}_allocation_ratio",
            min=0.0,
            help=(
                f"How many units of {what} are given out for each that there is, on "
                "hosts whose row in nova's database has no ratio or 0. The same value "
                f"as on the computes. 0 or not set: initial_{name}_allocation_ratio."
            ),
        )
        for name, what in (("cpu", "VCPU"), ("ram", "memory"), ("disk", "disk"))
    ),
    *(
        cfg.FloatOpt(
            f"initial_{name}_allocation_ratio",
            default=ratio,
            min=0.0,
            help=f"What counts where {name}_allocation_ratio is not set.",
        )
        for name, ratio in (("cpu", 4.0), ("ram", 1.0), ("disk", 1.0))
    ),
)
