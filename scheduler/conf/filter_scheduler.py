# SPDX-License-Identifier: Apache-2.0
"""[filter_scheduler]: filters, weighers, and the selection among the best hosts."""

from oslo_config import cfg

from .values import PluginFile

GROUP = "filter_scheduler"

#: nova's default filters in nova's order, which does not affect which hosts pass; then
#: Moorage's own.
DEFAULT_FILTERS = (
    "ComputeFilter",
    "ComputeCapabilitiesFilter",
    "ImagePropertiesFilter",
    "ServerGroupAntiAffinityFilter",
    "ServerGroupAffinityFilter",
    "LocalityFilter",
)


def _multiplier(name: str, default: float, help_: str, **limits: float) -> cfg.Opt:
    return cfg.FloatOpt(
        f"{name}_weight_multiplier",
        default=default,
        mutable=True,
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
        mutable=True,
        help=(
            "Filters that enabled_filters may name, in addition to the entry points of "
            "the group moorage.filters. Possible values: nova's own dotted paths, "
            "which stand for Moorage's filters; the dotted path of a class that has "
            "host_passes(host_state, spec_obj), or of a function that returns such "
            "classes."
        ),
    ),
    cfg.ListOpt(
        "enabled_filters",
        default=list(DEFAULT_FILTERS),
        mutable=True,
        help="Class names of the filters to apply to every request.",
    ),
    cfg.ListOpt(
        "weight_classes",
        default=["nova.scheduler.weights.all_weighers"],
        mutable=True,
        help=(
            "Weighers to use. Possible values: nova.scheduler.weights.all_weighers, "
            "which stands for every entry point of the group moorage.weighers; the "
            "name of such an entry point; a dotted path, as in available_filters, of a "
            "class that has _weigh_object(host_state, request)."
        ),
    ),
    cfg.IntOpt(
        "host_subset_size",
        default=1,
        min=1,
        mutable=True,
        help=(
            "The number of best hosts from which one is selected at random. More than "
            "1 reduces conflicts between schedulers, at the cost of selecting hosts "
            "with a lower weight."
        ),
    ),
    cfg.BoolOpt(
        "shuffle_best_same_weighed_hosts",
        default=False,
        mutable=True,
        help="Shuffle the hosts whose weight exactly equals the best one.",
    ),
    cfg.StrOpt(
        "image_properties_default_architecture",
        mutable=True,
        help=(
            "Architecture that ImagePropertiesFilter assumes for images without one. "
            "Unset: any."
        ),
    ),
    cfg.IntOpt(
        "max_io_ops_per_host",
        default=8,
        min=0,
        mutable=True,
        help=(
            "Maximum number of concurrent builds, resizes, snapshots, migrations, "
            "rescues and unshelvings of a host: IoOpsFilter rejects hosts that have "
            "reached it. In AggregateIoOpsFilter max_io_ops_per_host in the metadata "
            "of a host's aggregates takes precedence."
        ),
    ),
    cfg.IntOpt(
        "max_instances_per_host",
        default=50,
        min=1,
        mutable=True,
        help=(
            "Maximum number of instances of a host: NumInstancesFilter rejects hosts "
            "that have reached it. In AggregateNumInstancesFilter "
            "max_instances_per_host in the metadata of a host's aggregates takes "
            "precedence."
        ),
    ),
    cfg.ListOpt(
        "isolated_images",
        default=[],
        mutable=True,
        help=(
            "UUIDs of the images that IsolatedHostsFilter restricts to isolated_hosts. "
            "Related: restrict_isolated_hosts_to_isolated_images."
        ),
    ),
    cfg.ListOpt(
        "isolated_hosts",
        default=[],
        mutable=True,
        help=(
            "Hosts to which IsolatedHostsFilter restricts isolated_images; names are "
            "case-sensitive. Related: restrict_isolated_hosts_to_isolated_images."
        ),
    ),
    cfg.BoolOpt(
        "restrict_isolated_hosts_to_isolated_images",
        default=True,
        mutable=True,
        help="Whether IsolatedHostsFilter rejects isolated_hosts for other images.",
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_namespace",
        mutable=True,
        deprecated_for_removal=True,
        deprecated_reason="No image property that nova knows begins with a namespace.",
        help=(
            "Prefix of the metadata that AggregateImagePropertiesIsolation compares. "
            "With a prefix, all hosts pass. Unset: all metadata."
        ),
    ),
    cfg.StrOpt(
        "aggregate_image_properties_isolation_separator",
        default=".",
        mutable=True,
        deprecated_for_removal=True,
        deprecated_reason="No image property that nova knows begins with a namespace.",
        help="Separator after aggregate_image_properties_isolation_namespace in a key.",
    ),
    _multiplier("ram", 1.0, "Free RAM: positive spreads, negative packs."),
    _multiplier("cpu", 1.0, "Free vCPUs: positive spreads, negative packs."),
    _multiplier("disk", 1.0, "Free disk: positive spreads, negative packs."),
    _multiplier("io_ops", -1.0, "I/O operations: negative prefers quiet hosts."),
    _multiplier(
        "hypervisor_version", 1.0, "Hypervisor's version: positive prefers newer ones."
    ),
    _multiplier("num_instances", 0.0, "Instances: negative prefers few."),
    _multiplier(
        "build_failure",
        1000000.0,
        "Recent failed builds, negated: the larger, the more a host is avoided.",
    ),
    _multiplier(
        "cross_cell_move",
        1000000.0,
        "A move that may leave its cell: positive prefers to stay, negative to leave.",
    ),
    _multiplier(
        "image_props",
        0.0,
        "Instances with the same image properties: positive packs, negative spreads.",
    ),
    cfg.ListOpt(
        "image_props_weight_setting",
        default=[],
        mutable=True,
        sample_default=["os_distro=2", "hw_machine_type=0.5"],
        help=(
            "Properties that ImagePropertiesWeigher counts, as property=factor, for "
            "example os_distro=2,hw_machine_type=0.5; others do not count. Empty: "
            "every property counts 1. Related: image_props_weight_multiplier."
        ),
    ),
    _multiplier(
        "pci",
        1.0,
        "Free PCI devices, negated: hosts that have few are used first.",
        min=0.0,
    ),
    _multiplier(
        "fragmentation",
        0.0,
        "Room that the instance strands for the flavors of fragmentation_flavors, "
        "which must not be empty then, unless a preset sets it: positive strands "
        "little.",
    ),
    cfg.ListOpt(
        "fragmentation_flavors",
        default=[],
        mutable=True,
        sample_default=["2:4096=0.6", "32:131072/2p+1x10de.20b0=0.1"],
        help=(
            "Flavors and their shares of all requests, for FragmentationWeigher: "
            "VCPUS:MEMORY_MB=SHARE; with NUMA cells VCPUS:MEMORY_MB/CELLS=SHARE, and a "
            "p after the number if their CPUs are pinned; with PCI devices "
            "+COUNTxVENDOR.PRODUCT before the share, by ids. `moorage flavor-mix` "
            "prints those of a trace or of the stored decisions. Related: "
            "fragmentation_weight_multiplier."
        ),
    ),
    _multiplier(
        "lifetime",
        0.0,
        "Time by which the instance is expected to outlive the others on the host, by "
        "lifetime_model, which must be set then: positive places instances together "
        "that are expected to end together.",
    ),
    cfg.Opt(
        "lifetime_model",
        type=PluginFile(needed_by=["lifetime_weight_multiplier"]),
        default="",
        mutable=True,
        sample_default="/etc/moorage/lifetimes.json",
        help=(
            "File with lifetimes of instances, for LifetimeWeigher, such as `moorage "
            "lifetimes` prints from nova's databases or a trace. Empty: launch "
            "times are not read. Related: lifetime_weight_multiplier."
        ),
    ),
    _multiplier("soft_affinity", 1.0, "Members of the server group.", min=0.0),
    _multiplier("soft_anti_affinity", 1.0, "Members of the server group.", min=0.0),
)
