# SPDX-License-Identifier: Apache-2.0
"""Host weighers: each returns a raw weight for every host of a batch."""

from .base import BaseHostWeigher

__all__ = ["BaseHostWeigher"]
