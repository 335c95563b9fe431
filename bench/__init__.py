# SPDX-License-Identifier: Apache-2.0
"""What a decision costs, on this machine, in this run; nova 34 beside it."""
