# SPDX-License-Identifier: Apache-2.0
"""A filter, two weighers and a column for Moorage, to copy from."""
