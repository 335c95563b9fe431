# SPDX-License-Identifier: Apache-2.0
"""Why there, why not there: explanations of decisions, hosts and requests.

They claim and change nothing. `funnel` needs a record only; the others need the hosts
and, for Placement's part, its providers: the copy in memory or, without one, Placement.
"""

from .capacity import (
    CapacityReport,
    FlavorCapacity,
    NoProviders,
    PlaceCapacity,
    capacity,
)
from .changes import Change
from .closest import ClosestGroup, ClosestReport
from .cloud_fill import (
    BY_CELL,
    BY_ZONE,
    RESOURCES,
    CloudFill,
    FillGroup,
    ResourceFill,
    cloud_fill,
)
from .dry_run import dry_run
from .explainer import Explainer, UnknownHost
from .flavors import FlavorRequest, request_of_flavor, requests_of_decisions
from .funnel import FunnelStep, funnel, with_funnel
from .host_list import (
    HostCondition,
    HostPage,
    HostSummary,
    host_conditions,
    summarize,
)
from .reasons import CheckStage, HostReason, HostVerdict, ProvidersFrom
from .rejections import RejectionCount, count_rejections
from .replay import Difference, Replay, replay
from .replay_summary import ReplaySummary
from .requested import describe_request
from .tree_checks import HostTree
from .why_not import host_reasons

__all__ = [
    "BY_CELL",
    "BY_ZONE",
    "RESOURCES",
    "CapacityReport",
    "Change",
    "CheckStage",
    "ClosestGroup",
    "ClosestReport",
    "CloudFill",
    "Difference",
    "Explainer",
    "FillGroup",
    "FlavorCapacity",
    "FlavorRequest",
    "FunnelStep",
    "HostCondition",
    "HostPage",
    "HostReason",
    "HostSummary",
    "HostTree",
    "HostVerdict",
    "NoProviders",
    "PlaceCapacity",
    "ProvidersFrom",
    "RejectionCount",
    "Replay",
    "ReplaySummary",
    "ResourceFill",
    "UnknownHost",
    "capacity",
    "cloud_fill",
    "count_rejections",
    "describe_request",
    "dry_run",
    "funnel",
    "host_conditions",
    "host_reasons",
    "replay",
    "request_of_flavor",
    "requests_of_decisions",
    "summarize",
    "with_funnel",
]
