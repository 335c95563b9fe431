# SPDX-License-Identifier: Apache-2.0
"""An API with some stored decisions, on a real port."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from moorage.scheduler.conf import load
from moorage.scheduler.web import make_web_server

from ....fixtures.explaining_api import (
    ExplainingAPI,
    explaining_api,
    wait_for_slow_stores,
)

__all__ = ["api", "url", "wait_for_slow_stores"]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExplainingAPI]:
    with explaining_api(tmp_path_factory.mktemp("cli")) as made:
        yield made


@pytest.fixture(scope="module")
def url(api: ExplainingAPI) -> Iterator[str]:
    conf = load([], config_files=[])
    conf.set_override("port", 0, group="web")
    with make_web_server(conf, api.app) as server:
        yield f"http://127.0.0.1:{server.port}"
