# SPDX-License-Identifier: Apache-2.0
"""[neutron]: where Neutron is and how to authenticate (keystoneauth1's options)."""

from __future__ import annotations

from oslo_config import cfg

from .keystoneauth import service_opts

GROUP = "neutron"

OPTS = (
    cfg.IntOpt(
        "http_retries",
        default=3,
        min=0,
        help=(
            "How often a question to Neutron is put again when no connection comes "
            "about. Neutron is asked only where auth_type or endpoint_override is set "
            "here: for the segments of routed networks, and for ports that are managed "
            "remotely."
        ),
    ),
    *service_opts("network"),
)
