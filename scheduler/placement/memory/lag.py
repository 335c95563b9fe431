# SPDX-License-Identifier: Apache-2.0
"""Detect that the followed database lacks what Placement has already written.

The database lacks something if it is a replica that lags or has stopped, or belongs to
another Placement. Providers are compared if Placement refused a claim which their state
in memory permits, or if only Placement has a candidate. Placement is read first and the
database second: what the database lacks then was written before it was read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ...errors import PlacementError, PlacementRejected, PlacementUnavailable
from ...waiting import Spawner
from ..allocations.limits import MAX_COMPARED, MAX_COMPARISONS
from ..client import PlacementClient
from ..database import ProviderFollower
from ..providers import ProviderRecord

LOG = logging.getLogger(__name__)

#: Seconds between two comparisons of providers whose state the database lacked.
_REVIEW_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Written:
    """The state of a provider in Placement.

    Attributes
    ----------
    generation : int or None
        None: Placement has no such provider.
    """

    generation: int | None
    used: Mapping[str, int]

    def is_missing_in(self, record: ProviderRecord | None) -> bool:
        """Return whether the database's record is older; None: it has no record.

        Usages are compared, too, because deleted allocations change no generation.
        """
        if record is None or self.generation is None:
            return (record is None) != (self.generation is None)
        if record.generation != self.generation:
            return record.generation < self.generation
        return record.used != self.used


class Lag:
    """The providers whose state in Placement the database lacks; thread-safe.

    Parameters
    ----------
    clock : callable
        Returns monotonic seconds.
    """

    def __init__(
        self,
        client: PlacementClient,
        follower: ProviderFollower,
        *,
        clock: Callable[[], float],
        spawner: Spawner,
    ) -> None:
        self._client = client
        self._follower = follower
        self._clock = clock
        self._lock = spawner.lock()
        self._missing: Mapping[str, _Written] = {}
        self._since = 0.0
        self._reviewed_at = -math.inf

    @property
    def trouble(self) -> str:
        """What the database lacks and since when, or "" if it seems complete."""
        missing = self._update({}, ())
        if not missing:
            return ""
        uuid, written = next(iter(missing.items()))
        record = self._record(uuid)
        return (
            "The database in [placement_database] connection has been behind Placement "
            f"for {self._clock() - self._since:.0f} s: resource provider {uuid} has "
            f"{_described(written.generation, written.used)} in Placement, and "
            + (_described(record.generation, record.used) if record else "no record")
            + " in the database. Candidates are queried from Placement meanwhile."
        )

    def review(self) -> bool:
        """Return whether the database is behind Placement.

        The providers that it lacked are compared again, at most once a second. This
        raises nothing.
        """
        missing = self._update({}, ())
        if not missing:
            return False
        with self._lock:
            is_due = self._clock() - self._reviewed_at >= _REVIEW_S
            if is_due:
                self._reviewed_at = self._clock()
        if is_due:
            self.compare(missing)
        return bool(self._missing)

    def compare(
        self, provider_uuids: Iterable[str], global_request_id: str | None = None
    ) -> None:
        """Compare providers, `MAX_COMPARED` at most; note what the database lacks.

        This raises nothing: if Placement or the database cannot be read, nothing is
        noted.
        """
        compared = list(provider_uuids)[:MAX_COMPARED]
        missing: Mapping[str, _Written] = {}
        uncertain: Collection[str] = compared
        for _ in range(MAX_COMPARISONS):  # a provider may change between both readings
            try:
                written = {
                    uuid: self._read(uuid, global_request_id) for uuid in uncertain
                }
            except PlacementError as e:
                LOG.debug("Comparing resource providers failed: %s", e)
                return
            if not self._follower.refresh(uncertain):
                return
            missing = {
                uuid: usage
                for uuid, usage in written.items()
                if usage.is_missing_in(self._record(uuid))
            }
            uncertain = missing
            if not uncertain:
                break
        self._update(missing, compared)

    def _read(self, uuid: str, global_request_id: str | None) -> _Written:
        url = f"/resource_providers/{uuid}/usages"
        try:
            body: Any = self._client.read(url, global_request_id=global_request_id)
        except PlacementRejected:
            return _Written(None, {})  # the provider was deleted
        try:
            used = {name: amount for name, amount in body["usages"].items() if amount}
            return _Written(int(body["resource_provider_generation"]), used)
        except (KeyError, TypeError, AttributeError) as e:
            raise PlacementUnavailable(f"GET {url} answered no usages: {body}") from e

    def _record(self, uuid: str) -> ProviderRecord | None:
        return self._follower.table.view().state.record(uuid)

    def _update(
        self, missing: Mapping[str, _Written], compared: Collection[str]
    ) -> Mapping[str, _Written]:
        """Return what the database lacks; log when it falls behind or catches up."""
        if not missing and not self._missing:
            return {}
        with self._lock:
            missing_before = self._missing
            self._missing = {
                uuid: written
                for uuid, written in missing_before.items()
                if uuid not in compared and written.is_missing_in(self._record(uuid))
            } | dict(missing)
            missing_now = self._missing
            is_first, is_last = (
                bool(missing_now and not missing_before),
                bool(missing_before and not missing_now),
            )
            since = self._since
            if is_first:
                self._since = self._reviewed_at = self._clock()
        if is_first:
            LOG.warning("%s Is it a replica that lags or has stopped?", self.trouble)
        if is_last:
            LOG.warning(
                "The database in [placement_database] connection has caught up with "
                "Placement, after %.1f s",
                self._clock() - since,
            )
        return missing_now


def _described(generation: int | None, used: Mapping[str, int]) -> str:
    if generation is None:
        return "no record"
    in_use = (
        ", ".join(f"{amount} {name}" for name, amount in sorted(used.items()))
        or "nothing"
    )
    return f"generation {generation} with {in_use} in use"
