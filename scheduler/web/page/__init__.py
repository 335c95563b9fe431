# SPDX-License-Identifier: Apache-2.0
"""The page: the cloud, its decisions and the questions of the API, for a browser.

    answers ─▶ views ─▶ heat_map, charts (SVG) ─▶ templates (Jinja2) ─▶ browser

The server renders the page; the script in ``static/`` only refreshes parts of it, and
names squares of the heat map. A page loads nothing from other servers, and its URL can
be sent to other users.
"""

from .rendering import decision_file
from .sessions import KeystoneSession, TokenSession, with_login
from .views import failed, make_page

__all__ = [
    "KeystoneSession",
    "TokenSession",
    "decision_file",
    "failed",
    "make_page",
    "with_login",
]
