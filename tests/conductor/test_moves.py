# SPDX-License-Identifier: Apache-2.0
"""A move's allocations change owner atomically or not at all, despite races."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from moorage.conductor import (
    ConductorClient,
    confirm,
    move,
    remove_provider_tree,
    replace_with_migration,
    revert,
)
from moorage.scheduler.errors import (
    AllocationUpdateFailed,
    InvalidRequest,
    PlacementRejected,
    PlacementUnavailable,
)
from moorage.scheduler.placement.adapter import AnswerLost, Verb
from moorage.scheduler.placement.allocations.claims import ClaimResult
from moorage.scheduler.placement.allocations.limits import MAX_WRITES
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.faulty_placement import Call, FaultKind, FaultyAdapter, writes
from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
    adapter_to,
)
from ..fixtures.ports import refusing_url
from ..fixtures.property_tests import examples
from .clouds import (
    DEST,
    N_VCPUS,
    NIC,
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


def _of(client: PlacementClient, *consumers: str) -> list[Any]:
    return [held(client, consumer) for consumer in consumers]


def _set_inventory(client: PlacementClient, provider: str, total: int) -> None:
    url = f"/resource_providers/{provider}/inventories"
    now: Any = client.read(url)
    body = {
        "resource_provider_generation": now["resource_provider_generation"],
        "inventories": {"VCPU": {"total": total, "max_unit": total}} if total else {},
    }
    assert client.write(Verb.PUT, url, body).is_done


# --- the source's to the migration


def test_source_goes_to_the_migration(
    client: ConductorClient, other: PlacementClient
) -> None:
    source = {**vcpus(SOURCE), NIC: {"SRIOV_NET_VF": 1}}
    instance, migration = claimed(other, source), new_uuid()
    assert replace_with_migration(client, instance, migration) == source
    assert _of(other, instance, migration) == [{}, source]
    owner = other.allocations(migration)
    assert {"project_id": owner.project_id, "user_id": owner.user_id} == OWNER


def test_second_replacement_finds_the_first(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    first = replace_with_migration(client, instance, migration)
    assert replace_with_migration(client, instance, migration) == first
    assert _of(other, instance, migration) == [{}, vcpus(SOURCE)]


def test_instance_without_allocations_has_nothing_to_move(
    client: ConductorClient,
) -> None:
    instance, migration = new_uuid(), new_uuid()
    with pytest.raises(AllocationUpdateFailed, match=rf"{migration} holds nothing, .*"):
        replace_with_migration(client, instance, migration)


def test_migration_that_holds_the_source_is_not_overwritten(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(DEST)), claimed(other, vcpus(SOURCE))
    with pytest.raises(AllocationUpdateFailed, match=f"{SOURCE}.*{DEST}"):
        replace_with_migration(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]


@pytest.mark.parametrize("host", [SOURCE, DEST])
def test_move_that_a_build_request_delivered_again_stops_is_reverted(
    client: ConductorClient, other: PlacementClient, host: str
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    replace_with_migration(client, instance, migration)
    change(other, instance, vcpus(host))
    with pytest.raises(AllocationUpdateFailed, match="cannot be replaced"):
        replace_with_migration(client, instance, migration)
    revert(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


def test_claim_made_between_read_and_write_is_moved_too(
    embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    grown = {**vcpus(SOURCE), NIC: {"SRIOV_NET_VF": 1}}
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("post", lambda: change(other, instance, grown))
    assert replace_with_migration(conductor(meddler), instance, migration) == grown
    assert _of(other, instance, migration) == [{}, grown]


@pytest.mark.parametrize("n_reads", [1, 2], ids=["before the first", "between both"])
def test_two_conductors_at_once_move_it_once(
    embedded: EmbeddedPlacementFixture, client: ConductorClient, n_reads: int
) -> None:
    instance, migration = claimed(client, vcpus(SOURCE)), new_uuid()
    meddler = InterferingAdapter(embedded.adapter)
    for _ in range(n_reads - 1):
        meddler.before("get", lambda: None)
    meddler.before("get", lambda: replace_with_migration(client, instance, migration))
    moved = replace_with_migration(conductor(meddler), instance, migration)
    assert moved == vcpus(SOURCE)
    assert _of(client, instance, migration) == [{}, vcpus(SOURCE)]


def test_changing_consumer_is_given_up_at_the_limit(
    embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    meddler = InterferingAdapter(embedded.adapter)
    for _ in range(MAX_WRITES):
        meddler.before("post", lambda: change(other, instance, vcpus(SOURCE)))
    with pytest.raises(AllocationUpdateFailed, match=f"{MAX_WRITES} tries"):
        replace_with_migration(conductor(meddler), instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


def test_source_over_its_capacity_is_moved(
    client: ConductorClient, other: PlacementClient
) -> None:
    instances = [claimed(other, vcpus(SOURCE)) for _ in range(N_VCPUS)]
    _set_inventory(other, SOURCE, N_VCPUS - 1)
    migration = new_uuid()
    replace_with_migration(client, instances[0], migration)
    assert _of(other, instances[0], migration) == [{}, vcpus(SOURCE)]


def test_refusal_of_placement_is_reported_in_its_words(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE, 2)), new_uuid()
    _set_inventory(other, SOURCE, 1)
    with pytest.raises(PlacementRejected, match=f"{migration} was not given.*409"):
        replace_with_migration(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE, 2), {}]


# --- both at once


def test_source_and_destination_change_hands_in_one_post(
    remote: ConductorClient, server: MisbehavingServer
) -> None:
    instance, migration = claimed(remote, vcpus(SOURCE)), new_uuid()
    server.seen.clear()
    answer = move(remote, instance, migration, selection(vcpus(DEST)))
    assert (answer.result, answer.n_attempts) == (ClaimResult.CLAIMED, 2)
    assert _of(remote, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]
    writes = [(verb, url) for verb, url, _ in server.seen if verb != "GET"]
    # Then the instance comes to rest at an odd generation.
    assert writes == [("POST", "/allocations"), ("PUT", f"/allocations/{instance}")]


def test_full_destination_is_refused_and_nothing_changes(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    claimed(other, vcpus(DEST, N_VCPUS))
    answer = move(client, instance, migration, selection(vcpus(DEST)))
    assert answer.result is ClaimResult.REFUSED
    assert "exceed the capacity" in answer.last.detail
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]
    answer = move(client, instance, migration, selection(vcpus(THIRD)))
    assert answer.result is ClaimResult.CLAIMED
    assert _of(other, instance, migration) == [vcpus(THIRD), vcpus(SOURCE)]


def test_destination_is_claimed_after_the_source_was_replaced(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    replace_with_migration(client, instance, migration)
    for _ in range(2):  # the second one finds it done
        answer = move(client, instance, migration, selection(vcpus(DEST)))
        assert answer.result is ClaimResult.CLAIMED
        assert _of(other, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]


def test_revert_between_read_and_claim_leaves_no_destination(
    embedded: EmbeddedPlacementFixture, client: ConductorClient
) -> None:
    instance, migration = claimed(client, vcpus(SOURCE)), new_uuid()
    replace_with_migration(client, instance, migration)
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("post", lambda: confirm(client, migration))
    with pytest.raises(AllocationUpdateFailed, match="holds nothing"):
        move(conductor(meddler), instance, migration, selection(vcpus(DEST)))
    assert _of(client, instance, migration) == [{}, {}]


def test_other_destination_is_not_overwritten(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(DEST)), claimed(other, vcpus(SOURCE))
    with pytest.raises(AllocationUpdateFailed, match="cannot be moved"):
        move(client, instance, migration, selection(vcpus(THIRD)))
    assert _of(other, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]


def test_selection_that_claims_nothing_cannot_be_moved_to(
    client: ConductorClient,
) -> None:
    with pytest.raises(InvalidRequest, match="allocation_request of host"):
        move(client, new_uuid(), new_uuid(), selection(None))


@pytest.mark.parametrize(
    ("n_new", "result"),
    [(2, ClaimResult.CLAIMED), (3, ClaimResult.REFUSED)],
    ids=["room for both flavors", "one too many"],
)
def test_same_host_resize_counts_both_flavors(
    client: ConductorClient, other: PlacementClient, n_new: int, result: ClaimResult
) -> None:
    assert N_VCPUS == 4
    instance, migration = claimed(other, vcpus(SOURCE, 2)), new_uuid()
    answer = move(client, instance, migration, selection(vcpus(SOURCE, n_new)))
    assert answer.result is result


def test_same_host_move_of_the_same_size_is_made_once(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    for _ in range(2):
        move(client, instance, migration, selection(vcpus(SOURCE)))
        assert _of(other, instance, migration) == [vcpus(SOURCE)] * 2


def test_empty_consumer_that_placement_knows_is_moved_to(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = new_uuid(), claimed(other, vcpus(SOURCE))
    change(other, instance, {})  # a lost claim of the scheduler's can leave one
    answer = move(client, instance, migration, selection(vcpus(DEST)))
    # Refused, done, and once more: it rests at an odd generation.
    assert (answer.result, answer.n_attempts) == (ClaimResult.CLAIMED, 3)


# --- confirm and revert


def test_confirmed_move_leaves_the_destination(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    move(client, instance, migration, selection(vcpus(DEST)))
    assert confirm(client, migration) is True
    assert _of(other, instance, migration) == [vcpus(DEST), {}]
    assert confirm(client, migration) is False


def test_reverted_move_leaves_the_source(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    move(client, instance, migration, selection(vcpus(DEST)))
    revert(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


def test_same_host_resize_is_reverted(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    move(client, instance, migration, selection(vcpus(SOURCE, 2)))
    revert(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


@pytest.mark.parametrize("is_known", [False, True], ids=["never seen", "known, empty"])
def test_move_without_a_destination_is_rolled_back(
    client: ConductorClient, other: PlacementClient, is_known: bool
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    replace_with_migration(client, instance, migration)
    if is_known:
        change(other, instance, {})
    revert(client, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


@pytest.mark.parametrize("is_source_known", [False, True])
def test_revert_after_confirm_is_an_error(
    client: ConductorClient, other: PlacementClient, is_source_known: bool
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    source = replace_with_migration(client, instance, migration)
    move(client, instance, migration, selection(vcpus(DEST)))
    confirm(client, migration)
    with pytest.raises(AllocationUpdateFailed, match=f"cannot be reverted.*{DEST}"):
        revert(client, instance, migration, source=source if is_source_known else None)
    assert _of(other, instance, migration) == [vcpus(DEST), {}]


def test_second_revert_is_detected_by_the_source(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    source = replace_with_migration(client, instance, migration)
    for _ in range(2):
        revert(client, instance, migration, source=source)
        assert _of(other, instance, migration) == [vcpus(SOURCE), {}]
    with pytest.raises(AllocationUpdateFailed, match="cannot be reverted"):
        revert(client, instance, migration)


def test_confirm_between_read_and_revert_wins(
    embedded: EmbeddedPlacementFixture, client: ConductorClient
) -> None:
    instance, migration = claimed(client, vcpus(SOURCE)), new_uuid()
    move(client, instance, migration, selection(vcpus(DEST)))
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("post", lambda: confirm(client, migration))
    with pytest.raises(AllocationUpdateFailed, match="cannot be reverted"):
        revert(conductor(meddler), instance, migration)
    assert _of(client, instance, migration) == [vcpus(DEST), {}]


def test_allocation_in_use_has_an_odd_generation(
    client: ConductorClient, other: PlacementClient
) -> None:
    """A scheduler releases what is held at an even one: it was never answered."""
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    calls: list[Callable[[], object]] = [
        lambda: replace_with_migration(client, instance, migration),
        lambda: move(client, instance, migration, selection(vcpus(DEST))),
        lambda: revert(client, instance, migration),
        lambda: move(client, instance, migration, selection(vcpus(SOURCE, 2))),
        lambda: confirm(client, migration),
    ]
    for call in calls:
        call()
        for consumer in (instance, migration):
            generation = other.allocations(consumer).consumer_generation
            assert generation is None or generation % 2 == 1


# --- one host's part of what an instance holds


def test_evacuated_source_is_removed_with_its_tree(
    client: ConductorClient, other: PlacementClient
) -> None:
    kept = {**vcpus(DEST), SHARE: {"DISK_GB": 10}}
    instance = claimed(other, {**vcpus(SOURCE), NIC: {"SRIOV_NET_VF": 1}, **kept})
    assert remove_provider_tree(client, instance, SOURCE) is True
    assert held(other, instance) == kept
    assert remove_provider_tree(client, instance, SOURCE) is False
    assert held(other, instance) == kept


def test_only_host_is_removed(client: ConductorClient, other: PlacementClient) -> None:
    instance = claimed(other, vcpus(DEST))
    assert remove_provider_tree(client, instance, DEST) is True
    assert held(other, instance) == {}
    assert remove_provider_tree(client, instance, DEST) is False


def test_claim_made_between_read_and_removal_is_kept(
    embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance = claimed(other, vcpus(SOURCE))
    both = {**vcpus(SOURCE), **vcpus(DEST)}
    meddler = InterferingAdapter(embedded.adapter)
    meddler.before("put", lambda: change(other, instance, both))
    assert remove_provider_tree(conductor(meddler), instance, SOURCE) is True
    assert held(other, instance) == vcpus(DEST)


def test_malformed_root_raises(client: ConductorClient, other: PlacementClient) -> None:
    instance = claimed(other, vcpus(SOURCE))
    with pytest.raises(PlacementRejected, match="in_tree=host1"):
        remove_provider_tree(client, instance, "host1")


# --- lost answers


@pytest.mark.parametrize(
    "wrong",
    [
        Misbehaviour.LOST,
        Misbehaviour.ERROR,
        Misbehaviour.CONTENDED,
        Misbehaviour.BAD_GATEWAY,
        Misbehaviour.HTML,
    ],
    ids=lambda wrong: wrong.name,
)
def test_write_that_fails_once_is_done_once(
    remote: ConductorClient, server: MisbehavingServer, wrong: Misbehaviour
) -> None:
    instance, migration = claimed(remote, vcpus(SOURCE)), new_uuid()
    server.misbehave(wrong, verb="POST")
    answer = move(remote, instance, migration, selection(vcpus(DEST)))
    assert answer.result is ClaimResult.CLAIMED
    assert _of(remote, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]
    server.misbehave(wrong, verb="POST")
    revert(remote, instance, migration)
    assert _of(remote, instance, migration) == [vcpus(SOURCE), {}]
    server.misbehave(wrong, verb="PUT")
    assert remove_provider_tree(remote, instance, SOURCE) is True
    assert held(remote, instance) == {}


def test_late_write_changes_nothing_any_more(
    remote: ConductorClient, server: MisbehavingServer
) -> None:
    instance, migration = claimed(remote, vcpus(SOURCE)), new_uuid()
    server.misbehave(Misbehaviour.LATE, verb="POST")
    move(remote, instance, migration, selection(vcpus(DEST)))
    server.let_late_ones_go()
    assert _of(remote, instance, migration) == [vcpus(DEST), vcpus(SOURCE)]


@pytest.mark.parametrize("end", [confirm, revert], ids=["confirmed", "reverted"])
@pytest.mark.parametrize(
    "begin",
    [
        lambda client, instance, migration: replace_with_migration(
            client, instance, migration
        ),
        lambda client, instance, migration: move(
            client, instance, migration, selection(vcpus(DEST))
        ),
    ],
    ids=["replaced", "moved"],
)
def test_late_copy_of_its_beginning_changes_nothing_once_a_move_is_over(
    embedded: EmbeddedPlacementFixture,
    other: PlacementClient,
    begin: Callable[..., object],
    end: Callable[..., object],
) -> None:
    """The instance is at the generation again that it names: its consumer is new."""
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    adapter = FaultyAdapter(embedded.adapter)
    client = conductor(adapter)
    adapter.fault(FaultKind.LATE, writes(migration))
    begin(client, instance, migration)
    end(client, *[instance, migration][end is confirm :])
    expected = vcpus(DEST if end is confirm else SOURCE)
    client.write(Verb.DELETE, f"/allocations/{instance}")
    change(other, instance, expected)
    [late] = adapter.deliver()
    named = late.body[instance]["consumer_generation"]
    assert other.allocations(instance).consumer_generation == named
    assert _of(other, instance, migration) == [expected, {}]


@pytest.mark.parametrize("is_known", [False, True], ids=["never seen", "known, empty"])
def test_migration_that_was_reverted_begins_again(
    client: ConductorClient, other: PlacementClient, is_known: bool
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    for _ in range(2):
        replace_with_migration(client, instance, migration)
        assert _of(other, instance, migration) == [{}, vcpus(SOURCE)]
        revert(client, instance, migration)
        if is_known:
            change(other, migration, {})


def test_migration_begins_although_placement_knows_it_as_empty(
    client: ConductorClient, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), claimed(other, vcpus(DEST))
    change(other, migration, {})
    change(other, migration, {})
    replace_with_migration(client, instance, migration)
    assert _of(other, instance, migration) == [{}, vcpus(SOURCE)]


def test_late_write_is_rejected_by_generation_after_a_refused_one(
    remote: ConductorClient, server: MisbehavingServer, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    rival = claimed(other, vcpus(DEST, N_VCPUS))
    server.misbehave(Misbehaviour.LATE, verb="POST")
    answer = move(remote, instance, migration, selection(vcpus(DEST)))
    assert answer.result is ClaimResult.REFUSED
    change(other, rival, vcpus(THIRD))  # now the late one would fit
    server.let_late_ones_go()
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


def test_write_in_doubt_is_settled_by_the_next_call(
    server: MisbehavingServer, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    meddler = InterferingAdapter(adapter_to(server.url))
    away = Misbehaviour.ERROR
    n_looks = MAX_WRITES
    meddler.before("post", lambda: server.misbehave(away, verb="GET", times=n_looks))
    server.misbehave(Misbehaviour.LOST, verb="POST")
    remote = conductor(meddler)
    with pytest.raises(AnswerLost, match=f"{instance}, {migration}.*Repeat the call"):
        replace_with_migration(remote, instance, migration)
    assert replace_with_migration(remote, instance, migration) == vcpus(SOURCE)
    assert _of(other, instance, migration) == [{}, vcpus(SOURCE)]


def test_placement_that_is_away_changes_nothing(other: PlacementClient) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    away = conductor(adapter_to(refusing_url()))
    for call in (replace_with_migration, revert):
        with pytest.raises(PlacementUnavailable, match="no answer"):
            call(away, instance, migration)
    assert _of(other, instance, migration) == [vcpus(SOURCE), {}]


# --- any order of calls

_CALLS = {
    "replace": lambda c, i, m: replace_with_migration(c, i, m),
    "move": lambda c, i, m: move(c, i, m, selection(vcpus(DEST))),
    "resize": lambda c, i, m: move(c, i, m, selection(vcpus(SOURCE))),
    "confirm": lambda c, _i, m: confirm(c, m),
    "revert": lambda c, i, m: revert(c, i, m),
    "remove": lambda c, i, _m: remove_provider_tree(c, i, SOURCE),
    "claim": lambda c, i, _m: held(c, i) or change(c, i, vcpus(DEST)),
}


def _expected(call: str, instance: Any, migration: Any) -> tuple[Any, Any] | None:
    """The reference: what both consumers hold afterwards; None: an error."""
    both, neither = instance and migration, not (instance or migration)
    match call:
        case "replace":
            moved: tuple[Any, Any] = ({}, migration or instance)
            return None if both or neither else moved
        case "move" | "resize":
            wanted = vcpus(DEST if call == "move" else SOURCE)
            if neither or (both and instance != wanted):
                return None
            return wanted, migration or instance
        case "confirm":
            return instance, {}
        case "revert":
            return (migration, {}) if migration else None
        case "remove":
            return {u: r for u, r in instance.items() if u != SOURCE}, migration
    return instance or vcpus(DEST), migration


_FAULTS = st.sampled_from(
    [None, None, Misbehaviour.LOST, Misbehaviour.ERROR, Misbehaviour.CONTENDED]
)


@examples(0.25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(sorted(_CALLS)), _FAULTS), max_size=8))
def test_every_order_of_calls_ends_as_expected(
    server: MisbehavingServer,
    remote: ConductorClient,
    other: PlacementClient,
    calls: list[tuple[str, Misbehaviour | None]],
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    state: tuple[Any, Any] = vcpus(SOURCE), {}
    for call, fault in calls:
        expected = _expected(call, *state)
        if fault and call != "claim" and expected not in (None, state):  # it writes
            is_of_one = call in ("confirm", "remove")
            server.misbehave(fault, verb="PUT" if is_of_one else "POST")
        if expected is None:
            with pytest.raises(AllocationUpdateFailed):
                _CALLS[call](remote, instance, migration)
        else:
            _CALLS[call](remote, instance, migration)
            state = expected
        assert tuple(_of(other, instance, migration)) == state
    for consumer in (instance, migration):
        if held(other, consumer):
            change(other, consumer, {})


@pytest.mark.parametrize(
    "kind",
    [FaultKind.AWAY, FaultKind.LOST, FaultKind.PROVIDER_CONFLICT],
    ids=lambda kind: kind.name,
)
@pytest.mark.parametrize("n_faults", [1, MAX_WRITES - 1])
def test_write_that_brings_to_rest_is_repeated(
    embedded: EmbeddedPlacementFixture,
    other: PlacementClient,
    kind: FaultKind,
    n_faults: int,
) -> None:
    """At an even generation, schedulers take what is in use for an unanswered claim."""
    instance = claimed(other, {**vcpus(SOURCE), **vcpus(DEST)})
    adapter = FaultyAdapter(embedded.adapter)
    is_write = writes(instance)
    adapter.fault(FaultKind.LATE, is_write, times=MAX_WRITES)
    # The next one uses up the generation that the late writes name.
    seen: list[Call] = []

    def is_after_fence(call: Call) -> bool:
        if is_write(call) and call not in seen:
            seen.append(call)
        return is_write(call) and len(seen) > 1

    adapter.fault(kind, is_after_fence, times=n_faults)
    with pytest.raises(AnswerLost):
        remove_provider_tree(conductor(adapter), instance, SOURCE)
    generation = other.allocations(instance).consumer_generation
    assert generation is not None
    assert generation % 2 == 1
    adapter.deliver()
    assert held(other, instance) == {**vcpus(SOURCE), **vcpus(DEST)}
