# SPDX-License-Identifier: Apache-2.0
"""The source "kafka": a compacted topic has each host's newest whole report."""

from .source import KafkaSource

__all__ = ["KafkaSource"]
