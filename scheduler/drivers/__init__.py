# SPDX-License-Identifier: Apache-2.0
"""From a request to selections: the driver interface, filter_scheduler, its record."""
