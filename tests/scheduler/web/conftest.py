# SPDX-License-Identifier: Apache-2.0
"""Tests of the API and of the page wait for the store of decisions."""

from ...fixtures.explaining_api import wait_for_slow_stores

__all__ = ["wait_for_slow_stores"]
