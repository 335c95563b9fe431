# SPDX-License-Identifier: Apache-2.0
"""A conductor's side of Placement: alternates inside the cell, and move operations.

It talks to Placement alone: neither to the scheduler, which a cell cannot call, nor
with the scheduler's options. Whatever adapter a conductor has makes a client:

    client = ConductorClient(adapter)

    a build failed           claim_alternate ─▶ fill_provider_mapping
    a move, step by step     replace_with_migration ─▶ the scheduler claims
    a move to a known host   move
    its end                  confirm, or revert
    an evacuation's end      remove_provider_tree

Every call can be repeated: what is done already is recognized, and what cannot be
told from a mistake is an AllocationUpdateFailed.
"""

from .alternates import claim_alternate
from .client import ConductorClient, ConsumerType
from .moves import (
    confirm,
    move,
    remove_provider_tree,
    replace_with_migration,
    revert,
)
from .selected import allocation_request, fill_provider_mapping

__all__ = [
    "ConductorClient",
    "ConsumerType",
    "allocation_request",
    "claim_alternate",
    "confirm",
    "fill_provider_mapping",
    "move",
    "remove_provider_tree",
    "replace_with_migration",
    "revert",
]
