# SPDX-License-Identifier: Apache-2.0
"""Decide requests: the driver interface, the drivers, and the record of a decision."""
