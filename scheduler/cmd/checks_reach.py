# SPDX-License-Identifier: Apache-2.0
"""Whether Placement and nova's databases answer as is needed; they are only read."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ..errors import PlacementError
from ..placement.client import MICROVERSION, PlacementClient, make_adapter
from ..sources.nova_db import schema
from ..sources.nova_db.directory import CellMappingRow, DirectoryReader
from ..sources.nova_db.engines import Engines
from ..sources.nova_db.old_computes import (
    ADVICE,
    describe_old_computes,
    read_old_computes,
)
from .checks_files import FileOptions
from .checks_finding import Finding, Pending

#: Seconds that Placement may take for both of its questions.
PLACEMENT_S: Final = 10.0

_PLACEMENT: Final = "Placement"
_RETRIES: Final = "Placement's own retries"
_RETRY_COUNT: Final = "allocation_conflict_retry_count"
_API: Final = "API database"
_AS_URL: Final = "such as mysql+pymysql://nova:…@db/nova_api"


def placement_findings(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[Finding]:
    """Tell whether a Placement is named, and whether it can do its part."""
    options = conf.placement
    if not (options.auth_type or options.auth_section or options.endpoint_override):
        yield _embedded(conf)
        return
    pending = Pending(lambda: _asked(conf))
    try:
        yield pending.result(PLACEMENT_S)
    except (PlacementError, TimeoutError) as e:
        yield Finding.failure(_PLACEMENT, files.scrubbed(e))
    yield _retries(files)


def _embedded(conf: cfg.ConfigOpts) -> Finding:
    told = (
        "[placement] has none of auth_type, auth_section and endpoint_override: the "
        "embedded Placement would run, which no compute reports to."
    )
    if conf.moorage.source == "file":
        return Finding.warning(_PLACEMENT, f"{told} It is for trials, with one worker.")
    return Finding.failure(_PLACEMENT, f"{told} Set them as in nova.conf.")


def _asked(conf: cfg.ConfigOpts) -> Finding:
    client = PlacementClient(make_adapter(conf))
    client.check()
    client.probe()
    _, highest = client.version_range()
    return Finding.success(
        _PLACEMENT, f"It answers, and speaks {highest}; {MICROVERSION} is needed."
    )


def _retries(files: FileOptions) -> Finding:
    value = files.get("placement", _RETRY_COUNT)
    if value == "1":
        return Finding.success(_RETRIES, f"{_RETRY_COUNT} is 1.")
    told = (
        "Placement does not tell it over its API. Give placement.conf as a further "
        "--config-file to have it looked at."
    )
    if value is not None:
        told = f"It is {value}."
    return Finding.warning(
        _RETRIES,
        f"Set [placement] {_RETRY_COUNT} = 1 in placement.conf: Placement 16, where it "
        f"retries claims by itself, can grant more than a provider has. {told}",
    )


def database_findings(conf: cfg.ConfigOpts, files: FileOptions) -> Iterator[Finding]:
    """Tell whether the source nova_db can read the API database and each cell's."""
    if not conf.api_database.connection:
        yield Finding.failure(
            _API,
            "[api_database] connection is not set; the source nova_db needs the URL of "
            f"nova's API database, {_AS_URL}.",
        )
        return
    databases = _Databases(conf, files)
    try:
        yield from databases.findings()
    finally:
        databases.close()


class _Databases:
    """The databases that lead from ``[api_database]``, each asked in good time."""

    def __init__(self, conf: cfg.ConfigOpts, files: FileOptions) -> None:
        self._engines = Engines(conf)
        self._api_url: str = conf.api_database.connection
        self._local: str | None = conf.database.connection
        self._is_ffu = conf.workarounds.disable_compute_service_check_for_ffu
        self._files = files
        # A driver waits for whole seconds, and more than once.
        self._limit_s = 2 * conf.moorage.cell_timeout + 1
        self._cells: tuple[CellMappingRow, ...] = ()

    def findings(self) -> Iterator[Finding]:
        yield self._outcome(_API, Pending(self._read_api))
        pending = [
            (
                f"Cell {cell.name or cell.uuid}",
                Pending(functools.partial(self._read_cell, cell)),
            )
            for cell in self._cells
        ]
        for name, work in pending:
            yield self._outcome(name, work)

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engines.dispose()

    def _outcome(self, name: str, work: Pending) -> Finding:
        try:
            return work.result(self._limit_s)
        except ModuleNotFoundError as e:
            return Finding.failure(
                name,
                f"The database's driver {e.name} is not installed: install moorage "
                "with its extra mysql or postgresql.",
            )
        except sa.exc.ArgumentError:  # its message may have the URL
            told = f"Its URL cannot be used; it has to be one {_AS_URL}."
            return Finding.failure(name, told)
        except Exception as e:  # whatever a driver raises: it is what is to be told
            cause = getattr(e, "inner_exception", None) or e  # oslo.db's wrapping
            told = self._files.scrubbed(getattr(cause, "orig", None) or cause)
            return Finding.failure(name, f"It cannot be read: {told}")

    def _read_api(self) -> Finding:
        with _connected(self._engines.api()) as connection:
            directory = DirectoryReader(self._local).read(connection, time.time())
        self._cells = tuple(
            cell for cell in directory.cells if "{" not in cell.connection
        )
        unfilled = [
            cell.name or cell.uuid for cell in directory.cells if "{" in cell.connection
        ]
        if unfilled:
            return Finding.failure(
                _API,
                f"The database URLs of the cells {', '.join(unfilled)} are templates, "
                "which [database] connection does not fill: set it as in nova.conf.",
            )
        if not self._cells:
            return Finding.failure(
                _API, "It has no enabled cell but cell0: there are no hosts."
            )
        return Finding.success(
            _API,
            f"{len(self._cells)} enabled cells, {len(directory.aggregates)} aggregates",
        )

    def _read_cell(self, cell: CellMappingRow) -> Finding:
        """Look at one row of each table, with all the columns that will be read."""
        nodes = schema.compute_nodes
        with _connected(self._engines.cell(cell.connection)) as connection:
            for table in schema.CELL.sorted_tables:
                connection.execute(sa.select(table).limit(1)).all()
            n_nodes = connection.execute(
                sa.select(sa.func.count())
                .select_from(nodes)
                .where(nodes.c.deleted == 0)
            ).scalar_one()
            old = read_old_computes(connection)
        if old and not self._is_ffu:
            return Finding.failure(
                _name(cell),
                f"The start would stop: {describe_old_computes(old)}. {ADVICE}.",
            )
        if old:
            return Finding.warning(_name(cell), f"{describe_old_computes(old)}.")
        if not n_nodes:
            return Finding.warning(_name(cell), "It has no compute nodes.")
        return Finding.success(_name(cell), f"{n_nodes} compute nodes")


def _name(cell: CellMappingRow) -> str:
    return f"Cell {cell.name or cell.uuid}"


@contextlib.contextmanager
def _connected(engine: sa.Engine) -> Iterator[sa.Connection]:
    path = engine.url.database
    if engine.dialect.name == "sqlite" and not Path(path or "").is_file():
        raise FileNotFoundError(f"there is no file {path}")  # SQLite would make it
    with engine.connect() as connection:
        yield connection
