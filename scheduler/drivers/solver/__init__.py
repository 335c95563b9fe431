# SPDX-License-Identifier: Apache-2.0
"""The driver "solver": all instances of a request placed at once, by integer program.

eligible hosts ─┐
open candidates ┼▶ Problem ─▶ HiGHS ─▶ choices ─▶ filters again ─▶ claim together
free amounts  ──┤    ▲                                 │ too many       │ refused
rules, wishes ──┘    └──────── less room there ◀───────┴────────────────┘
"""

from .driver import SolverScheduler

__all__ = ["SolverScheduler"]
