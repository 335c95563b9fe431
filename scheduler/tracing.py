# SPDX-License-Identifier: Apache-2.0
"""Spans of OpenTelemetry: a request, and what is done for it.

There are none unless the process has OpenTelemetry's SDK, set up by `set_up` or by
somebody else (``opentelemetry-instrument``, a test). Nothing is traced but requests:
what runs in the background would be traces of one span each.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, Protocol

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

#: Seconds for which the last spans are sent.
_END_S: Final = 5.0
#: The service's name in traces, unless OTEL_SERVICE_NAME has another.
SERVICE: Final = "moorage-scheduler"

_SCOPE: Final = "moorage"
#: What W3C's propagator reads of a request context.
_CARRIED: Final = ("traceparent", "tracestate", "baggage")

#: What a span can say of itself.
Figure = str | bool | int | float | Sequence[str]


class Span(Protocol):
    """What a block has of its span."""

    def set(self, name: str, figure: Figure) -> None:
        """Say something of what was done; `name` is the attribute's, whole."""


class _Nothing:
    """The span of what is not traced; one for all."""

    __slots__ = ()

    def set(self, name: str, figure: Figure) -> None:
        """Do nothing."""

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *error: object) -> None:
        return


class _Recorded:
    """A span that is exported."""

    __slots__ = ("_span",)

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def set(self, name: str, figure: Figure) -> None:
        """Say something of what was done."""
        self._span.set_attribute(name, figure)


class _State(enum.Enum):
    """What becomes of spans in the request that this thread serves."""

    OFF = enum.auto()
    #: The trace is not sampled: others are told of it, and nothing is recorded.
    CARRIED = enum.auto()
    RECORDED = enum.auto()


_NOTHING: Final = _Nothing()
_state: ContextVar[_State] = ContextVar("moorage_tracing", default=_State.OFF)


def span(name: str, **figures: Figure) -> contextlib.AbstractContextManager[Span]:
    """Return a block's span within the span of the request, if that is recorded.

    Parameters
    ----------
    **figures
        What is known before; each is the attribute ``moorage.<name>``.
    """
    if _state.get() is not _State.RECORDED:
        return _NOTHING
    return _recorded(name, {f"moorage.{k}": figure for k, figure in figures.items()})


def call(method: str, url: str) -> contextlib.AbstractContextManager[Span]:
    """Return the span of an HTTP call of another service, as `span` does.

    Parameters
    ----------
    url : str
        Relative; of its path, the first part is in the span's name.
    """
    if _state.get() is not _State.RECORDED:
        return _NOTHING
    path, _, query = url.partition("?")
    figures = {"http.request.method": method, "url.path": path, "url.query": query}
    name = f"{method} /{path.split('/')[1]}"
    return _recorded(name, figures, is_call=True)


def carry(headers: MutableMapping[str, str]) -> None:
    """Write into the headers of a call which trace it belongs to."""
    if _state.get() is not _State.OFF:
        from opentelemetry import propagate

        propagate.inject(headers)


@contextlib.contextmanager
def request(
    name: str, context: object, figures: Callable[[], Mapping[str, Figure]]
) -> Iterator[Span]:
    """Trace a request.

    Its parent is the span that is current (oslo.messaging's own, if that traces), else
    what the request context has as ``traceparent``.

    Parameters
    ----------
    context : mapping or object
        The request context.
    figures : callable
        Returns the span's attributes, by their whole names; only called where it is
        recorded.
    """
    if not _is_set_up():
        yield _NOTHING
        return
    tracer = trace.get_tracer(_SCOPE, __version__)
    # An answer is no error, although it is an exception here.
    answer: NoValidHost | None = None
    with tracer.start_as_current_span(
        name, context=_parent(context), kind=trace.SpanKind.SERVER
    ) as current:
        is_recorded = current.is_recording()
        if is_recorded:
            current.set_attributes(dict(figures()))
        token = _state.set(_State.RECORDED if is_recorded else _State.CARRIED)
        try:
            yield _Recorded(current) if is_recorded else _NOTHING
        except NoValidHost as e:
            current.set_attribute("moorage.outcome", "no valid host")
            answer = e
        finally:
            _state.reset(token)
    if answer is not None:
        raise answer


@contextlib.contextmanager
def _recorded(
    name: str, figures: Mapping[str, Figure], *, is_call: bool = False
) -> Iterator[Span]:
    kind = trace.SpanKind.CLIENT if is_call else trace.SpanKind.INTERNAL
    tracer = trace.get_tracer(_SCOPE, __version__)
    with tracer.start_as_current_span(
        name, attributes=dict(figures), kind=kind
    ) as current:
        yield _Recorded(current)


def _is_set_up() -> bool:
    return _HAS_API and not isinstance(
        trace.get_tracer_provider(), trace.ProxyTracerProvider
    )


def _parent(context: object) -> Context | None:
    """Return what a request's span belongs to; None: the span that is current."""
    if trace.get_current_span().get_span_context().is_valid:
        return None
    from opentelemetry import propagate

    carried = {name: _value(context, name) for name in _CARRIED}
    return propagate.extract({k: v for k, v in carried.items() if isinstance(v, str)})


def _value(context: object, name: str) -> object:
    if isinstance(context, Mapping):
        return context.get(name)
    return getattr(context, name, None)


# -- the SDK ---------------------------------------------------------------------------


def check() -> None:
    """See whether `set_up` can do its part; it starts nothing, and may be forked.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    _sdk()


def set_up() -> Callable[[], None]:
    """Export spans over OTLP, as the environment variables of OpenTelemetry say.

    Where the process traces already, that is left as it is.

    Returns
    -------
    callable
        Sends what is not sent yet, and ends.

    Raises
    ------
    ConfigurationError
        The SDK or the exporter is not installed.
    """
    sdk = _sdk()
    if _is_set_up():
        return _leave_alone
    return sdk()


def _leave_alone() -> None:
    """Do nothing: whoever set tracing up ends it."""


def _sdk() -> Callable[[], Callable[[], None]]:
    """Return what sets the SDK up, and returns what ends it."""
    try:
        # Slow to import, and needed by those only who trace.
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
        return functools.partial(_end, provider.shutdown)

    return start


def _end(shutdown: Callable[[], None]) -> None:
    """Send what is not sent yet; a collector that is away is not waited for long."""
    # The SDK's own bounds are 30 s, in which a service that stops may be killed.
    ending = threading.Thread(target=shutdown, name="tracing-end", daemon=True)
    ending.start()
    ending.join(_END_S)
    if ending.is_alive():
        LOG.warning("Spans that are not sent within %.0f s are lost", _END_S)


def _service() -> dict[str, Figure]:
    """Return the service's name, unless the environment has one."""
    told = os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in told:
        return {}
    return {"service.name": SERVICE}
