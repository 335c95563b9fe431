# SPDX-License-Identifier: Apache-2.0
"""Placement's answers, cached and shared by concurrent requests."""
