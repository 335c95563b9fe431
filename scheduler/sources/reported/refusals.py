# SPDX-License-Identifier: Apache-2.0
"""The hosts whose newest reports were refused, each logged once."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ...clock import utc_text
from ..report_columns import RefusedReport

LOG = logging.getLogger(__name__)

#: Hosts whose refusal is remembered, to log it once; further ones are neither logged
#: nor noted.
_MAX_REFUSED: Final = 10_000
#: Seconds for which the refusal of a message of no known host is reported.
_UNKNOWN_S: Final = 60.0


@dataclass(slots=True)
class _Refusal:
    """When a host's reports were first and last refused, and the last error."""

    since: float
    newest: float
    error: str


class Refusals:
    """Log the first refused report of each host, and when its reports are valid again.

    Parameters
    ----------
    forget_after_s : float
        Seconds after which a refusal of a known host is forgotten; 0: never. Refusals
        of unknown hosts are forgotten sooner, as no later valid report can clear them.
    """

    def __init__(self, forget_after_s: float) -> None:
        self._forget_after_s = forget_after_s or math.inf
        self._by_name: dict[str, _Refusal] = {}

    def add(self, error: Exception, now: float, origin: str) -> None:
        """Record that a report received at `now` was refused; log the first of a host.

        Parameters
        ----------
        origin : str
            Topic, partition and offset of the report; "": the report came by a message
            bus.
        """
        host = error.host if isinstance(error, RefusedReport) else "?"
        if host in self._by_name:
            refusal = self._by_name[host]
            refusal.newest, refusal.error = now, str(error)
            return
        if len(self._by_name) >= _MAX_REFUSED:
            return
        self._by_name[host] = _Refusal(now, now, str(error))
        LOG.warning(
            "A report is refused, and the host stays as it was: %s",
            f"{error} ({origin})" if origin else error,
        )

    def clear(self, host: str, node_uuid: str) -> None:
        """Record that a report of a host was accepted."""
        if self._by_name:
            # A report without a readable name was refused under its node's UUID.
            refused = [self._by_name.pop(name, None) for name in (host, node_uuid)]
            if any(refused):
                LOG.info("Reports of host '%s' are accepted again", host)

    def expire(self, now: float, is_known: Callable[[str], bool]) -> None:
        """Forget the refusals that are too old.

        Parameters
        ----------
        is_known : callable
            Returns whether a host name, or the UUID of a node, is known.
        """
        for name, refusal in list(self._by_name.items()):
            age_s = abs(now - refusal.newest)
            if age_s > (self._forget_after_s if is_known(name) else _UNKNOWN_S):
                del self._by_name[name]

    def newest(self, host: str) -> tuple[float, str] | None:
        """Return when and why a host's newest report was refused; None: it was not."""
        refusal = self._by_name.get(host)
        return None if refusal is None else (refusal.newest, refusal.error)

    def notes(self) -> list[str]:
        """Return a line on the hosts whose newest reports were refused, if any are."""
        refused = list(self._by_name.values())
        if not refused:
            return []
        since = utc_text(min(refusal.since for refusal in refused))
        n_hosts = len(refused)
        hosts = "1 host" if n_hosts == 1 else f"{n_hosts} hosts"
        return [f"reports of {hosts} cannot be used, the first since {since}"]
