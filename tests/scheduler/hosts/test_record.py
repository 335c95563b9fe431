# SPDX-License-Identifier: Apache-2.0
"""A column is declared once, as a field of HostRecord; everything else derives."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np
import pytest

from moorage.agent import Reporter
from moorage.objects import report_data
from moorage.scheduler.hosts import COLUMNS, HostRecord
from moorage.scheduler.sources.inventory_schema import inventory_schema

from ...conftest import batch, host

TYPES = typing.get_type_hints(HostRecord)
DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}


def test_every_field_but_extra_declares_a_column() -> None:
    names = [field.name for field in dataclasses.fields(HostRecord)]
    assert names == [*COLUMNS, "extra"]


@pytest.mark.parametrize("name", COLUMNS)
def test_column_has_the_type_of_its_field(name: str) -> None:
    array = getattr(batch(host()), name)
    assert array.dtype == DTYPES.get(TYPES[name], np.dtype(object))


@pytest.mark.parametrize("name", COLUMNS)
def test_column_is_described(name: str) -> None:
    assert COLUMNS[name].description
    assert name in host().__annotations__


def test_report_has_the_columns_that_the_scheduler_does_not_measure() -> None:
    sent: list[dict[str, typing.Any]] = []
    Reporter(sent.extend).report(host())
    _, data = report_data(sent[0])
    envelope = {"incarnation", "revision", "instances"}
    assert data.keys() - envelope == COLUMNS.keys() - {"last_seen_up"}


def test_file_has_the_columns_that_it_does_not_derive() -> None:
    hosts = inventory_schema(COLUMNS)["properties"]["hosts"]["items"]["properties"]
    derived = {name for name, column in COLUMNS.items() if not column.has_default}
    beyond = {"hypervisor_hostname", "last_seen_up", "service_version"}
    assert COLUMNS.keys() - derived - beyond <= hosts.keys()
    assert not beyond & hosts.keys()
