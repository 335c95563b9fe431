# SPDX-License-Identifier: Apache-2.0
"""[scheduler]: what holds for every driver."""

from oslo_config import cfg

GROUP = "scheduler"

OPTS = (
    cfg.IntOpt(
        "workers",
        min=0,
        help=(
            "Processes that serve requests. Not set or 0: as many as CPUs. They share "
            "the memory of the hosts that were read at the start. The embedded "
            "Placement allows one only."
        ),
    ),
    cfg.IntOpt(
        "max_attempts",
        default=3,
        min=1,
        mutable=True,
        help=(
            "How many hosts an instance may be tried on: the one that was selected and "
            "max_attempts - 1 alternates of its cell. 1: no alternates."
        ),
    ),
    cfg.IntOpt(
        "max_placement_results",
        default=1000,
        min=1,
        mutable=True,
        help=(
            "The limit parameter of GET /allocation_candidates. It counts allocation "
            "candidates, not hosts: a host with nested providers can have many."
        ),
    ),
    cfg.BoolOpt(
        "limit_tenants_to_placement_aggregate",
        default=False,
        mutable=True,
        help=(
            "Let a project's instances go only to hosts of the aggregates whose "
            "metadata has a key that starts with filter_tenant_id and the project's "
            "ID as its value. Projects that no aggregate names go anywhere. "
            "Related: placement_aggregate_required_for_tenants."
        ),
    ),
    cfg.BoolOpt(
        "placement_aggregate_required_for_tenants",
        default=False,
        mutable=True,
        help=(
            "Let projects that no aggregate names go nowhere. Related: "
            "limit_tenants_to_placement_aggregate, without which it says nothing."
        ),
    ),
    cfg.BoolOpt(
        "query_placement_for_image_type_support",
        default=False,
        mutable=True,
        help=(
            "Ask only for hosts that can use an image of that disk format. "
            "Instances that boot from a volume go anywhere."
        ),
    ),
    cfg.BoolOpt(
        "enable_isolated_aggregate_filtering",
        default=False,
        mutable=True,
        help=(
            "Keep the hosts of an aggregate whose metadata has trait:NAME = "
            "required to requests that require that trait, in flavor or image."
        ),
    ),
    cfg.BoolOpt(
        "image_metadata_prefilter",
        default=False,
        mutable=True,
        help=(
            "Ask only for hosts that have what an image's properties name: buses, "
            "video, network and IOMMU models, architectures."
        ),
    ),
    cfg.BoolOpt(
        "query_placement_for_routed_network_aggregates",
        default=False,
        help=(
            "Ask only for hosts in the segments of the routed networks that a "
            "request names. Neutron has to be told of in [neutron]."
        ),
    ),
    cfg.IntOpt(
        "discover_hosts_in_cells_interval",
        default=-1,
        min=-1,
        help=(
            "Seconds from one search of the cells for new compute nodes to the next: "
            "each gets its host mapping, as by nova-manage cell_v2 discover_hosts. "
            "Only with the source nova_db, of which these are the only writes. 0: "
            "every minute; negative: never."
        ),
    ),
)
