# SPDX-License-Identifier: Apache-2.0
"""Traits that are made of a value, such as COMPUTE_IMAGE_TYPE_QCOW2 of "qcow2"."""

from __future__ import annotations

import os_traits
from oslo_log import log as logging

LOG = logging.getLogger(__name__)


def known_trait(prefix: str, value: str) -> str | None:
    """Return the trait of a value, None where os-traits has no such trait.

    Placement would refuse the whole question for a trait that it does not know.
    """
    trait = f"{prefix}_{value.replace('-', '_').upper()}"
    if hasattr(os_traits, trait):
        return trait
    LOG.error("No trait %s stands for %r: it is not asked for", trait, value)
    return None
