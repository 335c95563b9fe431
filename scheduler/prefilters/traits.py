# SPDX-License-Identifier: Apache-2.0
"""Traits derived from a value, such as COMPUTE_IMAGE_TYPE_QCOW2 from "qcow2"."""

from __future__ import annotations

import os_traits
from oslo_log import log as logging

LOG = logging.getLogger(__name__)


def known_trait(prefix: str, value: str) -> str | None:
    """Return the trait of a value; None if os-traits has no such trait.

    Placement rejects a whole query that has an unknown trait.
    """
    trait = f"{prefix}_{value.replace('-', '_').upper()}"
    if hasattr(os_traits, trait):
        return trait
    LOG.error("os-traits has no trait %s for %r: it is not required", trait, value)
    return None
