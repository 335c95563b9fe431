# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry spans of a request and its steps.

Spans are recorded only if the process has set up OpenTelemetry's SDK: by `set_up`, by
``opentelemetry-instrument`` or in a test. Only requests are traced: each trace of
background work would have a single span.
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
    # Not opentelemetry.propagate: its import takes longer than that of all of Moorage.
    from opentelemetry import trace
except ImportError:  # the extra "tracing" is not installed
    _HAS_API = False
else:
    _HAS_API = True

if TYPE_CHECKING:
    from opentelemetry.context import Context

LOG = logging.getLogger(__name__)

#: Seconds to wait at shutdown until the last spans are exported.
_SHUTDOWN_TIMEOUT_S: Final = 5.0
#: The service name in traces, unless OTEL_SERVICE_NAME is set.
SERVICE: Final = "moorage-scheduler"

#: The items of a request context that the W3C propagators read.
_PROPAGATED: Final = ("traceparent", "tracestate", "baggage")

#: Values that a span attribute can have.
AttributeValue = str | bool | int | float | Sequence[str]


class _Tracing(enum.Enum):
    """How spans of the request that this thread serves are handled."""

    OFF = enum.auto()
    #: The trace is not sampled: its context is propagated, and nothing is recorded.
    PROPAGATED = enum.auto()
    RECORDED = enum.auto()


#: Shared by all blocks that are not recorded: hardly any request is traced.
_UNRECORDED: Final = contextlib.nullcontext()
_state: ContextVar[_Tracing] = ContextVar("moorage_tracing", default=_Tracing.OFF)


def is_recorded() -> bool:
    """Return whether spans of the current request are recorded."""
    return _state.get() is _Tracing.RECORDED


def span(
    name: str, **attributes: AttributeValue
) -> contextlib.AbstractContextManager[trace.Span | None]:
    """Record a ``with`` block as a span of the current request.

    The block gets the span, or None if the request is not recorded.

    Parameters
    ----------
    **attributes
        Initial attributes of the span, by name without the prefix ``moorage.``.
    """
    if _state.get() is not _Tracing.RECORDED:
        return _UNRECORDED
    return _recorded(name, {f"moorage.{k}": value for k, value in attributes.items()})


def http_call(
    method: str, url: str, headers: MutableMapping[str, str]
) -> contextlib.AbstractContextManager[trace.Span | None]:
    """Record a ``with`` block as the span of an HTTP call to another service.

    The block gets the span, or None if the request is not recorded.

    Parameters
    ----------
    url : str
        A relative URL; the first segment of the path becomes part of the span's name.
    headers : mutable mapping
        The headers of the call; the trace context is added to them.
    """
    tracing = _state.get()
    if tracing is _Tracing.PROPAGATED:
        _inject(headers)
    if tracing is not _Tracing.RECORDED:
        return _UNRECORDED
    path, _, query = url.partition("?")
    attributes = {"http.request.method": method, "url.path": path, "url.query": query}
    name = f"{method} /{path.split('/')[1]}"
    return _recorded(name, attributes, headers)


def _inject(headers: MutableMapping[str, str]) -> None:
    """Add the trace context to the headers of a call."""
    from opentelemetry import propagate

    propagate.inject(headers)


@contextlib.contextmanager
def request(
    name: str, context: object, attributes: Mapping[str, AttributeValue]
) -> Iterator[None]:
    """Trace a ``with`` block as one request.

    The parent of the request's span is the current span, if there is one (started by
    oslo.messaging, for example), otherwise the ``traceparent`` of the request context.

    Parameters
    ----------
    context : mapping or object
        The request context.
    attributes : mapping
        The attributes of the span, by full name.
    """
    if not _HAS_API or isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    ):
        yield
        return
    # Raised again after the span has ended, which would record it as an error: it is a
    # regular answer.
    no_valid_host: NoValidHost | None = None
    with _tracer().start_as_current_span(
        name, context=_parent(context), kind=trace.SpanKind.SERVER
    ) as current:
        is_recorded = current.is_recording()
        if is_recorded:
            current.set_attributes(dict(attributes))
        token = _state.set(_Tracing.RECORDED if is_recorded else _Tracing.PROPAGATED)
        try:
            yield
        except NoValidHost as e:
            current.set_attribute("moorage.outcome", "no valid host")
            no_valid_host = e
        finally:
            _state.reset(token)
    if no_valid_host is not None:
        raise no_valid_host


@contextlib.contextmanager
def _recorded(
    name: str,
    attributes: Mapping[str, AttributeValue],
    headers: MutableMapping[str, str] | None = None,
) -> Iterator[trace.Span]:
    """Record a ``with`` block as a span: with headers, as one of an HTTP call."""
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
    items = {name: get(name, None) for name in _PROPAGATED}
    return propagate.extract({k: v for k, v in items.items() if isinstance(v, str)})


# -- the SDK ---------------------------------------------------------------------------


def check() -> None:
    """Check whether `set_up` will succeed; start no thread, so that forking is safe.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    _import_sdk()


def set_up() -> Callable[[], None]:
    """Export spans over OTLP, configured by OpenTelemetry's environment variables.

    If the process has set up the SDK already, that setup is kept.

    Returns
    -------
    callable
        Exports the remaining spans, and shuts the SDK down.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    start_sdk = _import_sdk()
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return start_sdk()
    return lambda: None


def _import_sdk() -> Callable[[], Callable[[], None]]:
    """Import the SDK, and return a function that starts it.

    That function returns another one, which shuts the SDK down.
    """
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

    def start_sdk() -> Callable[[], None]:
        provider = TracerProvider(
            resource=Resource.create(_service_name()), shutdown_on_exit=False
        )
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(provider)
        return partial(_shut_down, provider.shutdown)

    return start_sdk


def _shut_down(shutdown: Callable[[], None]) -> None:
    """Export the remaining spans, waiting only briefly for the collector."""
    # The SDK's own timeouts are 30 s, within which a stopping service may be killed.
    thread = threading.Thread(target=shutdown, name="tracing-end", daemon=True)
    thread.start()
    thread.join(_SHUTDOWN_TIMEOUT_S)
    if thread.is_alive():
        LOG.warning(
            "Exporting spans timed out after %.0f s; they are lost", _SHUTDOWN_TIMEOUT_S
        )


def _service_name() -> dict[str, AttributeValue]:
    """Return the service name as an attribute, unless the environment sets it."""
    resource = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in resource:
        return {}
    return {"service.name": SERVICE}
