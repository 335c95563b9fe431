# SPDX-License-Identifier: Apache-2.0
"""Placement as a conductor uses it: every allocation says what kind its consumer is."""

from __future__ import annotations

import enum
import random
import time
from collections.abc import Callable
from typing import Protocol

from ..placement.claims import Rng
from ..placement.client import PlacementAdapter, PlacementClient, Response

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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Take keystoneauth1's Adapter, or anything with its call shape.

        Parameters
        ----------
        rng : Rng, optional
            Spreads the waits between tries; None: one of its own.
        """
        super().__init__(_TypedAdapter(adapter))
        self.rng: Rng = random.Random() if rng is None else rng
        self.sleep = sleep


class _Tell(Protocol):
    """An adapter's put or post."""

    def __call__(
        self,
        url: str,
        *,
        json: object,
        microversion: str,
        headers: dict[str, str],
        raise_exc: bool,
    ) -> Response: ...


class _TypedAdapter:
    """Pass everything on; name consumer types in what is written of allocations."""

    def __init__(self, adapter: PlacementAdapter) -> None:
        self._adapter = adapter
        self._knows_types = True

    def get(
        self, url: str, *, microversion: str, headers: dict[str, str], raise_exc: bool
    ) -> Response:
        return self._adapter.get(
            url, microversion=microversion, headers=headers, raise_exc=raise_exc
        )

    def delete(
        self, url: str, *, microversion: str, headers: dict[str, str], raise_exc: bool
    ) -> Response:
        return self._adapter.delete(
            url, microversion=microversion, headers=headers, raise_exc=raise_exc
        )

    def put(
        self,
        url: str,
        *,
        json: object,
        microversion: str,
        headers: dict[str, str],
        raise_exc: bool,
    ) -> Response:
        return self._write(
            self._adapter.put, url, json, microversion, headers, raise_exc
        )

    def post(
        self,
        url: str,
        *,
        json: object,
        microversion: str,
        headers: dict[str, str],
        raise_exc: bool,
    ) -> Response:
        return self._write(
            self._adapter.post, url, json, microversion, headers, raise_exc
        )

    def _write(
        self,
        tell: _Tell,
        url: str,
        json: object,
        microversion: str,
        headers: dict[str, str],
        raise_exc: bool,
    ) -> Response:
        is_typed = url.startswith("/allocations")
        if is_typed and self._knows_types:
            response = tell(
                url,
                json=_each(json, _typed),
                microversion=TYPED_MICROVERSION,
                headers=headers,
                raise_exc=raise_exc,
            )
            if response.status_code != _NOT_ACCEPTABLE:
                return response
            self._knows_types = False  # it was not done: it is safe to say it again
        return tell(
            url,
            json=_each(json, _untyped) if is_typed else json,
            microversion=microversion,
            headers=headers,
            raise_exc=raise_exc,
        )


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
