# SPDX-License-Identifier: Apache-2.0
"""[compute]: options that must be the same on schedulers and computes."""

from oslo_config import cfg

GROUP = "compute"

OPTS = (
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help=(
            "Whether a guest is placed on the most used NUMA cells of a host instead "
            "of the least used ones. Must have the same value as on the computes: the "
            "scheduler predicts the cells that they select."
        ),
    ),
)


def packs_cells(conf: cfg.ConfigOpts) -> bool:
    """Return whether guests are placed on the most used NUMA cells."""
    return bool(conf[GROUP].packing_host_numa_cells_allocation_strategy)
