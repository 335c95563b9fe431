# SPDX-License-Identifier: Apache-2.0
"""nova 34's answers, one JSON line for each line that comes in.

Run by tests/interop/peer.py with the Python of the peer environment; it imports nova
and nothing of ours. A line has "op" and what that operation needs; the answer has
"result", or "error" with the exception's name and message.
"""

import contextlib
import functools
import json
import os
import sys
import traceback
from unittest import mock

os.environ.setdefault("OS_NOVA_DISABLE_EVENTLET_PATCHING", "1")

import nova.conf
import nova.notifications.objects.scheduler
import nova_build_requests
import nova_client
import nova_conductor
import nova_host_manager
import nova_hosts
import nova_notifications
import nova_numa
import nova_services
from nova import context, exception, objects, rpc
from nova.objects import base
from nova.scheduler import request_filter, utils
from oslo_messaging._drivers import common as messaging
from oslo_versionedobjects import fixture

CONF = nova.conf.CONF


def query(message):
    """Return the queries of a request, the first and the VCPU fallback (or None).

    Keys: "spec_obj" (primitive), "prefilters" (names, in their order), "aggregates"
    ([uuid, metadata] pairs), "nodes" (UUIDs of the target host's compute nodes),
    "options" (of the group [scheduler]), "neutron" ({"ports": port by UUID, "subnets":
    segment by subnet, "networks": segments by network}), "segments" (aggregates by
    segment), "min_version" (the least of nova-compute).
    """
    spec_obj = base.NovaObject.obj_from_primitive(message["spec_obj"])
    ctxt = context.get_admin_context()
    with _aggregates(message.get("aggregates", ())), _surroundings(message):
        for name in message.get("prefilters", ()):
            getattr(request_filter, name)(ctxt, spec_obj)
    send = functools.partial(
        utils.resources_from_request_spec, ctxt, spec_obj, _Hosts(message["nodes"])
    )
    first = send(enable_pinning_translate=True)
    # Read before the second query: both of them share the request's groups.
    queries = [first.to_querystring(), None]
    if first.cpu_pinning_requested:
        queries[1] = send(enable_pinning_translate=False).to_querystring()
    return queries


class _Hosts:
    """The part of nova's host manager that has the UUIDs of a target host's nodes."""

    def __init__(self, uuids):
        self._uuids = uuids

    def get_compute_nodes_by_host_or_node(self, ctxt, host, node, cell=None):
        return [
            objects.ComputeNode(
                uuid=uuid, host=host or "host", hypervisor_hostname=node or "node"
            )
            for uuid in self._uuids
        ]


@contextlib.contextmanager
def _aggregates(rows):
    """Let nova find aggregates by their metadata without a database."""

    def by_metadata(ctxt, key=None, value=None):
        # As the database answers: only the rows of metadata that match are loaded.
        found = (
            (uuid, {k: v for k, v in metadata.items() if v == value})
            for uuid, metadata in rows
        )
        return [
            objects.Aggregate(uuid=uuid, metadata=metadata)
            for uuid, metadata in found
            if (key in metadata if key else metadata)
        ]

    def non_matching(ctxt, ignored_keys, key_prefix, value):
        return [
            objects.Aggregate(uuid=uuid)
            for uuid, metadata in rows
            if any(
                k.startswith(key_prefix) and k not in ignored_keys and v == value
                for k, v in metadata.items()
            )
        ]

    patched = mock.patch.multiple(
        objects.AggregateList,
        get_by_metadata=by_metadata,
        get_non_matching_by_metadata_keys=non_matching,
    )
    with patched:
        yield


class _Neutron:
    """nova's calls of its network API, answered from the message."""

    def __init__(self, known):
        self._known = known

    def show_port(self, ctxt, port_id):
        return {"port": self._known["ports"][port_id]}

    def is_remote_managed_port(self, ctxt, port_id):
        port = self._known["ports"][port_id]
        return port.get("binding:vnic_type") == "remote-managed"

    def get_segment_ids_for_network(self, ctxt, network_id):
        return self._known["networks"].get(network_id, [])

    def get_segment_id_for_subnet(self, ctxt, subnet_id):
        return self._known["subnets"].get(subnet_id)


class _Segments:
    """nova's queries for the segments of networks."""

    def __init__(self, aggregates):
        self._aggregates = aggregates

    def _get_provider_aggregates(self, ctxt, uuid):
        return mock.Mock(aggregates=set(self._aggregates[uuid]))


@contextlib.contextmanager
def _surroundings(message):
    """Give request filters the options and services that a message contains."""
    options = message.get("options", {})
    network = _Neutron(message.get("neutron"))
    segments = _Segments(message.get("segments"))
    version = message.get("min_version", 0)
    patches = [
        mock.patch.object(request_filter.neutron, "API", return_value=network),
        mock.patch.object(
            request_filter.report, "report_client_singleton", return_value=segments
        ),
        mock.patch.object(
            objects.service, "get_minimum_version_all_cells", return_value=version
        ),
    ]
    with contextlib.ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        for name, value in options.items():
            CONF.set_override(name, value, group="scheduler")
            stack.callback(CONF.clear_override, name, group="scheduler")
        yield


def notifications(message):
    """Return the notifications of a request; see nova_notifications.published.

    Keys: as there, and of `query` "spec_obj", "prefilters", "aggregates", "options",
    and "nodes" where a host is meant.
    """
    spec_obj = base.NovaObject.obj_from_primitive(message["spec_obj"])
    ctxt = context.get_admin_context()
    with _aggregates(message.get("aggregates", ())), _surroundings(message):
        for name in message.get("prefilters", ()):
            getattr(request_filter, name)(ctxt, spec_obj)
    if "nodes" in message:
        utils.resources_from_request_spec(ctxt, spec_obj, _Hosts(message["nodes"]))
    return nova_notifications.published(ctxt, spec_obj, message)


def payload_fingerprint(message):
    """Return the version and fingerprint of a notification's payload, by "name"."""
    name = message["name"]
    classes = base.NovaObjectRegistry.notification_classes
    [found] = [cls for cls in classes if cls.__name__ == name]
    return fixture.ObjectVersionChecker({name: [found]}).get_hashes()[name]


def rebuild_error(message):
    """Return what a conductor's RPC client makes of a failure.

    Key: "data", as oslo.messaging writes it. The answer has "class", "is_nova" (of
    nova.exception), "is_no_valid_host", "message", "kwargs".
    """
    error = messaging.deserialize_remote_exception(
        message["data"], rpc.get_allowed_exmods()
    )
    is_nova = isinstance(error, exception.NovaException)
    return {
        "class": type(error).__name__,
        "is_nova": is_nova,
        "is_no_valid_host": isinstance(error, exception.NoValidHost),
        "message": error.format_message() if is_nova else str(error),
        "kwargs": error.kwargs if is_nova else {},
    }


def stock_failure(message):
    """Return nova's AllocationUpdateFailed as stock nova-scheduler's server writes it.

    Keys: "consumer_uuid", "error".
    """
    error = exception.AllocationUpdateFailed(
        consumer_uuid=message["consumer_uuid"], error=message["error"]
    )
    return json.loads(messaging.serialize_remote_exception((type(error), error, None)))


OPERATIONS = {
    "notifications": notifications,
    "payload_fingerprint": payload_fingerprint,
    "rebuild_error": rebuild_error,
    "stock_failure": stock_failure,
    "fail_operation": nova_conductor.fail_operation,
    "send_damaged_request": nova_client.send_damaged_request,
    "query": query,
    "open_databases": nova_host_manager.open_databases,
    "close_databases": nova_host_manager.close_databases,
    "host_states": nova_host_manager.host_states,
    "service_record": nova_services.service_record,
    "start_service": nova_services.start_service,
    "disable_service": nova_services.disable_service,
    "delete_service": nova_services.delete_service,
    "old_computes": nova_services.old_computes,
    "beat_in_memcached": nova_services.beat_in_memcached,
    "is_up_in_memcached": nova_services.is_up_in_memcached,
    "create_build_request": nova_build_requests.create_build_request,
    "judge": nova_hosts.judge,
    "evaluate_offers": nova_numa.evaluate_offers,
}


def main():
    """Answer until there are no more lines."""
    # nova's own output must not mix with the answers.
    out, sys.stdout = sys.stdout, sys.stderr
    CONF([], project="nova", default_config_files=[], default_config_dirs=[])
    objects.register_all()
    for line in sys.stdin:
        message = json.loads(line)
        try:
            answer = {"result": OPERATIONS[message["op"]](message)}
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=out, flush=True)


if __name__ == "__main__":
    main()
