# SPDX-License-Identifier: Apache-2.0
"""[moorage]: what nova's scheduler does not have."""

from oslo_config import cfg

GROUP = "moorage"

OPTS = (
    cfg.StrOpt(
        "source",
        default="file",
        help="Where the state of hosts comes from: an entry point of moorage.sources.",
    ),
    cfg.StrOpt(
        "inventory_file",
        help=(
            'YAML or JSON file of hosts, cells and aggregates for the source "file". '
            "Its format is told in the documentation."
        ),
    ),
    cfg.FloatOpt(
        "refresh_interval",
        default=1.0,
        min=0,
        help=(
            "Seconds from one look at a source of host state for what has changed to "
            "the next. 0: a look before every decision, as nova does; decisions that "
            "wait at the same time share it."
        ),
    ),
    cfg.FloatOpt(
        "full_comparison_interval",
        default=300.0,
        min=1,
        mutable=True,
        help=(
            "Seconds from one comparison of all that a source holds with the table to "
            "the next. It heals what no look can notice, such as a row that was edited "
            "by hand."
        ),
    ),
    cfg.FloatOpt(
        "cell_timeout",
        default=10.0,
        min=0.1,
        help=(
            "Seconds to wait for a cell's database, at the start and at each look. "
            "A cell that takes longer is asked again later, and ever less often."
        ),
    ),
    cfg.FloatOpt(
        "cell_grace",
        default=60.0,
        min=0,
        mutable=True,
        help=(
            "Seconds for which the hosts of a cell whose database does not answer keep "
            "their last state; then they are left out until it does."
        ),
    ),
    cfg.BoolOpt(
        "register_service",
        default=False,
        help=(
            'With the source "nova_db": keep a row with heartbeats in nova\'s table of '
            "services, as nova-scheduler does, in the database of [database] "
            'connection. Then "openstack compute service list", and whoever watches '
            "services there, has this scheduler as nova-scheduler on [DEFAULT] host. "
            "Related option: [DEFAULT] report_interval."
        ),
    ),
    cfg.FloatOpt(
        "max_view_age",
        default=120.0,
        min=0,
        mutable=True,
        help=(
            "Seconds after which the state of hosts is too old to decide on: the "
            "scheduler says that it is not ready, and goes on as well as it can. 0: "
            "never. Related option: cell_grace, after which a cell counts no more."
        ),
    ),
    cfg.FloatOpt(
        "claim_max_age",
        default=600.0,
        min=1,
        mutable=True,
        help=(
            "Seconds after which what a claim took of a host is given back in the "
            "table although no report of the host includes the instance. Sooner if "
            "Placement holds no allocation for it any more."
        ),
    ),
    cfg.FloatOpt(
        "orphan_evidence_timeout",
        default=600.0,
        min=1,
        mutable=True,
        help=(
            "Seconds after which an allocation is judged that may have been claimed "
            "for a request without an answer, such as that of a killed process. If no "
            "host has reported the instance by then, it is released. If the source of "
            "hosts does not know where instances are (file), it is reported in the log "
            "as a suspected orphan and not released."
        ),
    ),
    cfg.StrOpt(
        "store_connection",
        default="sqlite:////var/lib/moorage/hosts.sqlite",
        secret=True,
        help=(
            'Database URL of the store in which the source "push" keeps what hosts '
            "reported, so that a restarted scheduler decides at once. SQLite, MariaDB "
            "or PostgreSQL; its tables are made and upgraded at the start."
        ),
    ),
    cfg.FloatOpt(
        "forget_hosts_after",
        default=86400.0,
        min=0,
        help=(
            'Seconds after which the source "push" forgets a host that reports nothing '
            "any more. Until then it is known, and counts as down after "
            "service_down_time. 0: never. Time in which no scheduler listened does not "
            "count."
        ),
    ),
    cfg.StrOpt(
        "driver",
        default="filter_scheduler",
        help="What selects destinations: an entry point of moorage.drivers.",
    ),
    cfg.StrOpt(
        "embedded_placement_database",
        default=":memory:",
        help=(
            "SQLite file of the embedded Placement, which runs when neither "
            "[placement] auth_type nor [placement] endpoint_override is set. The "
            "default keeps everything in memory and forgets it at the end."
        ),
    ),
    cfg.FloatOpt(
        "placement_timeout",
        default=30.0,
        min=0.1,
        help=(
            "Seconds to wait for an answer of Placement where [placement] timeout is "
            "not set."
        ),
    ),
    cfg.StrOpt(
        "claims_directory",
        help=(
            "Folder in which each process notes the claims that are under way. What "
            "one that was killed had claimed and not answered is released by the next "
            "that starts with the same folder, so it has to be on this machine and to "
            "outlive a restart; all schedulers with the same folder have the same "
            "Placement. It is made where it is missing. Unset: several workers use a "
            "temporary one, which covers a worker that is killed and not the death of "
            "all; a single process notes nothing. Related option: [scheduler] workers."
        ),
    ),
    cfg.StrOpt(
        "pid_file",
        sample_default="/run/moorage/moorage-scheduler.pid",
        help=(
            "File with the number of the process to send signals to: with several "
            "workers, the one that started them. It is written once signals are "
            "served, and removed at the end; a stale one is replaced. Its folder has "
            "to exist. Each moorage-scheduler of a machine needs its own. Unset: there "
            "is none."
        ),
    ),
    cfg.FloatOpt(
        "candidates_max_age",
        default=5.0,
        min=0,
        mutable=True,
        help=(
            "Seconds for which an answer of Placement to GET /allocation_candidates is "
            "kept and answers the same question again, less what was claimed "
            "meanwhile. What is asked often is asked again in the background before "
            "it is too old, and Placement is always asked afresh before NoValidHost is "
            "said. Before a claim from an answer older than a second, the traits and "
            "aggregates that the question names are read again of the chosen host, "
            "mostly one short GET. A GET of candidates costs Placement time for each "
            "provider that fits: with thousands of hosts, 30 s and more spare it work. "
            "0: Placement is asked for every request, as nova does. Related options: "
            "candidates_max_kept, [scheduler] max_placement_results."
        ),
    ),
    cfg.IntOpt(
        "candidates_max_kept",
        default=100_000,
        min=0,
        mutable=True,
        help=(
            "Most allocation candidates that are kept, all answers together; those of "
            "the answers that were not used for longest go first, and an answer that "
            "is larger by itself is not kept. Each takes about 4 KB of memory. Related "
            "option: candidates_max_age."
        ),
    ),
    cfg.IntOpt(
        "decision_records",
        default=1000,
        min=1,
        help="How many decision records are kept, the newest ones.",
    ),
    cfg.IntOpt(
        "random_seed",
        help=(
            "Seed of the generator that breaks ties and chooses within "
            "host_subset_size: the same seed gives the same answers. Unset: a new one "
            "at every start."
        ),
    ),
)
