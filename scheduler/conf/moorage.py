# SPDX-License-Identifier: Apache-2.0
"""[moorage]: options that nova's scheduler does not have."""

from typing import Final

from oslo_config import cfg

from .presets import NOVA, PRESETS

GROUP = "moorage"

#: The values of the option `candidates`.
MEMORY: Final = "memory"
PLACEMENT: Final = "placement"

OPTS = (
    cfg.StrOpt(
        "source",
        default="file",
        help="The source of the hosts' state: an entry point of moorage.sources.",
    ),
    cfg.StrOpt(
        "inventory_file",
        help=(
            'YAML or JSON file of hosts, cells and aggregates for the source "file". '
            "The documentation describes its format."
        ),
    ),
    cfg.FloatOpt(
        "refresh_interval",
        default=1.0,
        min=0,
        help=(
            "Seconds between two polls of the source of host state for changes. 0: "
            "poll before every decision, as nova does; concurrent decisions share a "
            "poll."
        ),
    ),
    cfg.FloatOpt(
        "full_comparison_interval",
        default=300.0,
        min=1,
        mutable=True,
        help=(
            "Seconds between two comparisons of the whole source with the host table. "
            "They find changes that polls cannot notice, such as a row edited by hand."
        ),
    ),
    cfg.FloatOpt(
        "cell_timeout",
        default=10.0,
        min=0.1,
        help=(
            "Timeout in seconds for a cell's database, at the start and at each poll. "
            "A cell that takes longer is retried later, with increasing delays."
        ),
    ),
    cfg.FloatOpt(
        "cell_grace",
        default=60.0,
        min=0,
        mutable=True,
        help=(
            "Seconds for which the hosts of a cell whose database does not answer keep "
            "their last state; after that they are excluded until it answers."
        ),
    ),
    cfg.BoolOpt(
        "register_service",
        default=False,
        help=(
            'With the source "nova_db": register this scheduler in nova\'s table of '
            "services, with heartbeats, as nova-scheduler does, in the database of "
            '[database] connection. "openstack compute service list" and monitoring '
            "then show it as nova-scheduler on [DEFAULT] host. Related option: "
            "[DEFAULT] report_interval."
        ),
    ),
    cfg.FloatOpt(
        "max_view_age",
        default=120.0,
        min=0,
        mutable=True,
        help=(
            "Seconds after which the state of hosts is stale: the scheduler reports "
            "that it is not ready, but continues to serve requests. 0: never. Related "
            "option: cell_grace, after which a cell is excluded."
        ),
    ),
    cfg.FloatOpt(
        "claim_max_age",
        default=600.0,
        min=1,
        mutable=True,
        help=(
            "Seconds after which a pending claim is released in the host table if no "
            "report of the host includes the instance. Released earlier if Placement "
            "no longer has an allocation for it."
        ),
    ),
    cfg.FloatOpt(
        "orphan_evidence_timeout",
        default=600.0,
        min=1,
        mutable=True,
        help=(
            "Seconds after which an allocation is reported as a suspected orphan: one "
            "that may have been claimed for a request without an answer, such as that "
            "of a killed process, while nothing shows whether it is in use. It is "
            "logged and listed (moorage-status orphans), and checked further; it is "
            "never released because this time is over. Related options: source, "
            "claims_directory."
        ),
    ),
    cfg.StrOpt(
        "store_connection",
        default="sqlite:////var/lib/moorage/hosts.sqlite",
        secret=True,
        help=(
            'Database URL of the store in which the source "push" saves the reports of '
            "hosts, so that a restarted scheduler can decide at once. SQLite, MariaDB "
            "or PostgreSQL; its tables are created and upgraded at the start."
        ),
    ),
    cfg.FloatOpt(
        "forget_hosts_after",
        default=86400.0,
        min=0,
        help=(
            'Seconds after which the sources "push" and "kafka" remove a host that no '
            "longer reports. Until then it counts as down after service_down_time. "
            "0: never. Time during which no scheduler was listening does not count."
        ),
    ),
    cfg.StrOpt(
        "driver",
        default="filter_scheduler",
        help=(
            "The scheduler driver. Possible values: filter_scheduler selects the hosts "
            "of the highest weight, one instance after the other; chance selects any "
            "hosts that pass the filters, at random; solver places all instances of a "
            "request at once, and needs moorage[solver]; or the name of another entry "
            "point of moorage.drivers. Related: time_limit in [solver]."
        ),
    ),
    cfg.StrOpt(
        "preset",
        default=NOVA,
        choices=[(name, preset.trade_off) for name, preset in PRESETS.items()],
        mutable=True,
        help=(
            "Multipliers of weighers that go together. A multiplier that is set "
            "itself, also to its default, and one in the metadata of an aggregate take "
            "precedence. The documentation lists the multipliers and what simulations "
            "measured. Related: the multipliers of weighers in [filter_scheduler], "
            "[locality] weight_multiplier."
        ),
    ),
    cfg.StrOpt(
        "embedded_placement_database",
        default=":memory:",
        help=(
            "SQLite file of the embedded Placement, which runs if neither [placement] "
            "auth_type nor [placement] endpoint_override is set. One moorage-scheduler "
            "writes it, and moorage-api reads it. With the default, everything is in "
            "memory, lost at the end, and not available to moorage-api."
        ),
    ),
    cfg.StrOpt(
        "claims_directory",
        help=(
            "Folder in which each process records its unsettled claims. The unanswered "
            "claims of a killed process are released by the next process that starts "
            "with the same folder. It must be on this machine, outlive a restart, and "
            "be shared only by schedulers of the same Placement. It is created if "
            "missing. Unset: several workers use a temporary folder, which covers the "
            "death of a worker but not of all processes; a single process records "
            "nothing. Related option: [scheduler] workers."
        ),
    ),
    cfg.StrOpt(
        "candidates",
        choices=[
            (
                MEMORY,
                "Computed from a copy of Placement's providers, which follows "
                "Placement's database or the embedded Placement",
            ),
            (
                PLACEMENT,
                "Queried from Placement with GET /allocation_candidates, and cached",
            ),
        ],
        help=(
            "Where allocation candidates come from. A claim is always made in "
            "Placement, which refuses one that does not fit. Queries that memory does "
            "not cover, and all of them while the copy is older than "
            "providers_max_age, go to Placement. Unset: memory if [placement_database] "
            "connection is set or Placement is the embedded one, otherwise placement. "
            "Related options: [placement_database] connection, providers_max_age, "
            "candidates_max_age."
        ),
    ),
    cfg.FloatOpt(
        "providers_max_age",
        default=5.0,
        min=0.1,
        mutable=True,
        help=(
            "Seconds for which the copy of Placement's providers is used after the "
            "last poll of the database; there is one every second. An older copy is "
            "not used: Placement is queried within the same request, as with "
            "candidates = placement, and so it is while the database is unavailable."
        ),
    ),
    cfg.FloatOpt(
        "confirmations_per_second",
        default=10.0,
        min=0,
        mutable=True,
        help=(
            "With candidates = memory: how many times per second and project Placement "
            "is asked, at most, whether it has candidates that memory lacks, before a "
            "request fails with NoValidHost. The providers that lack only room are "
            "read from the database before that in any case. Requests for the same "
            "share an answer, whatever their project: for a second, and for "
            "providers_max_age as long as no provider changes. 0: Placement is not "
            "asked, and a database that is behind Placement can fail requests."
        ),
    ),
    cfg.FloatOpt(
        "candidates_max_age",
        default=5.0,
        min=0,
        mutable=True,
        help=(
            "Seconds for which answers of Placement to GET /allocation_candidates are "
            "cached; candidates claimed since then are excluded. Answers in frequent "
            "use are refreshed in the background before they expire, and Placement is "
            "always queried again before a request fails with NoValidHost. Before a "
            "claim from an answer older than a second, the traits and aggregates in "
            "the query are read again for the chosen host, mostly one short GET. A GET "
            "of candidates costs Placement time for each matching provider: with "
            "thousands of hosts, 30 s and more reduce its load. 0: Placement is "
            "queried for every request, as by nova. Related options: "
            "candidates_cache_size, [scheduler] max_placement_results."
        ),
    ),
    cfg.IntOpt(
        "candidates_cache_size",
        default=100_000,
        min=0,
        mutable=True,
        help=(
            "Maximum number of cached allocation candidates, in all answers together. "
            "The least recently used answers are evicted first, and an answer that "
            "alone exceeds the maximum is not cached. Each candidate takes about 4 KB "
            "of memory, in each worker: a smaller maximum saves memory, and a larger "
            "one serves clouds of many flavors and hosts. Related option: "
            "candidates_max_age."
        ),
    ),
    cfg.IntOpt(
        "decision_records",
        default=1000,
        min=1,
        help=(
            "Maximum number of decision records in the memory of a process; the oldest "
            "are dropped. Related option: decision_store_connection."
        ),
    ),
    cfg.StrOpt(
        "decision_store_connection",
        default="sqlite:////var/lib/moorage/decisions.sqlite",
        secret=True,
        help=(
            "Database URL of the store of decisions, which all workers share and which "
            "outlives them: SQLite, MariaDB or PostgreSQL. Its tables are created and "
            "upgraded at the start. While it does not answer, decisions continue. "
            "Empty: decisions are only in memory; so they are by default with the "
            "embedded Placement, whose allocations end with the process. Related "
            "options: decision_store_max_age, decision_store_max_decisions."
        ),
    ),
    cfg.FloatOpt(
        "decision_store_max_age",
        default=30 * 86400.0,
        min=0,
        help=(
            "Seconds after which stored decisions are removed: set it to how long "
            "records of users' requests may or must be kept. 0: never. Related option: "
            "decision_store_max_decisions, which bounds the size."
        ),
    ),
    cfg.IntOpt(
        "decision_store_max_decisions",
        default=100_000,
        min=0,
        help=(
            "Maximum number of stored decisions, of all schedulers that share the "
            "store; the oldest are removed. It may be exceeded for some minutes. 0: no "
            "maximum. A decision for one instance needs about 2 kB: set it to the disk "
            "space that there is. Related option: decision_store_max_age."
        ),
    ),
    cfg.IntOpt(
        "stored_views",
        default=100,
        min=0,
        help=(
            "Maximum number of views in the store of decisions, of all schedulers that "
            "share it; the oldest are removed. A view is the state on which a decision "
            "was made: hosts, providers and options, without secrets. It is what "
            "`moorage replay` repeats the decision on. Each process stores the views "
            "of decisions that find no host, at most one a second and less often while "
            "failures go on, and of the share view_share of all decisions; at most 5 % "
            "of a core is spent on that. With 10,000 hosts of 20 instances, a view has "
            "about 5 MB. 0: none is stored. Related options: "
            "decision_store_connection, view_share."
        ),
    ),
    cfg.FloatOpt(
        "view_share",
        default=0.01,
        min=0,
        max=1,
        help=(
            "Share of decisions whose view is stored, whatever their outcome, so that "
            "`moorage replay --since 24h` tries another configuration on them. "
            "Decisions that read the same state share a view. At least one decision a "
            "minute is among them. 1: all, as far as that takes no more than 5 % of a "
            "core. For a day, set stored_views to the decisions of a day, multiplied "
            "by this share. Related option: stored_views."
        ),
    ),
    cfg.ListOpt(
        "capacity_flavors",
        default=[],
        help=(
            "Names of the flavors whose capacity moorage-api computes every 60 s, and "
            "exports as moorage_capacity_instances. They are read from nova's API "
            'database; unless source is "nova_db", they are taken from the 200 newest '
            "stored decisions, and are exported only while those have them."
        ),
    ),
    cfg.StrOpt(
        "user_reasons",
        default="counts",
        choices=[
            (
                "counts",
                "Numbers of hosts by cause, in at most 255 bytes with nova's words "
                "before them, which nova shows as the fault of an instance; no names "
                "of hosts.",
            ),
            ("nova", 'nova\'s, such as "There are not enough hosts available."'),
        ],
        mutable=True,
        help=(
            'The text after "No valid host was found." that reaches end users if no '
            "host fits. What Placement left out is counted by the state of the hosts "
            "that the scheduler knows."
        ),
    ),
    cfg.IntOpt(
        "random_seed",
        help=(
            "Seed of the random generator that breaks ties and selects within "
            "host_subset_size: the same seed gives the same results. Unset: a new seed "
            "at every start."
        ),
    ),
)
