# SPDX-License-Identifier: Apache-2.0
"""[placement]: where Placement is and how to authenticate (keystoneauth1's options)."""

from .keystoneauth import service_opts

GROUP = "placement"

OPTS = service_opts("placement")
