# SPDX-License-Identifier: Apache-2.0
"""Explain decisions, hosts and requests: why an instance is on a host, or on none.

Explanations claim and change nothing. `funnel` needs a record only. The other functions
need the hosts and, to explain Placement's part, Placement's providers: from the copy in
memory or, if there is no copy, from Placement.
"""

from .capacity import (
    CapacityReport,
    FlavorCapacity,
    HostCapacity,
    NoProviders,
    ZoneCapacity,
    capacity,
)
from .changes import Change
from .closest import ClosestGroup, ClosestReport
from .cloud_fill import (
    BY_CELL,
    BY_ZONE,
    CloudFill,
    FillGroup,
    cloud_fill,
)
from .dry_run import dry_run
from .explainer import Explainer, UnknownHost
from .failure_groups import FailureGroup, group_failures
from .flavors import FlavorRequest, request_of_flavor, requests_of_decisions
from .funnel import (
    FunnelStep,
    RejectionCount,
    cause_of,
    count_rejections,
    funnel,
    with_funnel,
)
from .host_arrays import RESOURCES, HostCondition, ResourceFill, host_conditions
from .host_checks import FailedCheck
from .host_detail import HostDetail, HostEvent, events_of_records
from .host_list import HostPage, HostSummary, summarize
from .host_room import UNKNOWN_ROOM, CloudRoom
from .host_search import NOT_UP, SORTS, HostSearch
from .past_host import HostRank, PastHost
from .reasons import CheckStage, HostReason, HostVerdict, ProvidersFrom, host_reasons
from .replay import Difference, Replay, ReplaySummary, replay
from .requested import describe_request
from .tree_checks import HostTree

__all__ = [
    "BY_CELL",
    "BY_ZONE",
    "NOT_UP",
    "RESOURCES",
    "SORTS",
    "UNKNOWN_ROOM",
    "CapacityReport",
    "Change",
    "CheckStage",
    "ClosestGroup",
    "ClosestReport",
    "CloudFill",
    "CloudRoom",
    "Difference",
    "Explainer",
    "FailedCheck",
    "FailureGroup",
    "FillGroup",
    "FlavorCapacity",
    "FlavorRequest",
    "FunnelStep",
    "HostCapacity",
    "HostCondition",
    "HostDetail",
    "HostEvent",
    "HostPage",
    "HostRank",
    "HostReason",
    "HostSearch",
    "HostSummary",
    "HostTree",
    "HostVerdict",
    "NoProviders",
    "PastHost",
    "ProvidersFrom",
    "RejectionCount",
    "Replay",
    "ReplaySummary",
    "ResourceFill",
    "UnknownHost",
    "ZoneCapacity",
    "capacity",
    "cause_of",
    "cloud_fill",
    "count_rejections",
    "describe_request",
    "dry_run",
    "events_of_records",
    "funnel",
    "group_failures",
    "host_conditions",
    "host_reasons",
    "replay",
    "request_of_flavor",
    "requests_of_decisions",
    "summarize",
    "with_funnel",
]
