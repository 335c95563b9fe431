# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of explanations, and the page: decisions, why-not, dry runs, hosts.

    client ─▶ server (waitress) ─▶ access ─┬▶ api (Flask) ─▶ answers ─▶ explain, store
    browser ─▶                             └▶ page ──────────▲

The server runs in its own process, moorage-api: no explanation runs in a process that
decides requests.
"""

from .access import is_open, make_access
from .answers import Answers
from .api import make_app, make_web_server
from .page import decision_file

__all__ = [
    "Answers",
    "decision_file",
    "is_open",
    "make_access",
    "make_app",
    "make_web_server",
]
