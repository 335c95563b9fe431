# SPDX-License-Identifier: Apache-2.0
"""How long a store's database may take to answer."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event

from moorage.scheduler.database import StoreDatabase, StoreUnavailable
from moorage.scheduler.decision_store.schema import SCHEMA

from ..fixtures.ports import free_port


@pytest.mark.parametrize(("use", "answer_s"), [("reading", 10), ("writing", 90)])
def test_readers_give_up_before_an_upgrade_does(use: str, answer_s: int) -> None:
    sent: list[dict[str, Any]] = []

    def note(_dialect: object, _record: object, _args: object, sends: Any) -> None:
        sent.append(sends)

    url = f"mysql+pymysql://u:p@127.0.0.1:{free_port()}/d"
    database = StoreDatabase(url, option="[x] y", schema=SCHEMA)
    event.listen(sa.Engine, "do_connect", note)
    try:
        with pytest.raises(StoreUnavailable), getattr(database, use)():
            pass
    finally:
        event.remove(sa.Engine, "do_connect", note)
    assert {each["read_timeout"] for each in sent} == {answer_s}
