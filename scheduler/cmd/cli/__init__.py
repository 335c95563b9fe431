# SPDX-License-Identifier: Apache-2.0
"""The command moorage: what the scheduler decided, why, and what it would decide."""

from .main import main

__all__ = ["main"]
