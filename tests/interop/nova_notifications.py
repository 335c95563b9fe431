# SPDX-License-Identifier: Apache-2.0
"""The notifications of nova 34's scheduler; runs inside nova's environment."""

import contextlib
import types
from typing import Any
from unittest import mock

import nova.conf
import nova_hosts
import nova_numa
from nova import rpc
from nova.scheduler import host_manager, manager, utils
from nova.scheduler.filters import numa_topology_filter

CONF = nova.conf.CONF


class _Notifier:
    """Stores notifications as they would cross the wire."""

    def __init__(self, published, publisher_id=None):
        self._published = published
        self._publisher_id = publisher_id

    def prepare(self, publisher_id):
        return _Notifier(self._published, publisher_id)

    def is_enabled(self):
        return True

    def info(self, ctxt, event_type, payload):
        payload = rpc.JsonPayloadSerializer().serialize_entity(ctxt, payload)
        self._published.append([self._publisher_id, event_type, payload])


def published(ctxt, spec_obj, message):
    """Return [publisher, event type, payload] of each notification, in their order.

    Keys: "format", "host" (of the scheduler), "instance_uuids" (or None), "chosen" (a
    host for each instance), and where hosts have NUMA cells "hosts" (by name, as in
    nova_hosts.py) and "mappings" (of the candidate that each instance was granted).

    nova forgets what one attempt to fit cells left behind before it makes the next one.
    """
    sent: list[Any] = []
    uuids = message["instance_uuids"]
    states = {
        name: nova_hosts.state(host) for name, host in message.get("hosts", {}).items()
    }

    def schedule(*args):
        # As _schedule and _legacy_find_hosts leave the request once all is claimed.
        instances = uuids or [None] * len(message["chosen"])
        for uuid, host in zip(instances, message["chosen"], strict=True):
            if uuid:
                spec_obj.instance_uuid = uuid
                spec_obj.obj_reset_changes(["instance_uuid"])
            state = states.get(host) or host_manager.HostState(host, host, None)
            if host in states:
                _filter(state, spec_obj, message["mappings"])
            manager.SchedulerManager._consume_selected_host(state, spec_obj, uuid)

    with contextlib.ExitStack() as stack:
        if states:
            stack.enter_context(nova_numa.forgetful())
        for name, group, value in (
            ("notification_format", "notifications", message["format"]),
            ("host", None, message["host"]),
        ):
            CONF.set_override(name, value, group=group)
            stack.callback(CONF.clear_override, name, group=group)
        legacy = _Notifier(sent if message["format"] != "versioned" else [])
        patched = mock.patch.multiple(
            rpc, LEGACY_NOTIFIER=legacy, NOTIFIER=_Notifier(sent)
        )
        stack.enter_context(patched)
        scheduler = types.SimpleNamespace(
            notifier=rpc.get_notifier("scheduler"), _schedule=schedule
        )
        manager.SchedulerManager._select_destinations(
            scheduler, ctxt, spec_obj, uuids, None, None
        )
    return sent


def _filter(state, spec_obj, mappings):
    """Leave in a host's state and in the request what a decision leaves by then."""
    for group in spec_obj.requested_resources or ():
        group.provider_uuids = mappings[group.requester_id]
    if spec_obj.force_hosts or utils.request_is_rebuild(spec_obj):
        return
    state.allocation_candidates = [{"allocations": {}, "mappings": mappings}]
    if not numa_topology_filter.NUMATopologyFilter().host_passes(state, spec_obj):
        raise ValueError("the host does not pass")
