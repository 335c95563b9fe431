# SPDX-License-Identifier: Apache-2.0
"""A cloud in one process: real Placement, scheduler, message bus, and a conductor.

`make demo` runs `python -m examples.demo`. The data flows as follows:

    data/inventory.yaml ── seed ──▶ embedded Placement        cloud.py
            └────────────────────▶ scheduler ◀── RPC ──┐
    data/wire/*.json    ── recorded requests ──▶ conductor    wire.py, ../conductor/
    data/traces/*.csv   ── virtual machines ───▶      │       trace.py
    racks and rows      ── hints about places ─▶      │       places.py
    decision records, usages ◀────────────────────────┘       usage.py, report.py
"""
