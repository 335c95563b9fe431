# SPDX-License-Identifier: Apache-2.0
"""Who is told: oslo.messaging's notifiers, made of options or handed in."""

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
#: What oslo.messaging raises of a URL; ValueError of a port that is no number.
_UNUSABLE: Final = (
    oslo_messaging.DriverLoadFailure,
    oslo_messaging.InvalidTransportURL,
    ValueError,
)
_NOBODY: Final = frozenset({"noop"})


class Notifier(Protocol):
    """The part of oslo.messaging's Notifier that is used."""

    def prepare(self, *, publisher_id: str) -> Notifier:
        """Return the same for a publisher."""
        ...

    def info(self, ctxt: object, event_type: str, payload: dict[str, Any]) -> object:
        """Tell an event at the level INFO."""
        ...


def _nothing() -> None:
    """Stand in where there is no bus to let go of."""


@dataclasses.dataclass(frozen=True, slots=True)
class Notifiers:
    """Who is told in which form; None: nobody is.

    Attributes
    ----------
    legacy, versioned : Notifier or None
        Prepared for their publishers, ``scheduler.<host>`` and
        ``nova-scheduler:<host>``.
    close : callable
        Lets go of the bus; it does nothing for notifiers that were handed in.
    """

    legacy: Notifier | None = None
    versioned: Notifier | None = None
    close: Callable[[], None] = _nothing

    def __bool__(self) -> bool:
        return self.legacy is not None or self.versioned is not None


def make_notifiers(
    conf: cfg.ConfigOpts,
    notifier: Notifier | tuple[Notifier | None, Notifier | None] | None = None,
) -> Notifiers:
    """Return who is told, in the formats of ``[notifications] notification_format``.

    Parameters
    ----------
    notifier : Notifier or pair of Notifier, optional
        For both formats, or (legacy, versioned); by default those that
        [oslo_messaging_notifications] asks for.

    Raises
    ------
    ConfigurationError
        Its transport_url cannot be used.
    """
    close: Callable[[], None] = _nothing
    if notifier is None:
        legacy, versioned, close = _of_conf(conf)
    elif isinstance(notifier, tuple):
        legacy, versioned = notifier
    else:
        legacy = versioned = notifier
    wanted = conf.notifications.notification_format
    if wanted == "versioned":
        legacy = None
    if wanted == "unversioned":
        versioned = None
    return Notifiers(
        legacy and legacy.prepare(publisher_id=f"scheduler.{conf.host}"),
        versioned and versioned.prepare(publisher_id=f"nova-scheduler:{conf.host}"),
        close,
    )


def _of_conf(
    conf: cfg.ConfigOpts,
) -> tuple[Notifier | None, Notifier | None, Callable[[], None]]:
    _register(conf)
    if set(conf.oslo_messaging_notifications.driver) <= _NOBODY:
        return None, None, _nothing
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
            # What another owner of this conf registered is his.
            with contextlib.suppress(cfg.DuplicateOptError):
                conf.register_opt(opt, group=group)


#: Keys of a request context that are told: those that oslo.context's redacted_copy
#: leaves of it, which is what nova 34 sends. Tokens and catalogs are none of them.
_TOLD: Final = frozenset(
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


class Told(dict[str, Any]):
    """A request context as it is told: a dict, and what notifiers expect of an object.

    oslo.messaging drops plain dicts, for they may hold tokens; this one holds none.
    """

    @classmethod
    def of(cls, context: object) -> Told:
        """Take the dict of the wire, or nova's RequestContext."""
        whole = context if isinstance(context, Mapping) else _to_dict(context)
        return cls({k: v for k, v in whole.items() if k in _TOLD})

    def redacted_copy(self) -> Told:
        """Return a copy without secrets."""
        return Told(self)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict."""
        return dict(self)


def _to_dict(context: object) -> Mapping[str, Any]:
    to_dict = getattr(context, "to_dict", None)
    whole = to_dict() if callable(to_dict) else {}
    return whole if isinstance(whole, Mapping) else {}
