# SPDX-License-Identifier: Apache-2.0
"""nova's compute API over HTTP, with its routes, schemas, policies and faults.

Loaded by nova_api.py. Every request is that of an administrator: what is left out of
nova's pipeline is the authentication by Keystone.
"""

import threading
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from nova.api import auth, openstack
from nova.api.openstack import compute, urlmap


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, format, *args):
        pass


def serve(port, context):
    """Serve /v2.1 in a thread until the process ends."""
    routes = auth.InjectContext(context, compute.APIRouterV21())
    application = urlmap.URLMap()
    application["/v2.1"] = openstack.FaultWrapper(routes)
    server = _ThreadingServer(("127.0.0.1", port), _QuietHandler)
    server.set_app(application)
    threading.Thread(target=server.serve_forever, daemon=True).start()
