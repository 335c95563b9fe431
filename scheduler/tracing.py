# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of a request and its steps.

None are recorded unless the process has set up OpenTelemetry's SDK, by `set_up` or
otherwise (``opentelemetry-instrument``, a test). Only requests are traced: background
work would give traces of one span each.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Final

from .. import __version__
from .errors import ConfigurationError, NoValidHost

try:
    # Not opentelemetry.propagate: it takes longer to import than all of ours.
    from opentelemetry import trace
except ImportError:  # the extra "tracing" is not installed
    _HAS_API = False
else:
    _HAS_API = True

if TYPE_CHECKING:
    from opentelemetry.context import Context

LOG = logging.getLogger(__name__)

#: Seconds to export the last spans at the end.
_END_S: Final = 5.0
#: The service name in traces, unless OTEL_SERVICE_NAME is set.
SERVICE: Final = "moorage-scheduler"

#: The parts of a request context that the W3C propagators read.
_CARRIED: Final = ("traceparent", "tracestate", "baggage")

#: Values that a span attribute can have.
AttributeValue = str | bool | int | float | Sequence[str]


class _Tracing(enum.Enum):
    """How spans of the request that this thread serves are handled."""

    OFF = enum.auto()
    #: The trace is not sampled: its context is propagated, and nothing is recorded.
    CARRIED = enum.auto()
    RECORDED = enum.auto()


#: One for all blocks: hardly any request is traced.
_UNRECORDED: Final = contextlib.nullcontext()
_state: ContextVar[_Tracing] = ContextVar("moorage_tracing", default=_Tracing.OFF)


def span(
    name: str, **attributes: AttributeValue
) -> contextlib.AbstractContextManager[trace.Span | None]:
    """Return a span for a block, within the request's span; None: it is not recorded.

    Parameters
    ----------
    **attributes
        Initial attributes; each is named ``moorage.<name>``.
    """
    if _state.get() is not _Tracing.RECORDED:
        return _UNRECORDED
    return _recorded(name, {f"moorage.{k}": value for k, value in attributes.items()})


def http_call(
    method: str, url: str, headers: MutableMapping[str, str]
) -> contextlib.AbstractContextManager[trace.Span | None]:
    """Return a span for an HTTP call to another service, as `span` does.

    Parameters
    ----------
    url : str
        Relative; the first part of its path goes into the span's name.
    headers : mutable mapping
        The call's, into which the trace context is written.
    """
    tracing = _state.get()
    if tracing is _Tracing.CARRIED:
        _inject(headers)
    if tracing is not _Tracing.RECORDED:
        return _UNRECORDED
    path, _, query = url.partition("?")
    attributes = {"http.request.method": method, "url.path": path, "url.query": query}
    name = f"{method} /{path.split('/')[1]}"
    return _recorded(name, attributes, headers)


def _inject(headers: MutableMapping[str, str]) -> None:
    from opentelemetry import propagate

    propagate.inject(headers)


@contextlib.contextmanager
def request(
    name: str, context: object, attributes: Mapping[str, AttributeValue]
) -> Iterator[None]:
    """Trace a request.

    The parent is the current span (oslo.messaging's own, if that traces), otherwise the
    ``traceparent`` of the request context.

    Parameters
    ----------
    context : mapping or object
        The request context.
    attributes : mapping
        The span's, by their full names.
    """
    if not _HAS_API or isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    ):
        yield
        return
    # NoValidHost is an answer, not an error, although it is an exception here.
    answer: NoValidHost | None = None
    with _tracer().start_as_current_span(
        name, context=_parent(context), kind=trace.SpanKind.SERVER
    ) as current:
        is_recorded = current.is_recording()
        if is_recorded:
            current.set_attributes(dict(attributes))
        token = _state.set(_Tracing.RECORDED if is_recorded else _Tracing.CARRIED)
        try:
            yield
        except NoValidHost as e:
            current.set_attribute("moorage.outcome", "no valid host")
            answer = e
        finally:
            _state.reset(token)
    if answer is not None:
        raise answer


@contextlib.contextmanager
def _recorded(
    name: str,
    attributes: Mapping[str, AttributeValue],
    headers: MutableMapping[str, str] | None = None,
) -> Iterator[trace.Span]:
    """Record a span of a block; of a call if it is given the call's headers."""
    kind = trace.SpanKind.INTERNAL if headers is None else trace.SpanKind.CLIENT
    with _tracer().start_as_current_span(
        name, attributes=dict(attributes), kind=kind
    ) as current:
        if headers is not None:
            _inject(headers)
        yield current


def _tracer() -> trace.Tracer:
    return trace.get_tracer("moorage", __version__)


def _parent(context: object) -> Context | None:
    """Return the parent context of a request's span; None: the current span."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    from opentelemetry import propagate

    get = context.get if isinstance(context, Mapping) else partial(getattr, context)
    carried = {name: get(name, None) for name in _CARRIED}
    return propagate.extract({k: v for k, v in carried.items() if isinstance(v, str)})


# -- the SDK ---------------------------------------------------------------------------


def check() -> None:
    """Check whether `set_up` will succeed; starts nothing, so forking stays possible.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    _sdk()


def set_up() -> Callable[[], None]:
    """Export spans over OTLP, configured by OpenTelemetry's environment variables.

    A process that traces already keeps its setup.

    Returns
    -------
    callable
        Exports the remaining spans, and shuts down.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    start = _sdk()
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return start()
    return lambda: None


def _sdk() -> Callable[[], Callable[[], None]]:
    """Return a function that sets the SDK up and returns the one that shuts it down."""
    try:
        # Slow to import, and needed only where tracing is enabled.
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as e:
        raise ConfigurationError(
            f"[telemetry] tracing: {e}. Install moorage with its extra tracing"
        ) from e

    def start() -> Callable[[], None]:
        provider = TracerProvider(
            resource=Resource.create(_service()), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
        return partial(_end, provider.shutdown)

    return start


def _end(shutdown: Callable[[], None]) -> None:
    """Export the remaining spans, waiting only briefly for the collector."""
    # The SDK's own timeouts are 30 s, within which a stopping service may be killed.
    ending = threading.Thread(target=shutdown, name="tracing-end", daemon=True)
    ending.start()
    ending.join(_END_S)
    if ending.is_alive():
        LOG.warning("Exporting spans timed out after %.0f s; they are lost", _END_S)


def _service() -> dict[str, AttributeValue]:
    """Return the service name as an attribute, unless the environment sets it."""
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in resource:
        return {}
    return {"service.name": SERVICE}
