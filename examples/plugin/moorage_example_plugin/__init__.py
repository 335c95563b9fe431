# SPDX-License-Identifier: Apache-2.0
"""A filter, two weighers and a column and a driver for Moorage, to copy from."""
