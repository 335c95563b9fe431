# SPDX-License-Identifier: Apache-2.0
"""The options of this source, read once at each start and refresh."""

from __future__ import annotations

import dataclasses

from oslo_config import cfg

#: The meaning of an interval of 0 for nova's periodic tasks.
_EVERY_MINUTE_S = 60


@dataclasses.dataclass(frozen=True, slots=True)
class Ratios:
    """The allocation ratios for a compute node whose row has none, or 0."""

    cpu: float
    ram: float
    disk: float


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """The options of this source; times in seconds.

    Attributes
    ----------
    local_connection : str or None
        ``[database] connection``, which fills the templates of cell mappings.
    discover_interval_s : int
        Negative: discovery is disabled.
    """

    ratios: Ratios
    local_connection: str | None
    full_comparison_interval_s: float
    cell_timeout_s: float
    cell_grace_s: float
    discover_interval_s: int

    @classmethod
    def of(cls, conf: cfg.ConfigOpts) -> Settings:
        """Read the current options."""
        return cls(
            ratios=Ratios(*(_ratio(conf, name) for name in ("cpu", "ram", "disk"))),
            local_connection=conf.database.connection,
            full_comparison_interval_s=conf.moorage.full_comparison_interval,
            cell_timeout_s=conf.moorage.cell_timeout,
            cell_grace_s=conf.moorage.cell_grace,
            discover_interval_s=(
                conf.scheduler.discover_hosts_in_cells_interval or _EVERY_MINUTE_S
            ),
        )


def _ratio(conf: cfg.ConfigOpts, name: str) -> float:
    """Return the fallback of nova's ``ComputeNode._from_db_object``."""
    ratio: float = conf[f"{name}_allocation_ratio"]
    return ratio or float(conf[f"initial_{name}_allocation_ratio"])
