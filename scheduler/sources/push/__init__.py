# SPDX-License-Identifier: Apache-2.0
"""The source "push": hosts report themselves over RPC; our own store keeps them."""

from .endpoint import ReportEndpoint
from .source import PushSource

__all__ = ["PushSource", "ReportEndpoint"]
