# SPDX-License-Identifier: Apache-2.0
"""Polling of SQL databases: engines, attempts with backoff, and changed rows."""
