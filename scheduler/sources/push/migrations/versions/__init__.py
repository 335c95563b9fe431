# SPDX-License-Identifier: Apache-2.0
"""One module for each migration. Never edit a released migration: add a new one."""
