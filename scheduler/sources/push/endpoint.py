# SPDX-License-Identifier: Apache-2.0
"""What agents cast their reports to: `host_reports` of namespace "moorage"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import oslo_messaging

from .asking import Ask

LOG = logging.getLogger(__name__)


class ReportEndpoint:
    """Serve `host_reports`, a fanout cast: every scheduler hears every report.

    Parameters
    ----------
    take : callable
        Takes the reports in their wire form.
    connect : callable
        Takes the way back to agents.
    """

    target = oslo_messaging.Target(namespace="moorage", version="1.0")

    def __init__(
        self,
        take: Callable[[Iterable[object]], None],
        connect: Callable[[Ask], None],
    ) -> None:
        self._take = take
        #: Takes the way back to agents: `PushSource.connect`.
        self.connect = connect

    def host_reports(
        self,
        context: object,  # noqa: ARG002 - oslo.messaging passes it
        reports: object,
    ) -> None:
        """Take reports and deltas of some hosts, in their order.

        Parameters
        ----------
        reports : list
            HostReport and HostDelta objects in their wire form.
        """
        if not isinstance(reports, list):
            LOG.warning(
                "host_reports: reports is %s, not a list; the cast is left out",
                type(reports).__name__,
            )
            return
        self._take(reports)
