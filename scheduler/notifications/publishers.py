# SPDX-License-Identifier: Apache-2.0
"""oslo.messaging's notifiers, one for each format: from options, or passed in."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import oslo_messaging
import oslo_messaging.opts
from oslo_config import cfg

from ...objects import Serializer
from ..errors import ConfigurationError
from ..failures import Failure

_EXCHANGE: Final = "nova"
_OPTION: Final = "[oslo_messaging_notifications] transport_url"
_REMEDY: Final = "It has to be such as rabbit://USER:PASSWORD@HOST:5672/VIRTUAL_HOST"
#: What oslo.messaging raises for an invalid URL: ValueError if a port is no number.
_UNUSABLE: Final = (
    oslo_messaging.DriverLoadFailure,
    oslo_messaging.InvalidTransportURL,
    ValueError,
)
_DISABLED: Final = frozenset({"noop"})


class MessagingNotifier(Protocol):
    """The part of oslo.messaging's Notifier that is used."""

    def prepare(self, *, publisher_id: str) -> MessagingNotifier:
        """Return a notifier with that publisher ID."""
        ...

    def info(self, ctxt: object, event_type: str, payload: dict[str, Any]) -> object:
        """Send an event with the priority INFO."""
        ...


def _do_nothing() -> None:
    """Do nothing: there is no transport to close."""


#: (legacy, versioned)
NotifierPair = tuple[MessagingNotifier | None, MessagingNotifier | None]


@dataclasses.dataclass(frozen=True, slots=True)
class Publishers:
    """A notifier for each format; None: that format is not published.

    Attributes
    ----------
    legacy, versioned : MessagingNotifier or None
        The notifiers, prepared for the publisher IDs ``scheduler.<host>`` and
        ``nova-scheduler:<host>``.
    close : callable
        Closes the transport; does nothing if the notifiers were passed in.
    """

    legacy: MessagingNotifier | None = None
    versioned: MessagingNotifier | None = None
    close: Callable[[], None] = _do_nothing

    def __bool__(self) -> bool:
        return self.legacy is not None or self.versioned is not None


def make_publishers(
    conf: cfg.ConfigOpts,
    notifier: MessagingNotifier | NotifierPair | None = None,
) -> Publishers:
    """Return the publishers for ``[notifications] notification_format``.

    Parameters
    ----------
    notifier : MessagingNotifier or pair of MessagingNotifier, optional
        A notifier for both formats, or a pair (legacy, versioned); by default, the
        notifiers that [oslo_messaging_notifications] configures.

    Raises
    ------
    ConfigurationError
        The transport_url of [oslo_messaging_notifications] cannot be used.
    """
    close: Callable[[], None] = _do_nothing
    if notifier is None:
        legacy, versioned, close = _from_conf(conf)
    elif isinstance(notifier, tuple):
        legacy, versioned = notifier
    else:
        legacy = versioned = notifier
    enabled = conf.notifications.notification_format
    if enabled == "versioned":
        legacy = None
    if enabled == "unversioned":
        versioned = None
    return Publishers(
        legacy and legacy.prepare(publisher_id=f"scheduler.{conf.host}"),
        versioned and versioned.prepare(publisher_id=f"nova-scheduler:{conf.host}"),
        close,
    )


def _from_conf(
    conf: cfg.ConfigOpts,
) -> tuple[MessagingNotifier | None, MessagingNotifier | None, Callable[[], None]]:
    _register(conf)
    if set(conf.oslo_messaging_notifications.driver) <= _DISABLED:
        return None, None, _do_nothing
    # oslo.messaging's own default is "openstack"; an operator's value still wins.
    conf.set_default("control_exchange", _EXCHANGE)
    try:
        transport = oslo_messaging.get_notification_transport(conf)
    except _UNUSABLE as e:
        url = conf.oslo_messaging_notifications.transport_url or conf.transport_url
        raise ConfigurationError(f"{Failure.of(_OPTION, url, e, _REMEDY)}") from e
    topics = conf.notifications.versioned_notifications_topics
    serializer = Serializer()
    return (
        oslo_messaging.Notifier(transport, serializer=serializer),
        oslo_messaging.Notifier(transport, serializer=serializer, topics=topics),
        transport.cleanup,
    )


def _register(conf: cfg.ConfigOpts) -> None:
    for group, opts in oslo_messaging.opts.list_opts():
        for opt in opts:
            # If something else registered the option on `conf`, it stays unchanged.
            with contextlib.suppress(cfg.DuplicateOptError):
                conf.register_opt(opt, group=group)


#: Keys of a request context that are published: the keys that oslo.context's
#: redacted_copy keeps, as nova 34 sends them; no tokens, no service catalog.
_PUBLIC_KEYS: Final = frozenset(
    {
        "domain",
        "domain_id",
        "domain_name",
        "global_request_id",
        "is_admin",
        "project",
        "project_domain",
        "project_domain_id",
        "project_domain_name",
        "project_id",
        "project_name",
        "request_id",
        "roles",
        "system_scope",
        "tenant",
        "user",
        "user_domain",
        "user_domain_id",
        "user_domain_name",
        "user_id",
        "user_identity",
        "user_name",
    }
)


class RedactedContext(dict[str, Any]):
    """A request context without secrets, with the methods that notifiers call.

    oslo.messaging drops plain dicts because they may contain tokens; a RedactedContext
    contains none.
    """

    @classmethod
    def of(cls, context: object) -> RedactedContext:
        """Create it from a request context: a dict, or nova's RequestContext."""
        values = context if isinstance(context, Mapping) else _to_dict(context)
        return cls({key: value for key, value in values.items() if key in _PUBLIC_KEYS})

    def redacted_copy(self) -> RedactedContext:
        """Return a copy."""
        return RedactedContext(self)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self)


def _to_dict(context: object) -> Mapping[str, Any]:
    to_dict = getattr(context, "to_dict", None)
    values = to_dict() if callable(to_dict) else {}
    return values if isinstance(values, Mapping) else {}
