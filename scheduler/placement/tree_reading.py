# SPDX-License-Identifier: Apache-2.0
"""Read one host's resource providers from Placement, for explanations.

Reading takes a GET for the tree, one for sharing providers, and four for each provider:
no decision calls it.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

import os_traits

from .client import PlacementClient
from .members import read_as
from .providers import InventoryRecord, ProviderRecord

#: Most providers that are read; a host with more has its devices in Placement.
MAX_PROVIDERS: Final = 64


def read_tree(client: PlacementClient, root_uuid: str) -> list[ProviderRecord]:
    """Return a tree's providers, its root first, then the providers that share with it.

    Providers beyond `MAX_PROVIDERS` are left out. The result is empty if no tree has
    this root.

    Raises
    ------
    PlacementError
        Placement could not be queried.
    """
    url = f"/resource_providers?in_tree={quote(root_uuid)}"
    in_tree = sorted(_list(client, url), key=lambda provider: provider[1] is not None)
    if not in_tree or in_tree[0][0] != root_uuid:
        return []
    records = [_read(client, *provider) for provider in in_tree[:MAX_PROVIDERS]]
    aggregates = frozenset[str]().union(*(record.aggregates for record in records))
    if aggregates:
        tree_uuids = {uuid for uuid, _ in in_tree}
        url = (
            f"/resource_providers?required={os_traits.MISC_SHARES_VIA_AGGREGATE}"
            f"&member_of=in:{','.join(sorted(aggregates))}"
        )
        sharing = [uuid for uuid, _ in _list(client, url) if uuid not in tree_uuids]
        n_remaining = MAX_PROVIDERS - len(records)
        records += [_read(client, uuid, None) for uuid in sharing[:n_remaining]]
    return records


def _list(client: PlacementClient, url: str) -> list[tuple[str, str | None]]:
    def read(body: Any) -> list[tuple[str, str | None]]:  # noqa: ANN401 - JSON
        providers = body["resource_providers"]
        return [
            (provider["uuid"], provider["parent_provider_uuid"])
            for provider in providers
        ]

    return read_as(client, url, read)


def _read(client: PlacementClient, uuid: str, parent: str | None) -> ProviderRecord:
    url = f"/resource_providers/{uuid}"
    return ProviderRecord(
        uuid,
        parent,
        inventories=read_as(client, f"{url}/inventories", _inventories),
        used=read_as(client, f"{url}/usages", lambda body: dict(body["usages"])),
        traits=read_as(client, f"{url}/traits", lambda b: frozenset(b["traits"])),
        aggregates=read_as(
            client, f"{url}/aggregates", lambda b: frozenset(b["aggregates"])
        ),
    )


def _inventories(body: Any) -> dict[str, InventoryRecord]:  # noqa: ANN401 - JSON
    names = InventoryRecord._fields
    return {
        name: InventoryRecord(*(inventory[field] for field in names))
        for name, inventory in body["inventories"].items()
    }
