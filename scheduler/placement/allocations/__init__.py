# SPDX-License-Identifier: Apache-2.0
"""Allocations in Placement: the engine that writes them, and orphaned ones.

`engine` states the rules; `claims` and `releases` follow them, and a conductor uses the
engine as well; `journal` and `orphans` resolve what a killed process or an unavailable
Placement left behind; `limits` has all limits on retries and waits.
"""
