# SPDX-License-Identifier: Apache-2.0
"""The claims of a decision: candidates of an offer, claimed, checked, published."""
