# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for Moorage, to copy from."""
