# SPDX-License-Identifier: Apache-2.0
"""Exclude compute nodes whose service is disabled."""

from __future__ import annotations

import os_traits

from .base import PrefilterRequest


def compute_status_filter(request: PrefilterRequest) -> None:
    """Forbid the trait that a disabled compute service sets on its compute nodes."""
    request.requirements.root_forbidden.add(os_traits.COMPUTE_STATUS_DISABLED)
