# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of explanations: decisions, why-not, dry runs, hosts.

    client ─▶ server (waitress) ─▶ access ─▶ api (Flask) ─▶ answers ─▶ explain, store

It runs in a process of its own, moorage-api: no explanation runs where requests are
decided.
"""

from ..http_server import WebServer
from .access import make_access
from .answers import Answers
from .api import make_app

__all__ = ["Answers", "WebServer", "make_access", "make_app"]
