# SPDX-License-Identifier: Apache-2.0
"""Templates of database URLs in cell mappings, filled as in nova."""

from __future__ import annotations

import logging
from urllib.parse import urlsplit

LOG = logging.getLogger(__name__)


def fill_template(connection: str, local: str | None) -> str:
    """Return a cell's ``database_connection`` with its fields filled.

    Parameters
    ----------
    connection : str
        A URL, a template such as ``{scheme}://{username}@{hostname}/nova_cell2?{query}``
        or any other text; without fields in braces it is returned unchanged.
    local : str or None
        ``[database] connection``, from which the fields are taken
        (nova's ``CellMappingRow.format_db_url``).

    Returns
    -------
    str
        The template itself where it cannot be filled: the reason is logged, and
        connecting to it fails.
    """
    if "{" not in connection:
        return connection
    if not local:
        LOG.error(
            "The database_connection of a cell mapping is a template, but [database] "
            "connection is not set"
        )
        return connection
    try:
        return connection.format(**_fields(local))
    except (KeyError, IndexError, ValueError) as e:
        LOG.error(
            "The database_connection of a cell mapping is a template that "
            "[database] connection cannot fill: %r",
            e,
        )
        return connection


def _fields(url: str) -> dict[str, str | int | None]:
    parts = urlsplit(url)
    fields: dict[str, str | int | None] = {
        "path": parts.path.lstrip("/"),
        "scheme": parts.scheme,
        "query": parts.query,
        "fragment": parts.fragment,
    }
    if "," not in parts.netloc:
        fields.update(_server("", parts.netloc))
        return fields
    for number, netloc in enumerate(parts.netloc.split(","), start=1):
        fields.update(_server(str(number), netloc))
    return fields


def _server(number: str, netloc: str) -> dict[str, str | int | None]:
    """Return user, password, host and port, with the server's number in the names."""
    parts = urlsplit(f"//{netloc}")
    return {
        f"username{number}": parts.username,
        f"password{number}": parts.password,
        f"hostname{number}": parts.hostname,
        f"port{number}": parts.port,
    }
