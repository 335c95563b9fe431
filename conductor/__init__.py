# SPDX-License-Identifier: Apache-2.0
"""Placement for conductors: alternates inside the cell, and move operations.

This package calls Placement only, not the scheduler, which a cell cannot reach; it
needs none of the scheduler's options. The adapter that a conductor has makes a client:

    client = ConductorClient(adapter)

    a build failed           claim_alternate ─▶ fill_provider_mapping
    a move, step by step     replace_with_migration ─▶ the scheduler claims
    a move to a known host   move
    a move's end             confirm, or revert
    an evacuation's end      remove_provider_tree

Every call is idempotent: a step that is done already is recognized. A state that no
step of the operation leads to raises AllocationUpdateFailed.
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
