# SPDX-License-Identifier: Apache-2.0
"""A cloud in one process: real Placement, scheduler, message bus, and a conductor.

`python -m examples.demo` is what `make demo` runs. A request's way through it:

    data/inventory.yaml ── seed ──▶ embedded Placement        cloud.py
            └────────────────────▶ scheduler ◀── RPC ──┐
    data/wire/*.json    ── recorded requests ──▶ conductor    wire.py, ../conductor/
    data/traces/*.csv   ── virtual machines ───▶      │       trace.py
    decision records, usages ◀────────────────────────┘       fill.py, report.py
"""
