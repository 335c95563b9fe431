# SPDX-License-Identifier: Apache-2.0
"""[neutron]: Neutron's endpoint and authentication (keystoneauth1's options)."""

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
            "Maximum number of retries of a request to Neutron after a failed "
            "connection. Neutron is used only if auth_type or endpoint_override is set "
            "here: for the segments of routed networks, and for remote-managed ports."
        ),
    ),
    *service_opts("network"),
)
