# SPDX-License-Identifier: Apache-2.0
"""Observability of a scheduler: metrics, probes, reports on demand."""
