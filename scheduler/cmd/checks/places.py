# SPDX-License-Identifier: Apache-2.0
"""Check that hosts have one place at each level, and that levels nest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from oslo_config import cfg

from ...conf.keystoneauth import has_endpoint
from ...errors import ConfigurationError, PlacementError
from ...hosts import HostAggregate, PlacementPlace
from ...locality import (
    find_conflicts,
    find_empty_places,
    find_unknown_levels,
    places_of_host,
)
from ...locality.following import (
    aggregates_of_members,
    places_by_node,
    places_of_conf,
)
from ...placement.adapter import make_adapter
from ...placement.client import PlacementClient
from ...placement.members import root_providers
from .files import FileOptions
from .result import CheckResult, TimedCall

_PLACES: Final = "Places of hosts"
_FILTER: Final = "LocalityFilter"
#: Problems that a result names.
_SHOWN: Final = 20
#: Characters of the list of empty aggregates in a result.
_EXCERPT: Final = 1000
_FILE: Final = "Places in Placement"
#: Seconds in which Placement has to answer a GET for each aggregate.
_READING_S: Final = 60.0

#: The places that aggregates of Placement give, by the name of the root provider.
OfPlacement = Mapping[str, tuple[PlacementPlace, ...]]


class PlacementMembers:
    """The places that aggregates of Placement give to hosts, read with a time limit.

    Attributes
    ----------
    findings : list of CheckResult
        The results about the file of places and its aggregates.
    places : mapping
        The places by the name of the root provider, which is mostly the host's name.
    """

    def __init__(self, conf: cfg.ConfigOpts, files: FileOptions) -> None:
        self.findings: list[CheckResult] = []
        self.places: OfPlacement = {}
        try:
            configured = places_of_conf(conf)
            if configured and has_endpoint(conf, "placement"):
                pending = TimedCall(lambda: self._read(conf, configured))
                self.findings.append(pending.result(_READING_S))
        except ConfigurationError as e:
            why = f"The scheduler would not start: {files.redacted(e)}"
            self.findings.append(CheckResult.failure(_FILE, why))
        except (PlacementError, TimeoutError) as e:
            self.findings.append(CheckResult.failure(_FILE, files.redacted(e)))

    def _read(
        self, conf: cfg.ConfigOpts, configured: Sequence[PlacementPlace]
    ) -> CheckResult:
        client = PlacementClient(make_adapter(conf))
        members = {
            place.aggregate: root_providers(client, place.aggregate).values()
            for place in configured
        }
        self.places = places_by_node(configured, aggregates_of_members(members))
        empty_places = [place for place in configured if not members[place.aggregate]]
        if empty_places:
            names = ", ".join(
                f"{' '.join(place.place)} ({place.aggregate})" for place in empty_places
            )
            text = f"Aggregates without resource providers: {names[:_EXCERPT]}."
            return CheckResult.warning(_FILE, text)
        text = f"{len(self.places)} resource providers are in {len(configured)} places."
        return CheckResult.success(_FILE, text)


def place_findings(
    conf: cfg.ConfigOpts,
    aggregates: Iterable[HostAggregate],
    reported: Mapping[str, Iterable[tuple[str, str]]],
    of_placement: OfPlacement,
) -> Iterator[CheckResult]:
    """Check the places of hosts, if levels are configured.

    Parameters
    ----------
    reported : mapping
        The places that each host reports, by its name; hosts that only aggregates name
        may be missing.
    of_placement : mapping
        The places that aggregates of Placement give to each host, by its name.
    """
    levels, aggregates = conf.locality.levels, tuple(aggregates)
    if not levels:
        return
    if _FILTER not in conf.filter_scheduler.enabled_filters:
        yield CheckResult.warning(
            _PLACES,
            f"[filter_scheduler] enabled_filters lacks {_FILTER}: hints such as "
            f"in_{levels[0]} are ignored.",
        )
    aggregate_hosts = itertools.chain.from_iterable(
        aggregate.hosts for aggregate in aggregates
    )
    names = {*reported, *aggregate_hosts, *of_placement}
    places = {
        name: places_of_host(
            (aggregate for aggregate in aggregates if name in aggregate.hosts),
            reported.get(name, ()),
            levels,
            of_placement.get(name, ()),
        )
        for name in names
    }
    problems = [
        *find_unknown_levels(aggregates, reported, levels),
        *find_empty_places(places, levels, conf.locality.distance_file),
        *find_conflicts(places),
    ]
    if problems:
        more_problems = (
            f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        )
        yield CheckResult.warning(
            _PLACES, f"{'; '.join(problems[:_SHOWN])}{more_problems}."
        )
        return
    n_placed = sum(any(by_level.values()) for by_level in places.values())
    yield CheckResult.success(
        _PLACES, f"{n_placed} hosts have places at {', '.join(levels)}."
    )
