# SPDX-License-Identifier: Apache-2.0
"""The endpoints of a scheduler's RPC server: topic "scheduler" 4.5, baseapi 1.1."""

from __future__ import annotations

from collections.abc import Sequence
from types import UnionType
from typing import Any, Final, Protocol

import oslo_messaging

from ...objects import Aggregate, AggregateList, InstanceList, RequestSpec, Selection
from ..errors import InvalidRequest, NoValidHost, as_nova, shortened
from ..hosts import HostAggregate, HostTable, properties_of_instance

TOPIC: Final = "scheduler"

#: Maximum number of instances in one request: far more than any quota allows.
MAX_INSTANCES: Final = 10_000

#: The result of select_destinations: objects, or dicts for an old conductor.
Destinations = list[list[Selection]] | list[dict[str, Any]]


class DestinationSelector(Protocol):
    """The part of the scheduler that the endpoints use."""

    @property
    def table(self) -> HostTable:
        """The host table."""
        ...

    def select_destinations(
        self,
        context: object,
        spec_obj: RequestSpec,
        instance_uuids: Sequence[str] | None = None,
        return_objects: bool = False,
        return_alternates: bool = False,
    ) -> Destinations:
        """Select hosts for instances."""
        ...


class SchedulerEndpoint:
    """Serves the scheduler's methods, in every form since version 4.0.

    The `context` of a method is the request context: the dict that was sent. A method
    for casts returns None, which is sent if a client calls it.
    """

    target = oslo_messaging.Target(version="4.5")

    def __init__(self, scheduler: DestinationSelector) -> None:
        self._scheduler = scheduler

    def select_destinations(
        self,
        context: object,
        request_spec: dict[str, Any] | None = None,
        filter_properties: dict[str, Any] | None = None,
        spec_obj: RequestSpec | None = None,
        instance_uuids: list[str] | None = None,
        return_objects: bool = False,
        return_alternates: bool = False,
    ) -> Destinations:
        """Select hosts; clients of 4.0 to 4.2 send dicts instead of `spec_obj`.

        Raises
        ------
        oslo_messaging.ExpectedException
            It holds NoValidHost: at least one instance fits nowhere.
        NoValidHost
            In the form of nova's class, for nearly all other errors; see `as_nova`.
        AllocationUpdateFailed
            In the form of nova's class: a consumer has other allocations.
        """
        try:
            if spec_obj is None:
                spec_obj = _from_dicts(context, request_spec, filter_properties)
            _check_request(spec_obj, instance_uuids)
            for name, flag in (
                ("return_objects", return_objects),
                ("return_alternates", return_alternates),
            ):
                _check(flag, bool | int | None, f"{name}: a boolean")
            return self._scheduler.select_destinations(
                context, spec_obj, instance_uuids, return_objects, return_alternates
            )
        except NoValidHost:
            # Like oslo_messaging.expected_exceptions, which hides the signature.
            raise oslo_messaging.ExpectedException() from None
        except Exception as e:
            # oslo.messaging's server logs the new error and `e`, with tracebacks.
            raise as_nova(e) from e

    def update_aggregates(
        self, context: object, aggregates: Aggregate | AggregateList | list[Aggregate]
    ) -> None:
        """Store the current state of aggregates."""
        aggregate_list = (
            [aggregates] if isinstance(aggregates, Aggregate) else aggregates
        )
        _check(
            aggregate_list,
            list | tuple | AggregateList,
            "aggregates: a list of Aggregate",
        )
        for aggregate in aggregate_list:
            _check(aggregate, Aggregate, "aggregates: each an Aggregate")
        # All are read first: an aggregate without an id changes nothing.
        for read in [HostAggregate.of(aggregate) for aggregate in aggregate_list]:
            self._scheduler.table.put_aggregate(read)

    def delete_aggregate(self, context: object, aggregate: Aggregate) -> None:
        """Remove an aggregate."""
        _check(aggregate, Aggregate, "aggregate: an Aggregate")
        self._scheduler.table.drop_aggregate(aggregate.id)

    def update_instance_info(
        self, context: object, host_name: str, instance_info: InstanceList
    ) -> None:
        """Add instances to a host."""
        _check(host_name, str, "host_name: a text")
        _check(instance_info, InstanceList, "instance_info: an InstanceList")
        properties_by_uuid = {
            instance.uuid: properties_of_instance(instance)
            for instance in instance_info
        }
        self._scheduler.table.add_instances(
            host_name,
            list(properties_by_uuid),
            {
                uuid: properties
                for uuid, properties in properties_by_uuid.items()
                if properties is not None
            },
        )

    def delete_instance_info(
        self, context: object, host_name: str, instance_uuid: str
    ) -> None:
        """Remove an instance from a host, and release its consumption."""
        _check(host_name, str, "host_name: a text")
        _check(instance_uuid, str, "instance_uuid: a text")
        self._scheduler.table.claims.release(host_name, instance_uuid)

    def sync_instance_info(
        self, context: object, host_name: str, instance_uuids: list[str]
    ) -> None:
        """Replace the instances of a host."""
        _check(host_name, str, "host_name: a text")
        _check(instance_uuids, list | tuple, "instance_uuids: a list of texts")
        for uuid in instance_uuids:
            _check(uuid, str, "instance_uuids: each a text")
        self._scheduler.table.set_instances(host_name, instance_uuids)


def _check(value: object, kind: type | UnionType, wanted: str) -> None:
    """Raise InvalidRequest, which says what is wanted, for a value of another type."""
    if not isinstance(value, kind):
        raise InvalidRequest(f"{wanted} is needed, not {type(value).__name__}")


def _check_request(spec_obj: object, instance_uuids: object) -> None:
    _check(spec_obj, RequestSpec, "spec_obj: a RequestSpec")
    if instance_uuids is None:
        return
    if not isinstance(instance_uuids, list | tuple):
        _check(instance_uuids, list, "instance_uuids: a list of UUIDs, or None,")
    elif len(instance_uuids) > MAX_INSTANCES:
        raise InvalidRequest(
            f"instance_uuids: {len(instance_uuids)} instances; at most {MAX_INSTANCES} "
            "are allowed"
        )


def _from_dicts(
    context: object,
    request_spec: dict[str, Any] | None,
    filter_properties: dict[str, Any] | None,
) -> RequestSpec:
    """Return the request of a client of RPC 4.0 to 4.2."""
    if request_spec is None:
        raise InvalidRequest(
            "select_destinations: neither spec_obj nor request_spec is given"
        )
    properties = {} if filter_properties is None else filter_properties
    _check(request_spec, dict, "request_spec: a dict")
    _check(properties, dict, "filter_properties: a dict")
    try:
        return RequestSpec.from_primitives(context, request_spec, properties)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as e:
        # The dicts are not validated: they may even have invalid JSON in their texts.
        raise InvalidRequest(
            "request_spec and filter_properties cannot be read as those of RPC 4.0: "
            f"{type(e).__name__}: {shortened(str(e))}"
        ) from e


class BaseAPIEndpoint:
    """Serves the namespace that all of nova's services share."""

    target = oslo_messaging.Target(namespace="baseapi", version="1.1")

    def ping(self, context: object, arg: object) -> dict[str, Any]:
        """Answer to show that this service is alive."""
        return {"service": TOPIC, "arg": arg}

    def get_backdoor_port(self, context: object) -> None:
        """Return None: there is no backdoor."""
        return
