# SPDX-License-Identifier: Apache-2.0
"""An audit: the source and Placement, compared twice, and what both times differs."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

from oslo_config import cfg

from ..clock import now_s
from ..errors import ConfigurationError
from ..placement.adapter import make_adapter
from ..placement.allocations.journal import suspected_in
from ..placement.client import PlacementClient
from ..placement.database import placement_engine
from ..placement.embedded import MEMORY, EmbeddedPlacement
from ..placement.from_conf import needs_embedded
from ..waiting import SystemWaiter, Waiter
from .cloud import Cloud, CloudReader, Fate, TableReader
from .findings import (
    Finding,
    Kind,
    compare,
    differing_instances,
    unplaced_consumers,
)
from .nova_cloud import NovaReader
from .placement_state import (
    ApiReader,
    DatabaseReader,
    PlacementReader,
    PlacementState,
)

_NO_FATES: Final[Mapping[str, Fate]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit has found.

    Attributes
    ----------
    findings : sequence of Finding
        By kind, the oldest first; those of unknown age last.
    notes : sequence of str
        What could not be known, or was not compared.
    n_hosts, n_providers, n_consumers : int
        How many were compared.
    began_at, ended_at : float
        Seconds since the epoch.
    """

    findings: Sequence[Finding]
    notes: Sequence[str]
    n_hosts: int
    n_providers: int
    n_consumers: int
    began_at: float
    ended_at: float

    @property
    def counts(self) -> Mapping[Kind, int]:
        """The number of findings of each kind, 0 included."""
        counted = Counter(finding.kind for finding in self.findings)
        return {kind: counted[kind] for kind in Kind}


def audit(
    conf: cfg.ConfigOpts,
    *,
    pause_s: float,
    min_age_s: float,
    rate: float,
    note: Callable[[str], object],
    waiter: Waiter | None = None,
) -> AuditReport:
    """Compare the source's hosts and instances with Placement; write nothing.

    Parameters
    ----------
    pause_s : float
        Seconds between the two comparisons. One without a difference is the only one.
    min_age_s : float
        What is known to have begun later than so many seconds ago is not reported. 0
        reports all: the database's clock may be ahead of this one.
    rate : float
        GETs a second, where Placement's database is not read.
    note : callable
        Gets texts for people about the progress.

    Raises
    ------
    SchedulerError
        The source or Placement cannot be read; OSError: the folder of claims.
    """
    waiter, began_at = waiter or SystemWaiter(), now_s()
    with contextlib.ExitStack() as stack:
        cloud_reader: CloudReader = (
            NovaReader(conf) if conf.moorage.source == "nova_db" else TableReader(conf)
        )
        stack.callback(cloud_reader.close)
        reader = _placement_reader(conf, stack, waiter, rate, note)
        suspected, notes = _suspected(conf)
        cloud, state, findings, is_fate_known = _compare_once(
            cloud_reader, reader.read, suspected
        )
        if findings:
            note(
                f"{len(findings):,} differences in the first comparison; the second "
                f"one, in {pause_s:g} s, shows which of them stay"
            )
            waiter.sleep(pause_s)
            before, uuids = state, {finding.subject for finding in findings}
            _, _, again, _ = _compare_once(
                cloud_reader,
                lambda aggregates: reader.reread(before, uuids, aggregates),
                suspected,
                uuids,
            )
            held = {finding.identity for finding in again}
            newest = began_at - min_age_s if min_age_s else math.inf
            findings = [
                finding
                for finding in findings
                if finding.identity in held
                and (finding.since is None or finding.since <= newest)
            ]
    if not is_fate_known:
        n_unplaced = len(unplaced_consumers(cloud, state))
        if n_unplaced:
            notes.append(
                f"{n_unplaced:,} consumers hold allocations and are on no host that is "
                "known: builds, moves, or leftovers"
            )
    order = list(Kind)
    findings.sort(
        key=lambda finding: (
            order.index(finding.kind),
            finding.since is None,
            finding.since or 0.0,
            finding.subject,
        )
    )
    return AuditReport(
        findings,
        (*cloud.notes, *notes),
        len(cloud.hosts),
        len(state.providers),
        len(state.consumers),
        began_at,
        now_s(),
    )


def _compare_once(
    cloud_reader: CloudReader,
    read_placement: Callable[[Collection[str]], PlacementState],
    suspected: Mapping[str, Collection[str]],
    subjects: Collection[str] | None = None,
) -> tuple[Cloud, PlacementState, list[Finding], bool]:
    """Read both sides once; return them, what differs, and whether fates are known.

    Fates are looked up after Placement was read: nova stores an instance before it
    requests a host, so that the consumer of a new request is found then.

    Parameters
    ----------
    subjects : collection of str, optional
        The only subjects that the second comparison has to judge.
    """
    cloud = cloud_reader.read()
    if not cloud.hosts:
        raise ConfigurationError(
            "The source has no hosts, so that there is nothing to compare. Check "
            "[moorage] source, and that hosts have reported"
        )
    aggregates = cloud.aggregates or ()
    state = read_placement(
        [aggregate.uuid for aggregate in aggregates if aggregate.uuid]
    )
    unplaced = unplaced_consumers(cloud, state)
    differing = differing_instances(cloud, state)
    if subjects is not None:
        unplaced = [uuid for uuid in unplaced if uuid in subjects]
        differing = [uuid for uuid in differing if uuid in subjects]
    fates, flavors = cloud_reader.fates(unplaced), cloud_reader.flavors(differing)
    findings = compare(cloud, state, fates or _NO_FATES, flavors, suspected)
    return cloud, state, findings, fates is not None


def _placement_reader(
    conf: cfg.ConfigOpts,
    stack: contextlib.ExitStack,
    waiter: Waiter,
    rate: float,
    note: Callable[[str], object],
) -> PlacementReader:
    """Return the reader of the Placement that the options name."""
    if needs_embedded(conf):
        path = conf.moorage.embedded_placement_database
        if path == MEMORY:
            raise ConfigurationError(
                "[placement] is not set, and the embedded Placement is in the memory "
                "of moorage-scheduler: set [moorage] embedded_placement_database to a "
                "file, or set [placement]"
            )
        embedded = stack.enter_context(EmbeddedPlacement(path, is_reader=True))
        return DatabaseReader(embedded.engine, embedded.run)
    if conf.placement_database.connection:
        engine = placement_engine(conf)
        stack.callback(engine.dispose)
        return DatabaseReader(engine)
    client = PlacementClient(make_adapter(conf))
    return ApiReader(client, waiter, rate=rate, note=note)


def _suspected(
    conf: cfg.ConfigOpts,
) -> tuple[Mapping[str, Collection[str]], list[str]]:
    """Return the providers of suspected orphans by consumer, and what is unknown."""
    folder = conf.moorage.claims_directory
    if not folder:
        return {}, ["[moorage] claims_directory is not set: no suspected orphans"]
    try:
        entries = suspected_in(Path(folder))
    except FileNotFoundError:
        return {}, [
            f"[moorage] claims_directory = {folder} does not exist on this machine: "
            "suspected orphans are known where schedulers run"
        ]
    return {
        entry.consumer_uuid: set(entry.request["allocations"]) for entry in entries
    }, []
