# SPDX-License-Identifier: Apache-2.0
"""What a conductor writes names its consumer's type, where Placement knows types."""

from __future__ import annotations

from typing import Any

from moorage.conductor import (
    ConductorClient,
    claim_alternate,
    confirm,
    move,
    remove_provider_tree,
    revert,
)
from moorage.scheduler.placement.client import PlacementClient

from ..fixtures.placement_servers import (
    EmbeddedPlacementFixture,
    MisbehavingServer,
    Misbehaviour,
)
from .clouds import (
    DEST,
    OWNER,
    SOURCE,
    THIRD,
    claimed,
    held,
    new_uuid,
    selection,
    vcpus,
)


def _type(embedded: EmbeddedPlacementFixture, consumer: str) -> str:
    answer: Any = embedded.adapter.get(
        f"/allocations/{consumer}", microversion="1.38", headers={}, raise_exc=False
    )
    return str(answer.json()["consumer_type"])


def test_instance_that_is_claimed_has_its_type(
    client: ConductorClient, embedded: EmbeddedPlacementFixture
) -> None:
    instance = new_uuid()
    claim_alternate(client, instance, [selection(vcpus(DEST))], **OWNER)
    assert _type(embedded, instance) == "INSTANCE"


def test_both_consumers_of_a_move_have_theirs(
    client: ConductorClient, embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance, migration = claimed(other, vcpus(SOURCE)), new_uuid()
    assert _type(embedded, instance) == "unknown"  # as the scheduler claims, in 1.36
    move(client, instance, migration, selection(vcpus(DEST)))
    assert _type(embedded, instance) == "INSTANCE"
    assert _type(embedded, migration) == "MIGRATION"
    revert(client, instance, migration)
    assert _type(embedded, instance) == "INSTANCE"


def test_instance_that_is_evacuated_has_its_type(
    client: ConductorClient, embedded: EmbeddedPlacementFixture, other: PlacementClient
) -> None:
    instance = claimed(other, {**vcpus(SOURCE), **vcpus(DEST)})
    remove_provider_tree(client, instance, SOURCE)
    assert _type(embedded, instance) == "INSTANCE"


def test_placement_without_consumer_types_gets_none_and_is_asked_once(
    remote: ConductorClient,
    server: MisbehavingServer,
    embedded: EmbeddedPlacementFixture,
) -> None:
    instance, migration = claimed(embedded.client, vcpus(SOURCE)), new_uuid()
    server.misbehave(Misbehaviour.NOT_ACCEPTABLE, verb="POST")
    move(remote, instance, migration, selection(vcpus(DEST)))
    assert _type(embedded, instance) == _type(embedded, migration) == "unknown"
    confirm(remote, migration)
    claim_alternate(
        remote,
        instance,
        [selection(vcpus(THIRD))],
        failed=selection(vcpus(DEST)),
        **OWNER,
    )
    assert held(remote, instance) == vcpus(THIRD)
    versions = [
        headers["OpenStack-API-Version"].split()[1]
        for verb, _, headers in server.seen
        if verb != "GET"
    ]
    # The move (the instance twice), the confirmation's write and the alternate's.
    assert versions == ["1.38", "1.36", "1.36", "1.36", "1.36", "1.36"]
