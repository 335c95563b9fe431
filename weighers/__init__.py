# SPDX-License-Identifier: Apache-2.0
"""Host weighers: each gives every host of a batch a figure to be ranked by."""

from .base import BaseHostWeigher

__all__ = ["BaseHostWeigher"]
