# SPDX-License-Identifier: Apache-2.0
"""Check that Placement and nova's databases can be used; they are only read."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from oslo_config import cfg

from ...candidates import MICROVERSION
from ...conf.keystoneauth import has_endpoint
from ...errors import PlacementError
from ...hosts import HostAggregate
from ...placement.adapter import make_adapter
from ...placement.client import PlacementClient
from ...sources.nova_db import schema
from ...sources.nova_db.directory import CellMappingRow, DirectoryReader
from ...sources.nova_db.engines import Engines
from ...sources.nova_db.old_computes import (
    ADVICE,
    describe_old_computes,
    read_old_computes,
)
from .files import FileOptions
from .places import OfPlacement, place_findings
from .result import CheckResult, TimedCall

#: Time limit in seconds for the check of Placement.
PLACEMENT_S: Final = 10.0

_PLACEMENT: Final = "Placement"
_RETRIES: Final = "Placement's own retries"
_RETRY_COUNT: Final = "allocation_conflict_retry_count"
_API: Final = "API database"
_AS_URL: Final = "like mysql+pymysql://nova:…@db/nova_api"


def placement_findings(
    conf: cfg.ConfigOpts, files: FileOptions
) -> Iterator[CheckResult]:
    """Check whether Placement is configured, and whether it can be used."""
    if not has_endpoint(conf, "placement"):
        yield _embedded(conf)
        return
    pending = TimedCall(lambda: _check_placement(conf))
    try:
        yield pending.result(PLACEMENT_S)
    except (PlacementError, TimeoutError) as e:
        yield CheckResult.failure(_PLACEMENT, files.redacted(e))
    yield _retries(files)


def _embedded(conf: cfg.ConfigOpts) -> CheckResult:
    problem = (
        "[placement] has none of auth_type, auth_section and endpoint_override: the "
        "embedded Placement would run, to which no compute reports."
    )
    if conf.moorage.source == "file":
        return CheckResult.warning(
            _PLACEMENT, f"{problem} It is for trials, with one worker."
        )
    return CheckResult.failure(_PLACEMENT, f"{problem} Set them as in nova.conf.")


def _check_placement(conf: cfg.ConfigOpts) -> CheckResult:
    client = PlacementClient(make_adapter(conf))
    client.check()
    client.probe()
    _, highest = client.version_range()
    return CheckResult.success(
        _PLACEMENT, f"It answers and supports {highest}; {MICROVERSION} is needed."
    )


def _retries(files: FileOptions) -> CheckResult:
    """Check that Placement does not retry claims by itself."""
    value = files.get("placement", _RETRY_COUNT)
    if value == "1":
        return CheckResult.success(_RETRIES, f"{_RETRY_COUNT} is 1.")
    state = (
        "Placement's API does not show the value. Pass placement.conf as another "
        "--config-file to have it checked."
    )
    if value is not None:
        state = f"It is {value}."
    return CheckResult.warning(
        _RETRIES,
        f"Set [placement] {_RETRY_COUNT} = 1 in placement.conf: Placement 16 can grant "
        f"more than a provider has if it retries claims internally. {state}",
    )


def database_findings(
    conf: cfg.ConfigOpts, files: FileOptions, of_placement: OfPlacement
) -> Iterator[CheckResult]:
    """Check whether the source nova_db can read the databases of the API and the cells.

    Parameters
    ----------
    of_placement : mapping
        The places that aggregates of Placement give to each host.
    """
    if not conf.api_database.connection:
        yield CheckResult.failure(
            _API,
            "[api_database] connection is not set; the source nova_db needs the URL of "
            f"nova's API database, {_AS_URL}.",
        )
        return
    databases = _Databases(conf, files)
    try:
        yield from databases.findings(of_placement)
    finally:
        databases.close()


class _Databases:
    """nova's API database and those of its cells, each read with a time limit."""

    def __init__(self, conf: cfg.ConfigOpts, files: FileOptions) -> None:
        self._conf = conf
        self._engines = Engines(conf)
        self._api_url: str = conf.api_database.connection
        self._local: str | None = conf.database.connection
        self._is_ffu = conf.workarounds.disable_compute_service_check_for_ffu
        self._files = files
        # A driver's timeout is in whole seconds, and may apply more than once.
        self._limit_s = 2 * conf.moorage.cell_timeout + 1
        self._cells: tuple[CellMappingRow, ...] = ()
        self._aggregates: tuple[HostAggregate, ...] = ()

    def findings(self, of_placement: OfPlacement) -> Iterator[CheckResult]:
        yield self._outcome(_API, TimedCall(self._read_api))
        yield from place_findings(self._conf, self._aggregates, {}, of_placement)
        pending = [
            (
                f"Cell {cell.name or cell.uuid}",
                TimedCall(functools.partial(self._read_cell, cell)),
            )
            for cell in self._cells
        ]
        for name, work in pending:
            yield self._outcome(name, work)

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._engines.dispose()

    def _outcome(self, name: str, work: TimedCall) -> CheckResult:
        """Return the result of a check, or a failure that describes its error."""
        try:
            return work.result(self._limit_s)
        except ModuleNotFoundError as e:
            return CheckResult.failure(
                name,
                f"The database's driver {e.name} is not installed: install moorage "
                "with its extra mysql or postgresql.",
            )
        except sa.exc.ArgumentError:  # its message may have the URL
            why = f"Its URL cannot be used; it must look {_AS_URL}."
            return CheckResult.failure(name, why)
        except Exception as e:  # a driver may raise anything
            cause = getattr(e, "inner_exception", None) or e  # oslo.db's wrapping
            why = self._files.redacted(getattr(cause, "orig", None) or cause)
            return CheckResult.failure(name, f"It cannot be read: {why}")

    def _read_api(self) -> CheckResult:
        """Read cells and aggregates from the API database, and keep them."""
        with _connected(self._engines.api()) as connection:
            directory = DirectoryReader(self._local).read(connection, time.time())
        self._aggregates = directory.aggregates
        self._cells = tuple(
            cell for cell in directory.cells if "{" not in cell.connection
        )
        template_cells = [
            cell.name or cell.uuid for cell in directory.cells if "{" in cell.connection
        ]
        if template_cells:
            return CheckResult.failure(
                _API,
                f"The database URLs of the cells {', '.join(template_cells)} are "
                "templates, which [database] connection does not fill: set it as in "
                "nova.conf.",
            )
        if not self._cells:
            return CheckResult.failure(
                _API, "It has no enabled cell except cell0: there are no hosts."
            )
        return CheckResult.success(
            _API,
            f"{len(self._cells)} enabled cells, {len(directory.aggregates)} aggregates",
        )

    def _read_cell(self, cell: CellMappingRow) -> CheckResult:
        """Read one row of each table, with all columns that the source reads."""
        nodes = schema.compute_nodes
        with _connected(self._engines.cell(cell.connection)) as connection:
            for table in schema.CELL.sorted_tables:
                connection.execute(sa.select(table).limit(1)).all()
            n_nodes = connection.execute(
                sa.select(sa.func.count())
                .select_from(nodes)
                .where(nodes.c.deleted == 0)
            ).scalar_one()
            old_computes = read_old_computes(connection)
        if old_computes and not self._is_ffu:
            return CheckResult.failure(
                _name(cell),
                "The scheduler would not start: "
                f"{describe_old_computes(old_computes)}. {ADVICE}.",
            )
        if old_computes:
            return CheckResult.warning(
                _name(cell), f"{describe_old_computes(old_computes)}."
            )
        if not n_nodes:
            return CheckResult.warning(_name(cell), "It has no compute nodes.")
        return CheckResult.success(_name(cell), f"{n_nodes} compute nodes")


def _name(cell: CellMappingRow) -> str:
    return f"Cell {cell.name or cell.uuid}"


@contextlib.contextmanager
def _connected(engine: sa.Engine) -> Iterator[sa.Connection]:
    path = engine.url.database
    if engine.dialect.name == "sqlite" and not Path(path or "").is_file():
        raise FileNotFoundError(f"there is no file {path}")  # SQLite would create it
    with engine.connect() as connection:
        yield connection
