# SPDX-License-Identifier: Apache-2.0
"""[agent]: what moorage-agent reports of a machine that is no nova compute."""

from oslo_config import cfg

GROUP = "agent"

OPTS = (
    cfg.FloatOpt(
        "interval",
        default=10.0,
        min=0.1,
        mutable=True,
        help=(
            "Seconds from one report of moorage-agent to the next, which is a sign of "
            "life where nothing has changed. Well below service_down_time of the "
            "schedulers."
        ),
    ),
    cfg.StrOpt(
        "cell",
        default="cell1",
        help=(
            "UUID or name of the cell that the machine is in. A name stands for the "
            "UUID that an inventory file gives a cell of that name."
        ),
    ),
    cfg.StrOpt(
        "node_uuid_file",
        default="/var/lib/moorage/node_uuid",
        help=(
            "File that keeps the machine's UUID, which is its resource provider's in "
            "Placement, too. It is made at the first start."
        ),
    ),
    cfg.StrOpt(
        "disk_path",
        default="/",
        mutable=True,
        help="Path in the file system whose size is reported as the machine's disk.",
    ),
    cfg.StrOpt(
        "instances_path",
        mutable=True,
        help=(
            "Folder with a folder for each instance on the machine, named by its UUID. "
            "A scheduler that knows them gives back at once what it held for them "
            "itself, and answers affinity. Unset: no instances are reported."
        ),
    ),
    cfg.IntOpt(
        "reserved_cpus",
        default=0,
        min=0,
        mutable=True,
        help="CPUs that no instance may have.",
    ),
    cfg.IntOpt(
        "reserved_memory_mb",
        default=512,
        min=0,
        mutable=True,
        help="Memory that no instance may have, MiB.",
    ),
    cfg.IntOpt(
        "reserved_disk_gb",
        default=0,
        min=0,
        mutable=True,
        help="Disk that no instance may have, GiB.",
    ),
    *(
        cfg.FloatOpt(
            f"{name}_allocation_ratio",
            default=1.0,
            min=0.01,
            mutable=True,
            help=f"How many times the machine's {what} may be allocated.",
        )
        for name, what in (("cpu", "CPUs"), ("ram", "memory"), ("disk", "disk"))
    ),
)
