# SPDX-License-Identifier: Apache-2.0
"""Times of any fraction are read from each database as they were written."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from moorage.scheduler.polling.times import microseconds

from ...fixtures.database_servers import STORE_DATABASES, Database, store_database

_EPOCH = datetime.datetime(1970, 1, 1)
_SECOND = 1_764_187_199_000_000
#: The last two are in the next second if they are rounded to milliseconds.
_TIMES_US = [0, 1, _SECOND, _SECOND + 999_499, _SECOND + 999_500, _SECOND + 999_999]


@pytest.mark.parametrize("kind", STORE_DATABASES)
def test_times_are_exact(tmp_path: Path, kind: Database | str) -> None:
    a_time = sa.DateTime().with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    table = sa.Table("times", sa.MetaData(), sa.Column("at", a_time))
    times = [_EPOCH + datetime.timedelta(microseconds=at_us) for at_us in _TIMES_US]
    with store_database(kind, tmp_path) as url:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            table.create(connection)
            connection.execute(table.insert(), [{"at": at} for at in [*times, None]])
            read = connection.scalars(sa.select(microseconds(table.c.at))).all()
        engine.dispose()
    assert sorted(at_us for at_us in read if at_us is not None) == _TIMES_US
    assert read.count(None) == 1
