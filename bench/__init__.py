# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of decisions on this machine, compared with nova 34."""
