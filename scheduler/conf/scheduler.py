# SPDX-License-Identifier: Apache-2.0
"""[scheduler]: options of all drivers."""

from oslo_config import cfg

GROUP = "scheduler"

OPTS = (
    cfg.IntOpt(
        "workers",
        min=0,
        help=(
            "Number of worker processes. Not set or 0: the number of CPUs. They share "
            "the memory of the hosts that were read at the start. The embedded "
            "Placement allows only one."
        ),
    ),
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        mutable=True,
        help=(
            "Maximum number of hosts on which an instance is tried: the selected one "
            "and max_attempts - 1 alternates of its cell. 1: no alternates."
        ),
    ),
    cfg.IntOpt(
        "max_placement_results",
        default=1000,
        min=1,
        mutable=True,
        help=(
            "The limit parameter of GET /allocation_candidates. It counts allocation "
            "candidates, not hosts: a host with nested providers can have many. With "
            "[moorage] candidates = memory it limits nothing: candidates are computed "
            "for the hosts that are judged only. Related option: [moorage] candidates."
        ),
    ),
    cfg.BoolOpt(
        "limit_tenants_to_placement_aggregate",
        default=False,
        mutable=True,
        help=(
            "Restrict a project's instances to hosts of the aggregates whose metadata "
            "has a key that starts with filter_tenant_id and the project's ID as its "
            "value. Projects that no aggregate names are not restricted. "
            "Related: placement_aggregate_required_for_tenants."
        ),
    ),
    cfg.BoolOpt(
        "placement_aggregate_required_for_tenants",
        default=False,
        mutable=True,
        help=(
            "Reject requests of projects that no aggregate names. Related: "
            "limit_tenants_to_placement_aggregate, without which it has no effect."
        ),
    ),
    cfg.BoolOpt(
        "query_placement_for_image_type_support",
        default=False,
        mutable=True,
        help=(
            "Restrict requests to hosts that support the image's disk format. "
            "Instances that boot from a volume are not restricted."
        ),
    ),
    cfg.BoolOpt(
        "enable_isolated_aggregate_filtering",
        default=False,
        mutable=True,
        help=(
            "Reserve the hosts of aggregates whose metadata has trait:NAME = required "
            "for requests that require that trait, in flavor or image."
        ),
    ),
    cfg.BoolOpt(
        "image_metadata_prefilter",
        default=False,
        mutable=True,
        help=(
            "Restrict requests to hosts that support the image's properties: buses, "
            "video, network and IOMMU models, architectures."
        ),
    ),
    cfg.BoolOpt(
        "query_placement_for_routed_network_aggregates",
        default=False,
        help=(
            "Restrict requests to hosts in the segments of the routed networks that "
            "they name. Requires Neutron in [neutron]."
        ),
    ),
    cfg.IntOpt(
        "discover_hosts_in_cells_interval",
        default=-1,
        min=-1,
        help=(
            "Seconds between two searches of the cells for new compute nodes: each "
            "gets its host mapping, as by nova-manage cell_v2 discover_hosts. Only "
            "with the source nova_db, of which these are the only writes. 0: every "
            "minute; negative: never."
        ),
    ),
)
