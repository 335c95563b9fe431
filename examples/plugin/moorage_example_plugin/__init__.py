# SPDX-License-Identifier: Apache-2.0
"""An example: a filter and a weigher for Moorage."""
