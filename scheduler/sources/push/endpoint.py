# SPDX-License-Identifier: Apache-2.0
"""The RPC endpoint that receives reports: `host_reports` of namespace "moorage"."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

import oslo_messaging

from .report_requests import SendRequest

LOG = logging.getLogger(__name__)


class ReportEndpoint:
    """Serve `host_reports`, a fanout cast: every scheduler receives every report.

    Parameters
    ----------
    apply : callable
        Applies reports in wire format.
    connect : callable
        Takes the function that sends requests to agents: `PushSource.connect`.
    """

    target = oslo_messaging.Target(namespace="moorage", version="1.0")

    def __init__(
        self,
        apply: Callable[[Iterable[object]], None],
        connect: Callable[[SendRequest], None],
    ) -> None:
        self._apply = apply
        self.connect = connect

    def host_reports(
        self,
        context: object,  # noqa: ARG002 - oslo.messaging passes it
        reports: object,
    ) -> None:
        """Apply reports and deltas of some hosts, in order.

        Parameters
        ----------
        reports : list
            HostReport and HostDelta objects in wire format.
        """
        if not isinstance(reports, list):
            LOG.warning(
                "host_reports: reports is %s, not a list; the cast is ignored",
                type(reports).__name__,
            )
            return
        self._apply(reports)
