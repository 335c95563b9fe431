# SPDX-License-Identifier: Apache-2.0
"""The source "push": agents report hosts over RPC; our own database stores them."""

from .endpoint import ReportEndpoint
from .source import PushSource

__all__ = ["PushSource", "ReportEndpoint"]
