# SPDX-License-Identifier: Apache-2.0
"""[agent]: the reports of moorage-agent on a machine that is not a nova compute."""

from oslo_config import cfg

GROUP = "agent"

OPTS = (
    cfg.StrOpt(
        "transport",
        default="rpc",
        choices=[
            (
                "rpc",
                "a cast to all schedulers over the message bus of [DEFAULT] "
                "transport_url; for [moorage] source = push",
            ),
            (
                "kafka",
                "the topics of [kafka]; for [moorage] source = kafka; needs the extra "
                "moorage[kafka]",
            ),
        ],
        help="How moorage-agent sends its reports.",
    ),
    cfg.FloatOpt(
        "whole_report_interval",
        default=600.0,
        min=1.0,
        mutable=True,
        help=(
            "With transport = kafka: seconds after which the whole report is sent "
            "again even if nothing has changed, in case the topic has lost it. "
            "Related option: interval, at which heartbeats are sent."
        ),
    ),
    cfg.FloatOpt(
        "interval",
        default=10.0,
        min=0.1,
        mutable=True,
        help=(
            "Seconds between two reports of moorage-agent. A report without changes "
            "is a heartbeat. Must be well below service_down_time of the schedulers."
        ),
    ),
    cfg.StrOpt(
        "cell",
        default="cell1",
        help=(
            "UUID or name of the machine's cell. A name gives the same UUID as for a "
            "cell of that name in an inventory file."
        ),
    ),
    cfg.StrOpt(
        "node_uuid_file",
        default="/var/lib/moorage/node_uuid",
        help=(
            "File with the machine's UUID, which is also that of its resource provider "
            "in Placement. Created at the first start."
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
            "Reported instances let a scheduler settle its pending claims at once, and "
            "apply affinity rules. Unset: no instances are reported."
        ),
    ),
    cfg.IntOpt(
        "reserved_cpus",
        default=0,
        min=0,
        mutable=True,
        help="CPUs reserved for the machine itself.",
    ),
    cfg.IntOpt(
        "reserved_memory_mb",
        default=512,
        min=0,
        mutable=True,
        help="Memory in MiB reserved for the machine itself.",
    ),
    cfg.IntOpt(
        "reserved_disk_gb",
        default=0,
        min=0,
        mutable=True,
        help="Disk in GiB reserved for the machine itself.",
    ),
    *(
        cfg.FloatOpt(
            f"{name}_allocation_ratio",
            default=1.0,
            min=0.01,
            mutable=True,
            help=f"Allocation ratio of the machine's {what}.",
        )
        for name, what in (("cpu", "CPUs"), ("ram", "memory"), ("disk", "disk"))
    ),
)
