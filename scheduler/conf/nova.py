# SPDX-License-Identifier: Apache-2.0
"""[nova]: the compute API's endpoint and authentication (keystoneauth1's options)."""

from __future__ import annotations

from .keystoneauth import service_opts

GROUP = "nova"

OPTS = service_opts("compute")
