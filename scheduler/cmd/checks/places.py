# SPDX-License-Identifier: Apache-2.0
"""Check that hosts have one place at each level, and that levels nest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from oslo_config import cfg

from ...hosts import HostAggregate
from ...locality import find_conflicts, find_unknown_levels, places_of_host
from .result import CheckResult

_PLACES: Final = "Places of hosts"
_FILTER: Final = "LocalityFilter"
_SHOWN: Final = 20


def place_findings(
    conf: cfg.ConfigOpts,
    aggregates: Iterable[HostAggregate],
    reported: Mapping[str, Iterable[tuple[str, str]]],
) -> Iterator[CheckResult]:
    """Check the places of hosts, if levels are configured.

    Parameters
    ----------
    reported : mapping
        By host: the places that it reports; hosts of aggregates may be missing.
    """
    levels, some = conf.locality.levels, tuple(aggregates)
    if not levels:
        return
    if _FILTER not in conf.filter_scheduler.enabled_filters:
        yield CheckResult.warning(
            _PLACES,
            f"[filter_scheduler] enabled_filters lacks {_FILTER}: hints such as "
            f"in_{levels[0]} are ignored.",
        )
    names = {*reported, *itertools.chain.from_iterable(a.hosts for a in some)}
    places = {
        name: places_of_host(
            (a for a in some if name in a.hosts), reported.get(name, ()), levels
        )
        for name in names
    }
    found = [*find_unknown_levels(some, levels), *find_conflicts(places)]
    if found:
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        yield CheckResult.warning(_PLACES, f"{'; '.join(found[:_SHOWN])}{more}.")
        return
    n_placed = sum(any(by_level.values()) for by_level in places.values())
    yield CheckResult.success(
        _PLACES, f"{n_placed} hosts have places at {', '.join(levels)}."
    )
