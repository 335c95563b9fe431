# SPDX-License-Identifier: Apache-2.0
"""A scheduler whose Placement is away fails fast, leaks nothing and recovers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from keystoneauth1.adapter import Adapter

from moorage.objects import ImageMeta, ImageMetaProps, Selection
from moorage.scheduler import service
from moorage.scheduler.conf import load
from moorage.scheduler.drivers.claims import checks
from moorage.scheduler.errors import (
    InvalidRequest,
    NoValidHost,
    PlacementError,
    PlacementIncompatible,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from moorage.scheduler.placement.allocations.limits import (
    CIRCUIT_MAX_FAILURES,
)
from moorage.scheduler.placement.seed import seed
from moorage.scheduler.seeding import providers
from moorage.scheduler.service import Scheduler
from moorage.scheduler.sources.file import FileSource

from ..fixtures.clouds import CONTEXT, host, new_uuids, request, write_inventory
from ..fixtures.faulty_cloud import InformedSource
from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ..fixtures.waiting import wait_until

N_HOSTS = 12
ALWAYS = 1000


@pytest.fixture
def adapter(server: MisbehavingServer) -> Adapter:
    """It waits for long, so that a slow answer is none that is missing."""
    return adapter_to(server.url)


def misbehave(
    server: MisbehavingServer, adapter: Adapter, wrong: Misbehaviour, times: int
) -> None:
    """Have the server misbehave, and do not wait for long for an answer.

    What does not hang, besides, is answered within 2 s on a slow machine, too.
    """
    hanging_s = 0.5 if times == ALWAYS else 2.0
    adapter.session.timeout = hanging_s if wrong is Misbehaviour.HANG else 60.0
    server.misbehave(wrong, times=times)


def behave(server: MisbehavingServer, adapter: Adapter) -> None:
    """Answer as Placement does again."""
    server.behave()
    adapter.session.timeout = 60.0


@pytest.fixture
def scheduler(
    adapter: Adapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scheduler]:
    """Not started; its Placement is empty, and no instance is on a host.

    Candidates are cached without being read again, however slow the machine is.
    """
    monkeypatch.setattr(checks, "FRESH_S", 3600.0)
    hosts = [host(f"h{i}") for i in range(N_HOSTS)]
    conf = load([], config_files=[])
    path = write_inventory(tmp_path, *hosts)
    conf.set_override("inventory_file", str(path), "moorage")
    conf.set_override("candidates_max_age", 3600.0, "moorage")
    scheduler = service.build(conf, placement=adapter, source=InformedSource())
    yield scheduler
    scheduler.stop()


@pytest.fixture
def started(scheduler: Scheduler, embedded: EmbeddedPlacementFixture) -> Scheduler:
    """Started, with hosts that have registered."""
    source = FileSource(scheduler.conf)
    source.start(scheduler.table)
    seed(embedded.client, providers(source.inventory))
    # The first query of a process is Placement's slowest.
    embedded.client.read("/allocation_candidates?resources=VCPU:1")
    scheduler.start()
    return scheduler


def _select(scheduler: Scheduler, uuids: list[str]) -> list[str]:
    selections = scheduler.select_destinations(
        CONTEXT, request(num_instances=len(uuids)), uuids, return_objects=True
    )
    return [mine[0].service_host for mine in cast(list[list[Selection]], selections)]


#: The consumer that a probe reads.
_PROBED = "00000000-0000-0000-0000-000000000000"


def _n_sent(server: MisbehavingServer) -> int:
    """Return the number of calls but probes of the health."""
    return sum(_PROBED not in path for _, path, _ in server.seen)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (Misbehaviour.HANG, PlacementUnavailable),
        (Misbehaviour.ERROR, PlacementUnavailable),
        (Misbehaviour.UNAUTHORIZED, PlacementUnauthorized),
        (Misbehaviour.NOT_ACCEPTABLE, PlacementIncompatible),
        (Misbehaviour.BAD_GATEWAY, PlacementUnavailable),
        (Misbehaviour.HTML, PlacementUnavailable),
        (Misbehaviour.TRUNCATED, PlacementUnavailable),
        (Misbehaviour.WRONG_SHAPE, PlacementUnavailable),
    ],
)
def test_request_ends_with_the_first_query_that_fails(
    started: Scheduler,
    server: MisbehavingServer,
    adapter: Adapter,
    wrong: Misbehaviour,
    error: type[PlacementError],
) -> None:
    n_before = _n_sent(server)
    misbehave(server, adapter, wrong, times=1)
    with pytest.raises(error):
        _select(started, new_uuids())
    assert _n_sent(server) == n_before + 1
    behave(server, adapter)
    [record] = started.decisions.newest(1)
    assert "; Placement gave no answer, 0 host(s)" in record.summary()
    assert len(_select(started, new_uuids())) == 1


@pytest.mark.parametrize("n_instances", [1, 3])
@pytest.mark.parametrize(
    "wrong", [Misbehaviour.HANG, Misbehaviour.BAD_GATEWAY, Misbehaviour.UNAUTHORIZED]
)
def test_no_other_host_is_claimed_once_placement_goes_away(
    started: Scheduler,
    server: MisbehavingServer,
    adapter: Adapter,
    wrong: Misbehaviour,
    n_instances: int,
) -> None:
    _select(started, new_uuids())  # candidates are cached: the next call claims at once
    n_before, n_seen = _n_sent(server), len(server.seen)
    misbehave(server, adapter, wrong, times=ALWAYS)
    with pytest.raises(PlacementError):
        _select(started, new_uuids(n_instances))
    claims = [verb for verb, _, _ in server.seen[n_seen:] if verb in ("PUT", "POST")]
    assert len(claims) == 1
    assert _n_sent(server) - n_before <= CIRCUIT_MAX_FAILURES + 1


def test_claim_that_arrived_while_placement_went_away_is_released_later(
    started: Scheduler, server: MisbehavingServer, embedded: EmbeddedPlacementFixture
) -> None:
    _select(started, new_uuids())  # candidates are cached
    [uuid] = new_uuids()
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    server.misbehave(Misbehaviour.BAD_GATEWAY, verb="GET", times=ALWAYS)
    with pytest.raises(PlacementUnavailable):
        _select(started, [uuid])
    assert embedded.client.allocations(uuid).resources
    server.behave()
    wait_until(lambda: not embedded.client.allocations(uuid).resources)


def test_scheduler_refuses_at_once_and_becomes_ready_again_by_itself(
    started: Scheduler, server: MisbehavingServer
) -> None:
    assert started.status.is_ready
    server.misbehave(Misbehaviour.BAD_GATEWAY, times=ALWAYS)
    with pytest.raises(PlacementUnavailable):
        _select(started, new_uuids())
    assert not started.status.is_ready
    assert "answered 502" in started.status.readiness_note

    def n_queries() -> int:
        return sum("/allocation_candidates" in path for _, path, _ in server.seen)

    def is_refused_at_once() -> bool:
        n_before = n_queries()
        with pytest.raises(PlacementUnavailable) as raised:
            _select(started, new_uuids())
        is_suspended = "Placement are suspended: since" in str(raised.value)
        return is_suspended and n_queries() == n_before

    wait_until(is_refused_at_once)  # one that comes after a pause is sent
    server.behave()
    wait_until(lambda: started.status.is_ready)
    assert started.status.readiness_note == ""
    assert len(_select(started, new_uuids())) == 1


def test_query_too_long_for_the_web_server_affects_no_other_request(
    started: Scheduler, server: MisbehavingServer
) -> None:
    for i in range(CIRCUIT_MAX_FAILURES):
        server.misbehave(Misbehaviour.TOO_LONG, verb="GET")
        traits = [f"CUSTOM_{i}_{j}_".ljust(250, "X") for j in range(40)]
        image = ImageMeta(properties=ImageMetaProps(traits_required=traits))
        with pytest.raises(NoValidHost):
            started.select_destinations(CONTEXT, request(image=image), new_uuids())
    assert len(_select(started, new_uuids())) == 1
    assert started.status.is_ready


@pytest.mark.parametrize("name", ["request_id", "global_request_id"])
@pytest.mark.parametrize(
    "request_id",
    ["req-\r\nX-Evil: 1", "req-\x00", "req-\N{SNOWMAN}", "r" * 100_000, "r" * 256],
    ids=["header", "control", "not ASCII", "huge", "long"],
)
def test_request_id_that_cannot_be_sent_is_refused_and_affects_no_other_request(
    started: Scheduler,
    caplog: pytest.LogCaptureFixture,
    name: str,
    request_id: str,
) -> None:
    context = {**CONTEXT, name: request_id}
    for _ in range(CIRCUIT_MAX_FAILURES):
        with pytest.raises(InvalidRequest, match=f"^{name} is ") as raised:
            started.select_destinations(context, request(), new_uuids())
    assert len(str(raised.value)) < 1000
    assert len(caplog.text) < 20_000
    assert len(_select(started, new_uuids())) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        Misbehaviour.HANG,
        Misbehaviour.ERROR,
        Misbehaviour.UNAUTHORIZED,
        Misbehaviour.NOT_ACCEPTABLE,
        Misbehaviour.HTML,
    ],
)
def test_start_without_placement_warns_and_is_ready_later(
    scheduler: Scheduler,
    server: MisbehavingServer,
    adapter: Adapter,
    wrong: Misbehaviour,
    caplog: pytest.LogCaptureFixture,
) -> None:
    misbehave(server, adapter, wrong, times=ALWAYS)
    scheduler.start()
    assert not scheduler.status.is_ready
    assert scheduler.status.readiness_note
    assert "Placement does not answer yet; requests will fail" in caplog.text
    behave(server, adapter)
    wait_until(lambda: scheduler.status.is_ready)
