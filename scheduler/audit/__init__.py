# SPDX-License-Identifier: Apache-2.0
"""Compare Placement's providers and allocations with what the host source knows.

    source ─▶ Cloud: hosts, aggregates, instances, unfinished moves ──┐
    Placement ─▶ PlacementState: providers, consumers ────────────────┼─▶ findings
    source ─▶ fates of the consumers that are on no host ─────────────┘

Both are read twice, some seconds apart: only what both comparisons find is reported, so
that requests in progress are no findings. Nothing is written.
"""

from .auditing import AuditReport, audit
from .findings import Finding, Kind

__all__ = ["AuditReport", "Finding", "Kind", "audit"]
