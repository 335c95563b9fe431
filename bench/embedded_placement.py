# SPDX-License-Identifier: Apache-2.0
"""Whole decisions with the real Placement, embedded in this process."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from moorage.scheduler.drivers.record import DecisionRecord
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.placement.embedded import EmbeddedPlacement
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler, build

from .clouds import Cloud, CloudSource, options
from .decisions import Times, decide, times
from .requests import BenchRequest, plain
from .timing import Plan, repeated


def embedded_times(
    cloud: Cloud, numbers: Sequence[int], plan: Plan
) -> Iterator[tuple[BenchRequest, Times]]:
    """Yield requests for these numbers of instances, and the times of decisions."""
    with _running(cloud) as (scheduler, client):
        for number in numbers:
            request = plain(cloud, number)
            run = functools.partial(_decide, scheduler, client, request)
            yield request, times(repeated(plan, run))


@contextmanager
def _running(cloud: Cloud) -> Iterator[tuple[Scheduler, PlacementClient]]:
    conf = options(len(cloud))
    # Without the cache, so that each decision includes a GET of candidates.
    conf.set_override("candidates_max_age", 0, group="moorage")
    with EmbeddedPlacement() as placement:
        client = PlacementClient(placement.adapter)
        seed(client, providers(cloud.as_inventory()))
        source = CloudSource(conf, cloud)
        scheduler = build(conf, placement=placement.adapter, source=source)
        scheduler.start()
        yield scheduler, client
        scheduler.stop()


def _decide(
    scheduler: Scheduler, client: PlacementClient, request: BenchRequest
) -> DecisionRecord:
    record = decide(scheduler, request)
    for uuid in request.instance_uuids:
        client.delete_allocations(uuid)
    return record
