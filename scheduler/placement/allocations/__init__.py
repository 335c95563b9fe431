# SPDX-License-Identifier: Apache-2.0
"""Allocations in Placement: one engine that writes them, and what may be left of them.

`engine` states the rules; `claims` claims and releases by it, and a conductor rewrites;
`journal` and `orphans` settle what a kill or an unreachable Placement left behind;
`limits` has every bound on retries and waits.
"""
