# SPDX-License-Identifier: Apache-2.0
"""The API and the page before the first host has reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from werkzeug.test import Client

from ...fixtures.explaining_api import (
    FAILED,
    SELECTED,
    TWO,
    ExplainingAPI,
    explaining_api,
)


@pytest.fixture(scope="module")
def emptied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    """An API with stored requests, none of whose hosts has reported yet."""
    with explaining_api(tmp_path_factory.mktemp("emptied")) as made:
        table = made.scheduler.parts.table
        table.drop_many(table.batch().uuid.tolist())
        yield made


@pytest.mark.parametrize(
    "path",
    [
        "/", "/?by=cell", "/hosts", "/hosts?sort=-ram", "/failures", "/capacity",
        f"/closest?request={FAILED}", f"/decisions/{TWO}", f"/dry-run?request={TWO}",
        f"/search?q={TWO}", "/v1/hosts", "/v1/hosts?instances=true", "/v1/failures",
    ],
)  # fmt: skip
def test_cloud_without_hosts_is_shown(emptied: ExplainingAPI, path: str) -> None:
    answer = Client(emptied.app).get(path, follow_redirects=True)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("capacity", {"from": "decisions", "hosts": 5}),
        ("capacity", {"flavors": [{"vcpus": 1, "memory_mb": 1}], "hosts": 5}),
        ("closest", {"stored": FAILED}),
        ("closest", {"stored": SELECTED, "count": 3}),
        ("dry-run", {"stored": SELECTED}),
    ],
)
def test_questions_about_a_cloud_without_hosts_are_answered(
    emptied: ExplainingAPI, path: str, body: dict[str, Any]
) -> None:
    answer = Client(emptied.app).post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
