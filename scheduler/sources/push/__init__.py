# SPDX-License-Identifier: Apache-2.0
"""The source "push": agents report hosts over RPC; our own database stores them."""

from .source import PushSource, ReportEndpoint

__all__ = ["PushSource", "ReportEndpoint"]
