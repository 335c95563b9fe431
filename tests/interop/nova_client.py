# SPDX-License-Identifier: Apache-2.0
"""nova 34's RPC client of a scheduler, over a real broker.

Loaded by nova_side.py in the peer environment; it imports nova and nothing of ours.
"""

import contextlib

import nova.conf
import nova_conductor
import oslo_messaging
from nova import context, exception, rpc
from nova.scheduler import rpcapi

CONF = nova.conf.CONF


class _DamagedObject:
    """An object that nova's serializer sends unchanged."""

    def __init__(self, primitive):
        self._primitive = primitive

    def obj_to_primitive(self):
        return self._primitive


def send_damaged_request(message):
    """Ask for destinations with a request that no scheduler can read.

    Keys: "transport_url", "spec_obj" (primitive), "instance_uuids". The answer has
    "error" (as text), "is_no_valid_host", and "evacuated": the states in which a
    conductor that gets this error leaves an evacuated instance.
    """
    with _broker(message["transport_url"]):
        try:
            rpcapi.SchedulerAPI().select_destinations(
                context.get_admin_context(),
                _DamagedObject(message["spec_obj"]),
                message["instance_uuids"],
                return_objects=True,
                return_alternates=True,
            )
        except Exception as error:
            return {
                "error": str(error),
                "is_no_valid_host": isinstance(error, exception.NoValidHost),
                "evacuated": nova_conductor.states_after(error, "evacuate"),
            }
    raise AssertionError("the request was read")


@contextlib.contextmanager
def _broker(transport_url):
    rpc.set_defaults(control_exchange="nova")
    # This registers transport_url.
    oslo_messaging.TransportURL.parse(CONF, "none:///")
    CONF.set_override("transport_url", transport_url)
    rpc.init(CONF)
    try:
        yield
    finally:
        rpc.cleanup()
        CONF.clear_override("transport_url")
