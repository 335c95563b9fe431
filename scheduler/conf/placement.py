# SPDX-License-Identifier: Apache-2.0
"""[placement]: Placement's endpoint and authentication (keystoneauth1's options)."""

from .keystoneauth import service_opts

GROUP = "placement"

OPTS = service_opts("placement")
