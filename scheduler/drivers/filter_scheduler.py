# SPDX-License-Identifier: Apache-2.0
"""The driver "filter_scheduler": filter hosts, weigh them, claim the best one."""

from __future__ import annotations

from collections.abc import Sequence

from ...objects import RequestSpec, Selection
from ..errors import MAX_MESSAGE, NoValidHost, SchedulerError, shortened
from .base import BaseSchedulerDriver
from .caller import Caller
from .decision import Decision
from .record import DecisionRecord, Outcome


class FilterScheduler(BaseSchedulerDriver):
    """Do what nova's scheduler does, in the same order, and record it."""

    def select_destinations(
        self,
        caller: Caller,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None,
        *,
        return_alternates: bool,
    ) -> list[list[Selection]]:
        """Select hosts; see `BaseSchedulerDriver`."""
        parts = self.parts
        record = DecisionRecord(
            request_id=caller.request_id,
            instance_uuids=tuple(instance_uuids or ()),
            # A request that cannot be read may not say how many it asks for.
            n_instances=len(instance_uuids or (None,)),
            started_at=parts.clock(),
        )
        try:
            with record.timed("total"):
                selections = Decision(
                    parts,
                    caller,
                    spec_obj,
                    instance_uuids,
                    record,
                    return_alternates=return_alternates,
                ).run()
            record.outcome = Outcome.SELECTED
            return selections
        except NoValidHost as e:
            record.outcome, record.reason = Outcome.NO_VALID_HOST, e.reason
            e.is_logged = True
            raise
        except BaseException as e:
            if isinstance(e, SchedulerError):
                e.is_logged = True
            record.outcome = Outcome.FAILED
            record.reason = shortened(f"{type(e).__name__}: {e}", MAX_MESSAGE)
            raise
        finally:
            parts.decisions.add(record)
