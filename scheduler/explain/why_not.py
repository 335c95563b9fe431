# SPDX-License-Identifier: Apache-2.0
"""Why a host cannot serve a request: every check that rejects it when run alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...filters import BaseHostFilter
from ..drivers.filtering import explain_rejections
from ..drivers.restrictions import REQUIRED, Restriction, restrictions
from ..hosts import HostBatch
from ..request import Request
from .reasons import CheckStage, HostReason


def host_reasons(
    host: HostBatch, request: Request, filters: Sequence[BaseHostFilter]
) -> Iterator[HostReason]:
    """Yield the reasons of the request's restrictions and of all filters.

    Parameters
    ----------
    host : HostBatch
        One host, with its allocation candidates where there are any.
    filters : sequence of BaseHostFilter
        Those that are enabled, prepared or not.

    Raises
    ------
    PluginError
        A filter failed.
    """
    for restriction in restrictions(request):
        if not restriction.allows(host)[0]:
            yield _restricted(host, restriction)
    for rejection in explain_rejections(filters, host[0], request.spec_obj):
        # Some reasons name what their request asks for.
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
