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
from nova import context, objects
from nova.objects import base
from nova.scheduler import request_filter, utils

CONF = nova.conf.CONF


def query(message):
    """Return the queries of a request, the first and the VCPU fallback (or None).

    Keys: "spec_obj" (primitive), "prefilters" (names, in their order), "aggregates"
    ([uuid, metadata] pairs), "nodes" (UUIDs of the target host's compute nodes).
    """
    spec_obj = base.NovaObject.obj_from_primitive(message["spec_obj"])
    ctxt = context.get_admin_context()
    with _aggregates(message.get("aggregates", ())):
        for name in message.get("prefilters", ()):
            getattr(request_filter, name)(ctxt, spec_obj)
    ask = functools.partial(
        utils.resources_from_request_spec, ctxt, spec_obj, _Hosts(message["nodes"])
    )
    first = ask(enable_pinning_translate=True)
    # Read before the second question: both of them share the request's groups.
    queries = [first.to_querystring(), None]
    if first.cpu_pinning_requested:
        queries[1] = ask(enable_pinning_translate=False).to_querystring()
    return queries


class _Hosts:
    """What nova's host manager knows of a target host: the UUIDs of its nodes."""

    def __init__(self, uuids):
        self._uuids = uuids

    def get_compute_nodes_by_host_or_node(self, ctxt, host, node, cell=None):
        return [
            objects.ComputeNode(uuid=uuid, host=host, hypervisor_hostname=node)
            for uuid in self._uuids
        ]


@contextlib.contextmanager
def _aggregates(rows):
    """Let nova find aggregates by their metadata without a database."""

    def by_metadata(ctxt, key=None, value=None):
        return [
            objects.Aggregate(uuid=uuid, metadata=metadata)
            for uuid, metadata in rows
            if value in ([metadata.get(key)] if key else metadata.values())
        ]

    with mock.patch.object(objects.AggregateList, "get_by_metadata", by_metadata):
        yield


OPERATIONS = {"query": query}


def main():
    """Answer until there are no more lines."""
    # Whatever nova prints must not get among the answers.
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
