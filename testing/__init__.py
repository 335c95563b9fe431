# SPDX-License-Identifier: Apache-2.0
"""Tools to test plugins and conductors; needs the extra ``testing`` of moorage.

`check_plugin` checks that a filter or weigher fulfills the contract. Builders create
hosts and requests, strategies draw them, and fixtures run Placement and a scheduler.
"""

from .builders import aggregate, batch, group, host, image, options, spec, table
from .conformance import check_filter, check_plugin, check_weigher
from .environment import PlacementFixture, SchedulerFixture
from .strategies import batches, requests

__all__ = [
    "PlacementFixture",
    "SchedulerFixture",
    "aggregate",
    "batch",
    "batches",
    "check_filter",
    "check_plugin",
    "check_weigher",
    "group",
    "host",
    "image",
    "options",
    "requests",
    "spec",
    "table",
]
