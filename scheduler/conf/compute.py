# SPDX-License-Identifier: Apache-2.0
"""[compute]: what schedulers and computes have to agree on."""

from oslo_config import cfg

GROUP = "compute"

OPTS = (
    cfg.BoolOpt(
        "packing_host_numa_cells_allocation_strategy",
        default=False,
        help=(
            "Whether a guest goes to the NUMA cells of a host that are used most, "
            "rather than to those that are used least. The same value as on the "
            "computes: the scheduler reckons with the cells that they will choose."
        ),
    ),
)


def packs_cells(conf: cfg.ConfigOpts) -> bool:
    """Return whether guests go to the NUMA cells that are used most."""
    return bool(conf[GROUP].packing_host_numa_cells_allocation_strategy)
