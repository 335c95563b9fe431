# SPDX-License-Identifier: Apache-2.0
"""All that is said to Placement: queries, candidates, claims."""
