# SPDX-License-Identifier: Apache-2.0
"""The engine of Placement's database, from ``[placement_database]``."""

from __future__ import annotations

from typing import Any, Final

import sqlalchemy as sa
from oslo_config import cfg

from ...errors import ConfigurationError
from ...failures import Failure
from ...polling.engines import create_engine

OPTION: Final = "[placement_database] connection"
_AS_URL: Final = "It must be a URL such as mysql+pymysql://moorage:…@db/placement"
#: Maximum bytes of a provider's traits as text; MySQL's default is 1,024.
_MAX_CONCATENATED: Final = 1 << 24


def placement_engine(conf: cfg.ConfigOpts) -> sa.Engine:
    """Return an engine of Placement's database, which is not connected yet.

    Raises
    ------
    ConfigurationError
        The option is not a database URL, or its driver is not installed.
    """
    group = conf.placement_database
    try:
        return create_engine(group.connection, group, conf.moorage.cell_timeout)
    except (sa.exc.ArgumentError, ImportError, ValueError) as e:
        raise ConfigurationError(
            f"{Failure.of(OPTION, group.connection, e, _AS_URL)}"
        ) from None


def allow_long_sets(engine: sa.Engine) -> None:
    """Let the database return long sets as text, on connections opened from now on."""
    if engine.dialect.name in ("mysql", "mariadb"):
        sa.event.listen(engine, "connect", _allow_long_sets)


def _allow_long_sets(connection: Any, _record: object) -> None:  # noqa: ANN401 - DB-API
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION group_concat_max_len = {_MAX_CONCATENATED}")
