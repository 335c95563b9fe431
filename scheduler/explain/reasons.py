# SPDX-License-Identifier: Apache-2.0
"""The reasons why a host cannot serve a request, one for each check that it fails."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Sequence
from typing import Any

from ...filters import BaseHostFilter
from ..drivers.filtering import explain_rejections
from ..drivers.restrictions import REQUIRED, Restriction, restrictions
from ..hosts import HostBatch
from ..request import Request


class CheckStage(enum.StrEnum):
    """The step of a decision that a check belongs to."""

    PREFILTER = "prefilter"
    PLACEMENT = "placement"
    RESTRICTION = "restriction"
    FILTER = "filter"


class ProvidersFrom(enum.StrEnum):
    """Where Placement's part of an explanation was read."""

    #: The copy of Placement's providers in this process.
    MEMORY = "memory"
    #: Placement's HTTP API, which is slower and has the current state.
    PLACEMENT = "placement"
    #: Placement is not asked: it is a rebuild, or a prefilter rejects the request.
    NOT_ASKED = "not asked"


@dataclasses.dataclass(frozen=True, slots=True)
class HostReason:
    """One check that rejects a host when it is run alone.

    It may contain names of hosts and instances: it is for operators, not end users.

    Attributes
    ----------
    check : str
        A resource class, trait, filter, restriction or prefilter.
    required, available : str or None
        What the check requires, and what the host has; None: the check does not say.
    """

    stage: CheckStage
    check: str
    reason: str
    required: str | None = None
    available: str | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class HostVerdict:
    """Whether a compute node can serve a request, and every reason if it cannot.

    Attributes
    ----------
    reasons : tuple of HostReason
        Empty: every check passes.
    """

    host: str
    node: str
    node_uuid: str
    reasons: tuple[HostReason, ...]
    providers_from: ProvidersFrom

    @property
    def passes(self) -> bool:
        """Whether the host passes every check."""
        return not self.reasons

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as plain data that JSON can hold."""
        return {**dataclasses.asdict(self), "passes": self.passes}


def host_reasons(
    host: HostBatch, request: Request, filters: Sequence[BaseHostFilter]
) -> Iterator[HostReason]:
    """Yield why the request's restrictions and all filters reject a host.

    Parameters
    ----------
    host : HostBatch
        One host, with its allocation candidates where there are any.
    filters : sequence of BaseHostFilter
        The enabled filters, prepared or not.

    Raises
    ------
    PluginError
        A filter failed.
    """
    for restriction in restrictions(request):
        if not restriction.allows(host)[0]:
            yield _restricted(host, restriction)
    for rejection in explain_rejections(filters, host[0], request.spec_obj):
        # Some reasons already name the attribute of the request.
        is_named = rejection.attribute in rejection.reason.split()
        is_added = rejection.attribute and not is_named
        attribute = f" ({rejection.attribute})" if is_added else ""
        yield HostReason(
            CheckStage.FILTER,
            rejection.filter,
            f"{rejection.reason}{attribute}",
            rejection.required,
            rejection.available,
        )


def _restricted(host: HostBatch, restriction: Restriction) -> HostReason:
    values = ", ".join(restriction.values)
    return HostReason(
        CheckStage.RESTRICTION,
        restriction.name,
        REQUIRED,
        f"not {values}" if restriction.is_forbidding else values,
        str(host.value(restriction.column, 0)),
    )
