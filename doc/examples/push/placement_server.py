# SPDX-License-Identifier: Apache-2.0
"""Serve a Placement for trials on port 8778, with placement.conf of this folder."""

from wsgiref.simple_server import make_server

from placement.wsgi.api import application

make_server("127.0.0.1", 8778, application).serve_forever()
