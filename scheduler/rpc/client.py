# SPDX-License-Identifier: Apache-2.0
"""The RPC client for conductors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import oslo_messaging

from ...objects import Aggregate, InstanceList, RequestSpec, Selection, Serializer
from .. import errors
from .endpoints import TOPIC
from .peers import NAMESPACE, PEERS_TOPIC
from .transport import register_opts


class SchedulerAPI:
    """Calls schedulers over a message bus, as nova's own client does.

    Parameters
    ----------
    transport : oslo_messaging.Transport
    timeout_s : int
        Maximum wait for an answer.
    call_monitor_timeout_s : int
        Maximum wait for a heartbeat while a call is served.
    """

    def __init__(
        self,
        transport: oslo_messaging.Transport,
        *,
        timeout_s: int = 1800,
        call_monitor_timeout_s: int = 60,
    ) -> None:
        # A transport that was not created by `get_transport` may lack some options.
        register_opts(transport.conf)
        target = oslo_messaging.Target(topic=TOPIC, version="4.0")
        self._client = oslo_messaging.get_rpc_client(
            transport, target, serializer=Serializer()
        )
        self._timeout_s = timeout_s
        self._call_monitor_timeout_s = call_monitor_timeout_s

    def select_destinations(
        self,
        context: dict[str, Any],
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str],
        *,
        return_alternates: bool = False,
    ) -> list[list[Selection]]:
        """Return a list for each instance: the chosen host, then alternates.

        Raises
        ------
        NoValidHost
            At least one instance fits nowhere; nothing is claimed.
        SchedulerError
            The scheduler failed; the class is that of its error.
        oslo_messaging.RemoteError
            The scheduler failed with an error that is not a SchedulerError.
        oslo_messaging.MessagingTimeout
            No scheduler answered in time.
        """
        client = self._client.prepare(
            version="4.5",
            timeout=self._timeout_s,
            call_monitor_timeout=self._call_monitor_timeout_s,
        )
        try:
            answer: list[list[Selection]] = client.call(
                context,
                "select_destinations",
                spec_obj=spec_obj,
                instance_uuids=list(instance_uuids),
                return_objects=True,
                return_alternates=return_alternates,
            )
        except oslo_messaging.RemoteError as e:
            _raise_ours(e)
        return answer

    def update_aggregates(
        self, context: dict[str, Any], aggregates: Sequence[Aggregate]
    ) -> None:
        """Send the current state of aggregates to all schedulers."""
        self._cast("4.1", context, "update_aggregates", aggregates=list(aggregates))

    def delete_aggregate(self, context: dict[str, Any], aggregate: Aggregate) -> None:
        """Notify all schedulers of a deleted aggregate."""
        self._cast("4.1", context, "delete_aggregate", aggregate=aggregate)

    def update_instance_info(
        self, context: dict[str, Any], host_name: str, instance_info: InstanceList
    ) -> None:
        """Send instances of a host to all schedulers."""
        self._cast(
            "4.2",
            context,
            "update_instance_info",
            host_name=host_name,
            instance_info=instance_info,
        )

    def delete_instance_info(
        self, context: dict[str, Any], host_name: str, instance_uuid: str
    ) -> None:
        """Notify all schedulers that an instance has left a host."""
        self._cast(
            "4.2",
            context,
            "delete_instance_info",
            host_name=host_name,
            instance_uuid=instance_uuid,
        )

    def sync_instance_info(
        self, context: dict[str, Any], host_name: str, instance_uuids: Sequence[str]
    ) -> None:
        """Send the complete list of a host's instances to all schedulers."""
        self._cast(
            "4.2",
            context,
            "sync_instance_info",
            host_name=host_name,
            instance_uuids=list(instance_uuids),
        )

    def instances_deleted(
        self, context: dict[str, Any], instance_uuids: Sequence[str]
    ) -> None:
        """Notify all schedulers that instances were deleted, or will never be built.

        They are on no host, and no request for them is under way: a scheduler releases
        an allocation that a failed request may have left. Only the sources push and
        kafka need it.
        """
        client = self._client.prepare(
            topic=PEERS_TOPIC, namespace=NAMESPACE, version="1.2", fanout=True
        )
        client.cast(context, "instances_deleted", instance_uuids=list(instance_uuids))

    def _cast(
        self, version: str, context: dict[str, Any], method: str, **arguments: object
    ) -> None:
        client = self._client.prepare(version=version, fanout=True)
        client.cast(context, method, **arguments)


def _raise_ours(error: oslo_messaging.RemoteError) -> NoReturn:
    """Raise the SchedulerError that the reply contains, or the remote error."""
    cls = getattr(errors, str(error.exc_type), None)
    if cls is errors.NoValidHost:
        raise errors.from_nova(str(error.value)) from error
    if isinstance(cls, type) and issubclass(cls, errors.SchedulerError):
        raise cls(error.value) from error
    raise error
