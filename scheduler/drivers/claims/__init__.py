# SPDX-License-Identifier: Apache-2.0
"""Claim candidates of an offer; check claims, and publish them to other schedulers."""
