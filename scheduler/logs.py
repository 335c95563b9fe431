# SPDX-License-Identifier: Apache-2.0
"""The request context in log lines: `%(request_id)s` and similar fields."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from oslo_config import cfg
from oslo_context import context as oslo_context
from oslo_log import log as oslo_logging

from .display import safe
from .errors import ConfigurationError
from .failures import Failure

_REQUEST_ID: Final = "request_id"
#: Parts of a request context that have the same name on the wire.
_SAME: Final = (
    _REQUEST_ID, "global_request_id", "user_id", "project_id", "user_name",
    "project_name", "domain_name", "user_domain_name", "project_domain_name",
    "system_scope", "roles", "is_admin", "is_admin_project", "read_only",
    "show_deleted",
)  # fmt: skip
#: The parts of a request context that are read, by their names on the wire: what log
#: formats can use, and no secrets. Of several names of one part, the last one wins.
_READ: Final = {
    **{name: name for name in _SAME},
    "user": "user_id",
    "domain": "domain_id",
    "user_domain": "user_domain_id",
    "project_domain": "project_domain_id",
}


class LogContext(oslo_context.RequestContext):
    """The part of a request that oslo.log writes, as fields and in nova's formats."""

    #: All instances of the request. `resource_uuid`, which nova's formats write as
    #: ``%(instance)s``, is set only where there is exactly one.
    instance_uuids: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the context as plain data."""
        return {**super().to_dict(), "instance_uuids": list(self.instance_uuids)}


#: Levels of libraries whose messages repeat ours.
_LEVELS: Final = (
    "alembic=WARNING",  # each migration step that was checked
    "amqp=ERROR",  # messages that arrive while a connection is closed, at each stop
    "stevedore=ERROR",  # a missing plugin: its user logs it
    "oslo_db.sqlalchemy.exc_filters=CRITICAL",  # tracebacks of errors that are handled
)


def register_opts(conf: cfg.ConfigOpts) -> None:
    """Register oslo.log's options, with Moorage's defaults."""
    levels = [*oslo_logging.get_default_log_levels(), *_LEVELS]
    oslo_logging.set_defaults(default_log_levels=levels)
    oslo_logging.register_options(conf)


class _Record(logging.LogRecord):
    """A record whose message is one line, whatever names and errors it quotes.

    Other processes choose names of hosts, flavors and projects; a line of a log must
    not look like several, nor control the terminal that shows it.
    """

    def getMessage(self) -> str:
        """Return the message with control characters escaped."""
        message = super().getMessage()
        return safe(message, len(message))


def set_up(conf: cfg.ConfigOpts) -> None:
    """Configure logging according to the options.

    Raises
    ------
    ConfigurationError
        The log cannot be written, or the file of log_config_append cannot be read.
    """
    logging.setLogRecordFactory(_Record)
    try:
        oslo_logging.setup(conf, "moorage")
    except (OSError, oslo_logging.LogConfigError) as e:
        names = ("log_config_append", "log_file", "log_dir")
        name = next((option for option in names if conf[option]), "log_file")
        failure = Failure.of(f"[DEFAULT] {name}", conf[name], e)
        raise ConfigurationError(f"{failure}") from e


@contextlib.contextmanager
def request(context: object, instance_uuids: Sequence[str]) -> Iterator[None]:
    """Add a request context to the lines that this thread logs in the block.

    Parameters
    ----------
    context : mapping or object
        The dict of the wire, or nova's RequestContext. If it has no request id, the
        lines are logged without a context.
    """
    wire_values: Any = context
    if not isinstance(context, Mapping):
        to_dict = getattr(context, "to_dict", None)
        wire_values = to_dict() if callable(to_dict) else None
    if not isinstance(wire_values, Mapping):
        wire_values = {name: getattr(context, name, None) for name in _SAME}
    values = {
        field: wire_values[wire_name]
        for wire_name, field in _READ.items()
        if wire_values.get(wire_name) is not None
    }
    if not values.get(_REQUEST_ID):
        yield
        return
    outer_context = oslo_context.get_current()
    current = LogContext(**values, overwrite=False)
    current.instance_uuids = tuple(instance_uuids)
    if len(instance_uuids) == 1:
        current.resource_uuid = instance_uuids[0]
    current.update_store()
    try:
        yield
    finally:
        if outer_context is not None:
            outer_context.update_store()
        else:
            # oslo.context has no public API for this; its own fixture does the same.
            oslo_context._request_store.__dict__.pop("context", None)  # noqa: SLF001
