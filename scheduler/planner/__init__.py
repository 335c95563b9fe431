# SPDX-License-Identifier: Apache-2.0
"""Plan moves of instances: which of them, where to, and in which order.

A plan is computed on copies of the host table and of Placement's providers. The
scheduler's own driver, filters and weighers decide each move, and what a move claims is
counted before the next one is decided. Nothing is claimed, and nothing is moved.
"""

from .checking import (
    CheckedPlan,
    CheckedStep,
    NewInstance,
    PlannedMove,
    StepState,
    check_plan,
    moves_of,
)
from .cloud import FindRequests, KnownRequest, PlannedCloud
from .defragment import plan_defragment
from .drain import MAX_INSTANCES, hosts_to_drain, plan_drain
from .make_room import plan_make_room
from .plan import (
    FailureCheck,
    Goal,
    HostChange,
    Plan,
    Step,
    StuckInstance,
    UnknownInstance,
)

__all__ = [
    "MAX_INSTANCES",
    "CheckedPlan",
    "CheckedStep",
    "FailureCheck",
    "FindRequests",
    "Goal",
    "HostChange",
    "KnownRequest",
    "NewInstance",
    "Plan",
    "PlannedCloud",
    "PlannedMove",
    "Step",
    "StepState",
    "StuckInstance",
    "UnknownInstance",
    "check_plan",
    "hosts_to_drain",
    "moves_of",
    "plan_defragment",
    "plan_drain",
    "plan_make_room",
]
