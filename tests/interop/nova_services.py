# SPDX-License-Identifier: Apache-2.0
"""nova 34's own records of services, and its check for computes that are too old.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours. The
databases are those of `open_databases`.
"""

import contextlib
import types
from unittest import mock

import nova.conf
from nova import context, exception, objects, service, servicegroup, utils
from nova.servicegroup.drivers import db, mc

#: Who made a record, where and when; all else of it is to be nova's.
_OWN = ("id", "uuid", "host", "created_at", "updated_at", "last_seen_up")


def service_record(message):
    """Return what nova has of the nova-scheduler on "host"; None: it has no record.

    Keys: "is_up", "id", "uuid", "is_listed" and, as "rest", all that does not differ
    from host to host.
    """
    ctxt = context.get_admin_context()
    found = _found(ctxt, message)
    if found is None:
        return None
    primitive = found.obj_to_primitive()["nova_object.data"]
    listed = objects.ServiceList.get_by_binary(ctxt, "nova-scheduler")
    return {
        "is_up": servicegroup.API().service_is_up(found),
        "id": found.id,
        "uuid": found.uuid,
        "is_listed": message["host"] in [each.host for each in listed],
        "rest": {key: v for key, v in primitive.items() if key not in _OWN},
    }


def start_service(message):
    """Do what a nova-scheduler on "host" does at its start, and "beats" heartbeats."""
    with _quiet():
        ctxt = context.get_admin_context()
        found = _found(ctxt, message)
        if found is None:
            record = types.SimpleNamespace(
                host=message["host"], binary="nova-scheduler", topic="scheduler"
            )
            found = service._create_service_ref(record, ctxt)
        else:
            service._update_service_ref(found)
        for _ in range(message["beats"]):
            db.DbDriver()._report_state(types.SimpleNamespace(service_ref=found))


def disable_service(message):
    """Disable the nova-scheduler on "host"."""
    with _quiet():
        found = _found(context.get_admin_context(), message)
        found.disabled, found.disabled_reason = True, "tried out"
        found.save()


def delete_service(message):
    """Delete the record of the nova-scheduler on "host", as nova's API does."""
    with _quiet():
        _found(context.get_admin_context(), message).destroy()


def beat_in_memcached(message):
    """Have a service, "topic" and "host", beat once, with the options "cache"."""
    with _memcached(message) as driver:
        driver._report_state(types.SimpleNamespace(service_ref=_reference(message)))


def is_up_in_memcached(message):
    """Return whether a service, "topic" and "host", is up."""
    with _memcached(message) as driver:
        return driver.is_up(_reference(message))


def _reference(message):
    return {"topic": message["topic"], "host": message["host"]}


@contextlib.contextmanager
def _memcached(message):
    """Yield nova's driver "mc", with the options "cache"."""
    options = nova.conf.CONF
    for name, value in message["cache"].items():
        options.set_override(name, value, group="cache")
    try:
        yield mc.MemcachedDriver()
    finally:
        for name in message["cache"]:
            options.clear_override(name, group="cache")


def old_computes(message):
    """Return why a nova service does not start, or None."""
    context.CELLS = []  # nova caches it as long as its process lives
    try:
        utils.raise_if_old_compute()
    except exception.TooOldComputeService as error:
        return error.format_message()
    return None


def _found(ctxt, message):
    return objects.Service.get_by_host_and_binary(
        ctxt, message["host"], "nova-scheduler"
    )


def _quiet():
    """Send no notifications: there is no broker."""
    return mock.patch.object(objects.Service, "_send_notification")
