# SPDX-License-Identifier: Apache-2.0
"""The next alternate is claimed and the failed host released; never is more held."""

from __future__ import annotations

import pytest

from moorage.conductor import ConductorClient, claim_alternate
from moorage.objects import Selection
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementUnavailable,
)
from moorage.scheduler.placement.adapter import AnswerLost
from moorage.scheduler.placement.allocations.limits import MAX_WRITES
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ..fixtures.ports import refusing_url
from .clouds import (
    DEST,
    N_VCPUS,
    OWNER,
    SHARE,
    SOURCE,
    THIRD,
    InterferingAdapter,
    change,
    claimed,
    conductor,
    held,
    new_uuid,
    selection,
    vcpus,
)

FAILED, FIRST, SECOND = (selection(vcpus(host)) for host in (SOURCE, DEST, THIRD))


def test_first_alternate_is_claimed_and_the_failed_host_released(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    claim = claim_alternate(client, instance, [FIRST, SECOND], failed=FAILED, **OWNER)
    assert claim == FIRST
    assert held(other, instance) == vcpus(DEST)
    owner = other.allocations(instance)
    assert {"project_id": owner.project_id, "user_id": owner.user_id} == OWNER


def test_what_the_failed_host_shares_is_released_too(
    client: ConductorClient, other: PlacementClient
) -> None:
    disk = {SHARE: {"DISK_GB": 10}}
    instance = claimed(other, {**vcpus(SOURCE), **disk})
    failed, first = (selection({**vcpus(host), **disk}) for host in (SOURCE, DEST))
    claim_alternate(client, instance, [first], failed=failed, **OWNER)
    assert held(other, instance) == {**vcpus(DEST), **disk}


@pytest.mark.parametrize("failed", [None, FAILED], ids=["not given", "given"])
def test_failed_host_may_be_released_already(
    client: ConductorClient, other: PlacementClient, failed: Selection | None
) -> None:
    instance = new_uuid()
    assert claim_alternate(client, instance, [FIRST], failed=failed, **OWNER) == FIRST
    assert held(other, instance) == vcpus(DEST)


def test_full_alternate_is_passed_over(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    claimed(other, vcpus(DEST, N_VCPUS))
    claim = claim_alternate(client, instance, [FIRST, SECOND], failed=FAILED, **OWNER)
    assert claim == SECOND
    assert held(other, instance) == vcpus(THIRD)


@pytest.mark.parametrize("alternates", [[FIRST, SECOND], []], ids=["full", "none left"])
def test_end_of_the_list_leaves_nothing_held(
    client: ConductorClient, other: PlacementClient, alternates: list[Selection]
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    for host in (DEST, THIRD):
        claimed(other, vcpus(host, N_VCPUS))
    claim = claim_alternate(client, instance, alternates, failed=FAILED, **OWNER)
    assert claim is None
    assert held(other, instance) == {}


def test_repeated_call_finds_its_own_claim(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    claimed(other, vcpus(DEST, N_VCPUS - 1))
    for _ in range(2):  # a second claim would not fit on the first alternate
        claim = claim_alternate(
            client, instance, [FIRST, SECOND], failed=FAILED, **OWNER
        )
        assert claim == FIRST
    assert held(other, instance) == vcpus(DEST)


def test_conductors_that_reschedule_at_once_agree(
    embedded: EmbeddedPlacementFixture, client: ConductorClient
) -> None:
    instance = claimed(client, vcpus(SOURCE))
    alternates = [FIRST, SECOND]
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before(
        "put",
        lambda: claim_alternate(client, instance, alternates, failed=FAILED, **OWNER),
    )
    second = conductor(meddler)
    claim = claim_alternate(second, instance, alternates, failed=FAILED, **OWNER)
    assert claim == FIRST
    assert held(client, instance) == vcpus(DEST)


def test_alternate_that_another_conductor_brings_to_rest_is_claimed(
    embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("put", lambda: None)  # this one claims
    meddler.before("put", lambda: change(other, instance, vcpus(DEST)))
    claim = claim_alternate(
        conductor(meddler), instance, [FIRST, SECOND], failed=FAILED, **OWNER
    )
    assert claim == FIRST
    assert held(other, instance) == vcpus(DEST)
    assert other.allocations(instance).consumer_generation == 3


@pytest.mark.parametrize("failed", [None, FAILED], ids=["no failed host", "another's"])
def test_what_another_operation_holds_is_not_released(
    client: ConductorClient, other: PlacementClient, failed: Selection | None
) -> None:
    running = {**vcpus(SOURCE), **vcpus(THIRD)}
    instance = claimed(other, running)
    with pytest.raises(AllocationUpdateFailed, match=f"{instance}.*{THIRD}"):
        claim_alternate(client, instance, [FIRST], failed=failed, **OWNER)
    assert held(other, instance) == running


def test_claim_made_between_read_and_claim_stays(
    embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("put", lambda: change(other, instance, vcpus(THIRD)))
    with pytest.raises(AllocationUpdateFailed, match=f"{instance}.*{THIRD}"):
        claim_alternate(conductor(meddler), instance, [FIRST], failed=FAILED, **OWNER)
    assert held(other, instance) == vcpus(THIRD)


def test_alternate_that_claims_nothing_is_returned(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, unclaimed = claimed(other, vcpus(SOURCE)), selection(None)
    claim = claim_alternate(client, instance, [unclaimed], failed=FAILED, **OWNER)
    assert claim == unclaimed
    assert held(other, instance) == {}


def test_unreadable_alternate_is_an_error_before_anything_is_released(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, broken = claimed(other, vcpus(SOURCE)), selection(vcpus(DEST))
    broken.allocation_request = "{"
    with pytest.raises(InvalidRequest, match="host2"):
        claim_alternate(client, instance, [FIRST, broken], failed=FAILED, **OWNER)
    assert held(other, instance) == vcpus(SOURCE)


def test_busy_alternate_is_passed_over_and_tried_again(
    remote: ConductorClient, server: MisbehavingServer, other: PlacementClient
) -> None:
    claimed(other, vcpus(THIRD, N_VCPUS))
    server.misbehave(Misbehaviour.CONTENDED, verb="PUT", times=MAX_WRITES)
    instance = new_uuid()
    assert claim_alternate(remote, instance, [FIRST, SECOND], **OWNER) == FIRST
    writes = [verb for verb, _, _ in server.seen if verb != "GET"]
    assert len(writes) == MAX_WRITES + 2  # the busy one, the full one, the busy one


def test_claim_on_a_busy_host_is_left_at_an_odd_generation(
    remote: ConductorClient, server: MisbehavingServer, other: PlacementClient
) -> None:
    """A late release of an earlier claim names an even one."""
    instance = claimed(other, vcpus(SOURCE))
    server.misbehave_second(Misbehaviour.CONTENDED, verb="PUT")
    claim = claim_alternate(remote, instance, [FIRST], failed=FAILED, **OWNER)
    assert claim == FIRST
    generation = other.allocations(instance).consumer_generation
    assert (generation or 0) % 2 == 1


@pytest.mark.parametrize("failed", [None, FAILED], ids=["released", "held"])
@pytest.mark.parametrize(
    "wrong",
    [Misbehaviour.LOST, Misbehaviour.ERROR, Misbehaviour.LATE],
    ids=lambda wrong: wrong.name,
)
def test_write_that_fails_once_leaves_one_claim(
    remote: ConductorClient,
    server: MisbehavingServer,
    other: PlacementClient,
    wrong: Misbehaviour,
    failed: Selection | None,
) -> None:
    instance = claimed(other, vcpus(SOURCE)) if failed else new_uuid()
    server.misbehave(wrong, verb="PUT")
    claim_alternate(remote, instance, [FIRST, SECOND], failed=failed, **OWNER)
    server.let_late_ones_go()
    assert held(other, instance) == vcpus(DEST)


@pytest.mark.parametrize("failed", [None, FAILED], ids=["released", "held"])
def test_late_claim_is_rejected_by_generation_after_a_refused_one(
    remote: ConductorClient,
    server: MisbehavingServer,
    other: PlacementClient,
    failed: Selection | None,
) -> None:
    instance = claimed(other, vcpus(SOURCE)) if failed else new_uuid()
    rival = claimed(other, vcpus(DEST, N_VCPUS))
    server.misbehave(Misbehaviour.LATE, verb="PUT")
    claim = claim_alternate(remote, instance, [FIRST, SECOND], failed=failed, **OWNER)
    assert claim == SECOND
    change(other, rival, {})  # now the late one would fit
    server.let_late_ones_go()
    assert held(other, instance) == vcpus(THIRD)


def test_claim_in_doubt_is_settled_by_the_next_call(
    server: MisbehavingServer, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    meddler = InterferingAdapter(adapter_to(server.url))
    away = Misbehaviour.ERROR
    n_looks = MAX_WRITES
    meddler.before("put", lambda: server.misbehave(away, verb="GET", times=n_looks))
    server.misbehave(Misbehaviour.LOST, verb="PUT")
    remote, alternates = conductor(meddler), [FIRST, SECOND]
    with pytest.raises(AnswerLost, match=instance):
        claim_alternate(remote, instance, alternates, failed=FAILED, **OWNER)
    claim = claim_alternate(remote, instance, alternates, failed=FAILED, **OWNER)
    assert claim == FIRST
    assert held(other, instance) == vcpus(DEST)


def test_empty_consumer_that_placement_knows_is_claimed_for(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance = new_uuid()
    change(other, instance, {})  # a lost claim of the scheduler's can leave one
    assert claim_alternate(client, instance, [FIRST], **OWNER) == FIRST
    assert held(other, instance) == vcpus(DEST)


def test_alternate_on_a_provider_that_is_gone_is_passed_over(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, gone = claimed(other, vcpus(SOURCE)), selection(vcpus(new_uuid()))
    claim = claim_alternate(client, instance, [gone, SECOND], failed=FAILED, **OWNER)
    assert claim == SECOND


def test_unavailable_placement_raises(other: PlacementClient) -> None:
    instance = claimed(other, vcpus(SOURCE))
    away = conductor(adapter_to(refusing_url()))
    with pytest.raises(PlacementUnavailable, match="no answer"):
        claim_alternate(away, instance, [FIRST], failed=FAILED, **OWNER)
    assert held(other, instance) == vcpus(SOURCE)
