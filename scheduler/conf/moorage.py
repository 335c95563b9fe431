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
    cfg.FloatOpt(
        "candidates_max_age",
        default=5.0,
        min=0,
        help=(
            "Seconds for which an answer of Placement to GET /allocation_candidates is "
            "kept and answers the same question again, less what was claimed "
            "meanwhile. What is asked often is asked again in the background before "
            "it is too old, and Placement is always asked afresh before NoValidHost is "
            "said. A GET costs Placement time for each provider that fits: with "
            "thousands of hosts, 30 s and more spare it work. 0: Placement is asked "
            "for every request, as nova does. Related options: candidates_max_kept, "
            "[scheduler] max_placement_results."
        ),
    ),
    cfg.IntOpt(
        "candidates_max_kept",
        default=100_000,
        min=0,
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
