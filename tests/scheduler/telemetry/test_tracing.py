# SPDX-License-Identifier: Apache-2.0
"""A request is one trace: what was done for it, in its order, and for whom."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from moorage.scheduler import tracing
from moorage.scheduler.errors import InvalidRequest, NoValidHost
from moorage.scheduler.placement.client import PlacementClient
from moorage.scheduler.service import Scheduler
from moorage.testing import PlacementFixture

from ...fixtures.clouds import CONTEXT, new_uuids, request
from .conftest import NAMES, Select

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture(scope="module")
def exporter() -> Iterator[InMemorySpanExporter]:
    """Keep the spans of this process, which can set up the SDK once."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    assert trace.get_tracer_provider() is provider
    yield kept
    kept.shutdown()


class Spans:
    """The spans that have ended."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> Any:
        """Return the one span of a name; to its types, most of it may be None."""
        [found] = [span for span in self.all if span.name == name]
        return found

    def of(self, kind: str) -> list[Any]:
        """Return those of a kind of ours, in the order of their ends."""
        return [s for s in self.all if (s.attributes or {}).get("moorage.kind") == kind]


@pytest.fixture
def spans(
    exporter: InMemorySpanExporter,
    scheduler: Scheduler,  # noqa: ARG001 - its start is over
) -> Spans:
    """Spans from now on."""
    exporter.clear()
    return Spans(exporter)


def test_request_is_a_span_with_all_steps_below_it(
    spans: Spans, select: Select
) -> None:
    uuids = new_uuids()
    select(uuids)
    root = spans.named("select_destinations")
    assert root.parent is None
    assert root.attributes["openstack.request_id"] == CONTEXT["request_id"]
    assert root.attributes["openstack.project_id"] == CONTEXT["project_id"]
    assert root.attributes["moorage.instances"] == tuple(uuids)
    assert {s.context.trace_id for s in spans.all} == {root.context.trace_id}
    queries = spans.named("GET /allocation_candidates")
    assert queries.parent.span_id == root.context.span_id
    assert queries.kind is trace.SpanKind.CLIENT
    assert queries.attributes["http.response.status_code"] == 200
    assert "resources=" in queries.attributes["url.query"]


def test_each_filter_and_weigher_has_its_span(spans: Spans, select: Select) -> None:
    select()
    filters = spans.of("filter")
    assert [s.name for s in filters][:2] == [
        "ComputeFilter",
        "ComputeCapabilitiesFilter",
    ]
    assert filters[0].attributes["moorage.hosts_in"] == len(NAMES)
    assert filters[0].attributes["moorage.hosts_out"] == len(NAMES)
    assert {"RAMWeigher", "CPUWeigher"} <= {s.name for s in spans.of("weigher")}


def test_claim_has_a_span_and_its_writes_are_below_it(
    spans: Spans, select: Select
) -> None:
    uuids = new_uuids()
    [[chosen, *_]] = select(uuids)
    claim = spans.named("claim")
    assert claim.attributes["moorage.answer"] == "claimed"
    assert claim.attributes["moorage.hosts"] == (chosen.service_host,)
    assert claim.attributes["moorage.instances"] == tuple(uuids)
    written = spans.named("PUT /allocations")
    assert written.parent.span_id == claim.context.span_id


def test_parent_is_that_of_the_request_context(spans: Spans, select: Select) -> None:
    select(context={**CONTEXT, "traceparent": f"00-{TRACE}-{PARENT}-01"})
    root = spans.named("select_destinations")
    assert f"{root.context.trace_id:032x}" == TRACE
    assert f"{root.parent.span_id:016x}" == PARENT


def test_span_that_is_current_is_the_parent_all_the_same(
    spans: Spans, select: Select
) -> None:
    with trace.get_tracer("bus").start_as_current_span("receive") as outer:
        select(context={**CONTEXT, "traceparent": f"00-{TRACE}-{PARENT}-01"})
    root = spans.named("select_destinations")
    assert root.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("traceparent", ["", "nonsense", 7], ids=repr)
def test_a_parent_that_cannot_be_read_is_none(
    spans: Spans, select: Select, traceparent: Any
) -> None:
    select(context={**CONTEXT, "traceparent": traceparent})
    assert spans.named("select_destinations").parent is None


class RecordedHeaders:
    """An adapter to a real Placement, and the headers of what goes through it."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter
        self.headers: list[dict[str, str]] = []

    def __getattr__(self, verb: str) -> Any:
        def send(url: str, **given: Any) -> Any:
            self.headers.append(given["headers"])
            return getattr(self._adapter, verb)(url, **given)

        return send


@pytest.mark.parametrize("flag", ["00", "01"], ids=["not sampled", "sampled"])
def test_placement_gets_the_trace(exporter: InMemorySpanExporter, flag: str) -> None:
    exporter.clear()
    context = {"traceparent": f"00-{TRACE}-{PARENT}-{flag}"}
    with PlacementFixture() as placement:
        overheard = RecordedHeaders(placement.embedded.adapter)
        with tracing.request("request", context, {}):
            PlacementClient(overheard).probe()
    [headers] = overheard.headers
    version, trace_id, span_id, sampled = headers["traceparent"].split("-")
    assert (version, trace_id, sampled) == ("00", TRACE, flag)
    recorded = {f"{s.context.span_id:016x}": s.name for s in Spans(exporter).all}
    assert recorded.get(span_id) == ("GET /allocations" if flag == "01" else None)
    assert len(recorded) == (2 if flag == "01" else 0)


def test_placement_gets_no_trace_outside_of_a_request() -> None:
    headers: dict[str, str] = {}
    with tracing.http_call("GET", "/allocations", headers) as span:
        assert span is None
    assert headers == {}


def test_no_valid_host_is_an_answer_and_no_error(spans: Spans, select: Select) -> None:
    with pytest.raises(NoValidHost):
        select(vcpus=1000)
    root = spans.named("select_destinations")
    assert root.status.status_code is trace.StatusCode.UNSET
    assert root.attributes["moorage.outcome"] == "no valid host"


def test_a_part_that_fails_is_an_error(spans: Spans, scheduler: Scheduler) -> None:
    context = {"request_id": "req-nobody"}  # an allocation must have an owner
    with pytest.raises(InvalidRequest, match="project_id"):
        scheduler.select_destinations(
            context, request(project_id=None), new_uuids(), return_objects=True
        )
    root = spans.named("select_destinations")
    assert root.status.status_code is trace.StatusCode.ERROR


def test_background_work_is_not_traced(spans: Spans, scheduler: Scheduler) -> None:
    client: PlacementClient = scheduler.placement
    client.probe()
    with tracing.span("alone") as span:
        assert span is None
    assert spans.all == ()


_AWAY = """
import os
import socket
from moorage.scheduler import tracing
silent = socket.create_server(("127.0.0.1", 0))
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:%d" % (
    silent.getsockname()[1]
)
end = tracing.set_up()
assert tracing.set_up() is not end  # the second one leaves the first alone
with tracing.request("request", {}, {}):
    pass
end()
"""


def test_a_collector_that_is_away_does_not_hold_up_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _AWAY],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "timed out after 5 s" in done.stderr, "the SDK alone would wait 30 s"


_WITHOUT = """
import sys
sys.modules["opentelemetry"] = None
from moorage.scheduler.errors import ConfigurationError
from moorage.scheduler import tracing
from moorage.testing import PlacementFixture
headers = {{}}
with (
    tracing.request("request", {{}}, {{}}),
    tracing.span("step") as step,
    tracing.http_call("GET", "/", headers) as call,
):
    assert step is call is None
    assert headers == {{}}
try:
    tracing.{call}()
except ConfigurationError as e:
    print(e)
"""


@pytest.mark.deep
@pytest.mark.parametrize("call", ["check", "set_up"])
def test_without_opentelemetry_nothing_is_traced_and_the_extra_is_named(
    call: str,
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(call=call)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "extra tracing" in done.stdout
