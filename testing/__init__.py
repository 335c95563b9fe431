# SPDX-License-Identifier: Apache-2.0
"""For whoever tests a plugin or a conductor: needs the extra ``testing`` of moorage.

`check_plugin` proves that a filter or weigher keeps the contract. Builders make hosts
and requests, strategies draw them, and fixtures run a Placement and a whole scheduler.
"""

from .builders import aggregate, batch, group, host, image, options, spec, table
from .conformance import check_filter, check_plugin, check_weigher
from .environment import PlacementFixture, SchedulerFixture
from .strategies import Cloud, batches, clouds, requests

__all__ = [
    "Cloud",
    "PlacementFixture",
    "SchedulerFixture",
    "aggregate",
    "batch",
    "batches",
    "check_filter",
    "check_plugin",
    "check_weigher",
    "clouds",
    "group",
    "host",
    "image",
    "options",
    "requests",
    "spec",
    "table",
]
