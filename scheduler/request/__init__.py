# SPDX-License-Identifier: Apache-2.0
"""The request of a conductor, read and validated once."""
