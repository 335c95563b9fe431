# SPDX-License-Identifier: Apache-2.0
"""Placement as a conductor uses it: every allocation says what kind its consumer is."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Collection

from ..scheduler.placement.allocations.engine import Plan, Rewrite
from ..scheduler.placement.client import (
    PlacementAdapter,
    PlacementClient,
    Response,
    Verb,
)
from ..scheduler.waiting import Rng, SystemWaiter, Waiter

#: The first microversion in which an allocation names its consumer's type.
TYPED_MICROVERSION = "1.38"

_NOT_ACCEPTABLE = 406


class ConsumerType(enum.StrEnum):
    """What holds an allocation, in the words that Placement documents for nova."""

    INSTANCE = "INSTANCE"
    MIGRATION = "MIGRATION"


class ConductorClient(PlacementClient):
    """A PlacementClient whose allocations name their consumer's type.

    A consumer whose body names none is an instance. A Placement before 1.38 (Xena)
    is told none, and that is remembered as long as this object lives; one that the
    scheduler claimed for, in nova's 1.36, has its type from our first write on.
    """

    def __init__(
        self,
        adapter: PlacementAdapter,
        *,
        rng: Rng | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """Take keystoneauth1's Adapter, or anything with its call shape.

        Parameters
        ----------
        rng : Rng, optional
            Spreads the waits between tries; None: one of its own.
        waiter : Waiter, optional
            Waits between tries.
        """
        super().__init__(adapter)
        self.rng: Rng = random.Random() if rng is None else rng
        self.waiter: Waiter = waiter or SystemWaiter()
        self._knows_types = True

    def rewrite(
        self,
        consumer_uuids: Collection[str],
        plan: Plan,
        *,
        global_request_id: str | None = None,
    ) -> Rewrite:
        """Do what `plan` says of some consumers, all of them or none.

        Raises
        ------
        AllocationsInDoubt
            A write was sent and Placement did not say what became of it; the same call
            finds out, once it answers again.
        PlacementError
            Placement could not do its part, or `plan` raised it; nothing was changed.
        """
        return Rewrite(
            self,
            consumer_uuids,
            plan,
            waiter=self.waiter,
            rng=self.rng,
            global_request_id=global_request_id,
        ).run()

    def _call(
        self,
        verb: Verb,
        url: str,
        microversion: str,
        body: object,
        global_request_id: str | None,
    ) -> Response:
        if verb not in (Verb.PUT, Verb.POST) or not url.startswith("/allocations"):
            return super()._call(verb, url, microversion, body, global_request_id)
        if self._knows_types:
            typed = _each(body, _typed)
            response = super()._call(
                verb, url, TYPED_MICROVERSION, typed, global_request_id
            )
            if response.status_code != _NOT_ACCEPTABLE:
                return response
            self._knows_types = False  # it was not done: it is safe to say it again
        untyped = _each(body, _untyped)
        return super()._call(verb, url, microversion, untyped, global_request_id)


def _each(json: object, change: Callable[[object], object]) -> object:
    """Change the body of a PUT, or each consumer's in that of a POST."""
    match json:
        case {"allocations": _}:
            return change(json)
        case dict():
            return {uuid: change(body) for uuid, body in json.items()}
    return json


def _typed(body: object) -> object:
    if isinstance(body, dict):
        return {"consumer_type": ConsumerType.INSTANCE, **body}
    return body


def _untyped(body: object) -> object:
    if isinstance(body, dict):
        return {name: v for name, v in body.items() if name != "consumer_type"}
    return body
