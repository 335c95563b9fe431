# SPDX-License-Identifier: Apache-2.0
"""The claims of a decision: what is left of an offer, claimed, checked, published."""
