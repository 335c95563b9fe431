# SPDX-License-Identifier: Apache-2.0
"""[filter_scheduler]: filters, weighers, and how a host is chosen among the best."""

from oslo_config import cfg

GROUP = "filter_scheduler"

#: The order is nova's; no order changes which hosts pass.
DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
)


def _multiplier(name: str, default: float, help_: str, **limits: float) -> cfg.Opt:
    return cfg.FloatOpt(
        f"{name}_weight_multiplier",
        default=default,
        help=(
            f"{help_} Overridden for a host by the smallest "
            f"{name}_weight_multiplier among the metadata of its aggregates."
        ),
        **limits,
    )


OPTS = (
    cfg.MultiStrOpt(
        "available_filters",
        default=["nova.scheduler.filters.all_filters"],
        help=(
            "Filters that enabled_filters may name, beside the entry points of the "
            "group moorage.filters. Possible values: nova's own dotted paths, which "
            "mean ours; the dotted path of a class that has host_passes(host_state, "
            "spec_obj), or of a function that returns such classes."
        ),
    ),
    cfg.ListOpt(
        "enabled_filters",
        default=list(DEFAULT_FILTERS),
        help="Class names of the filters that every request passes.",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=["nova.scheduler.weights.all_weighers"],
        help=(
            "Weighers to use. Possible values: nova.scheduler.weights.all_weighers, "
            "which means every entry point of the group moorage.weighers; the name of "
            "such an entry point; a dotted path, as in available_filters, of a class "
            "that has _weigh_object(host_state, request)."
        ),
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        help=(
            "Choose at random among that many of the best hosts. More than 1 lowers "
            "the conflicts of several schedulers, at the price of a lesser host."
        ),
    ),
    cfg.BoolOpt(
        "shuffle_best_same_weighed_hosts",
        default=False,
        help="Shuffle the hosts whose weight equals the best one exactly.",
    ),
    cfg.StrOpt(
        "image_properties_default_architecture",
        help=(
            "Architecture that ImagePropertiesFilter assumes for an image that does "
            "not name one. Unset: any."
        ),
    ),
    _multiplier("ram", 1.0, "Free RAM: positive spreads, negative packs."),
    _multiplier("cpu", 1.0, "Free vCPUs: positive spreads, negative packs."),
    _multiplier("disk", 1.0, "Free disk: positive spreads, negative packs."),
    _multiplier("io_ops", -1.0, "I/O operations: negative prefers quiet hosts."),
    _multiplier("num_instances", 0.0, "Instances: negative prefers few."),
    _multiplier(
        "build_failure",
        1000000.0,
        "Recent failed builds, used negated: the larger, the more a host is avoided.",
    ),
    _multiplier("soft_affinity", 1.0, "Members of the server group.", min=0.0),
    _multiplier("soft_anti_affinity", 1.0, "Members of the server group.", min=0.0),
)
