# SPDX-License-Identifier: Apache-2.0
"""A client of Placement for conductors: every allocation has a consumer type."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Collection
from functools import partial

from ..scheduler.candidates import MICROVERSION
from ..scheduler.placement.adapter import PlacementAdapter, Verb
from ..scheduler.placement.allocations.engine import Plan, Rewrite
from ..scheduler.placement.answers import WriteAnswer
from ..scheduler.placement.client import PlacementClient
from ..scheduler.waiting import Rng, SystemWaiter, Waiter

#: The first microversion in which an allocation names its consumer's type.
TYPED_MICROVERSION = "1.38"

_NOT_ACCEPTABLE = 406


class ConsumerType(enum.StrEnum):
    """The type of a consumer, with the values that Placement documents for nova."""

    INSTANCE = "INSTANCE"
    MIGRATION = "MIGRATION"


class ConductorClient(PlacementClient):
    """A PlacementClient that sends the consumer type of each allocation.

    A body without a type is an instance's. A Placement older than 1.38 (Xena) gets no
    types; that is detected once and remembered for the lifetime of the client. A
    consumer that the scheduler claimed for with nova's 1.36 gets its type with the
    first write of this client.
    """

    def __init__(
        self,
        adapter: PlacementAdapter,
        *,
        rng: Rng | None = None,
        waiter: Waiter | None = None,
    ) -> None:
        """Wrap keystoneauth1's Adapter, or anything with the same methods.

        Parameters
        ----------
        rng : Rng, optional
            The source of jitter for the waits between attempts; None: a new generator.
        waiter : Waiter, optional
            The waiter that waits between attempts.
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
        """Write the allocations that `plan` returns for some consumers, all or none.

        Raises
        ------
        AllocationsInDoubt
            A write was sent and its outcome is unknown; repeating the call determines
            it once Placement answers again.
        PlacementError
            Placement failed, or `plan` raised it; nothing was changed.
        """
        return Rewrite(
            self,
            consumer_uuids,
            plan,
            waiter=self.waiter,
            rng=self.rng,
            global_request_id=global_request_id,
        ).run()

    def write(
        self,
        verb: Verb,
        url: str,
        body: object = None,
        *,
        microversion: str = MICROVERSION,
        global_request_id: str | None = None,
    ) -> WriteAnswer:
        """Send one write, with the types of consumers where Placement knows them."""
        send = partial(super().write, verb, url, global_request_id=global_request_id)
        if verb not in (Verb.PUT, Verb.POST) or not url.startswith("/allocations"):
            return send(body, microversion=microversion)
        if self._knows_types:
            answer = send(_each(body, _typed), microversion=TYPED_MICROVERSION)
            if answer.status != _NOT_ACCEPTABLE:
                return answer
            # Nothing was written: the request can be repeated without types.
            self._knows_types = False
        return send(_each(body, _untyped), microversion=microversion)


def _each(json: object, change: Callable[[object], object]) -> object:
    """Apply `change` to the body of a PUT, or to each consumer's part of a POST."""
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
        return {name: value for name, value in body.items() if name != "consumer_type"}
    return body
