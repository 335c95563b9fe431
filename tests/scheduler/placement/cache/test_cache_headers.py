# SPDX-License-Identifier: Apache-2.0
"""What headers say of reusing an answer: Placement's own, and what a proxy adds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest

from moorage.scheduler.placement.client import PlacementClient

from ....fixtures.placement_servers import adapter_to
from ..watched import Cloud, vcpu_query


class _Proxy:
    """Placement behind a proxy, over HTTP, that replaces headers of its answers."""

    def __init__(self, app: Any, headers: dict[str, str]) -> None:
        self.n_seen = 0
        self._app = app
        self._headers = headers

    def __call__(
        self, environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        self.n_seen += 1

        def start_replaced(status: str, given: list[tuple[str, str]]) -> Any:
            lowered = {name.lower() for name in self._headers}
            kept = [(n, v) for n, v in given if n.lower() not in lowered]
            return start(status, [*kept, *self._headers.items()])

        answer: Iterable[bytes] = self._app(environ, start_replaced)
        return answer

    @contextmanager
    def served(self) -> Iterator[PlacementClient]:
        """Yield a client of it."""
        with make_server("127.0.0.1", 0, self, handler_class=_Quiet) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield PlacementClient(adapter_to(f"http://127.0.0.1:{server.server_port}"))
            server.shutdown()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.mark.parametrize(
    ("headers", "n_gets", "n_stored"),
    [
        pytest.param({}, 1, 1, id="Placement's own no-cache"),
        pytest.param({"Cache-Control": "no-cache, no-store"}, 2, 0, id="no-store"),
        pytest.param({"Cache-Control": "private, max-age=0"}, 2, 0, id="age 0"),
        pytest.param({"Cache-Control": "max-age=nonsense"}, 2, 0, id="unreadable age"),
        pytest.param({"Cache-Control": "Max-Age=3"}, 1, 1, id="younger"),
        pytest.param({"Cache-Control": "max-age=1"}, 2, 1, id="older"),
        pytest.param(
            {"Cache-Control": "max-age=9", "Age": "8"}, 2, 1, id="kept before"
        ),
    ],
)
def test_answer_is_reused_as_its_headers_allow(
    cloud: Cloud, headers: dict[str, str], n_gets: int, n_stored: int
) -> None:
    """Two seconds pass between two queries; the cache keeps answers for five."""
    proxy = _Proxy(cloud.placement.wsgi_app, headers)
    with proxy.served() as client:
        cache = cloud.new_cache(client)
        for _ in range(2):
            assert cache.get(vcpu_query()).n_open == 3
            cloud.clock.now += 2.0
        assert proxy.n_seen == n_gets
        assert cache.stats().answers == n_stored


def test_placement_answers_no_conditional_get_with_304(cloud: Cloud) -> None:
    """So an answer cannot be revalidated for less than the first one cost."""
    adapter = cloud.placement.adapter
    version = {"OpenStack-API-Version": "placement 1.36"}
    for path in ("/allocation_candidates?resources=VCPU:1", "/resource_providers"):
        first = adapter.get(path, headers=version)
        assert first.headers["Cache-Control"] == "no-cache"
        assert "ETag" not in first.headers
        since = {"If-Modified-Since": first.headers["Last-Modified"]}
        for condition in (since, {"If-None-Match": "*"}):
            again = adapter.get(path, headers={**version, **condition})
            assert (again.status_code, again.json()) == (200, first.json())
