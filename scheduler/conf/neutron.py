# SPDX-License-Identifier: Apache-2.0
"""[neutron]: Neutron's endpoint and authentication (keystoneauth1's options)."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from .keystoneauth import has_endpoint, load_session, service_opts

GROUP = "neutron"

OPTS = (
    cfg.IntOpt(
        "http_retries",
        default=3,
        min=0,
        help=(
            "Maximum number of retries of a request to Neutron after a failed "
            "connection. Neutron is used only if auth_type or endpoint_override is set "
            "here: for the segments of routed networks, for remote-managed ports, and "
            "for the places of ports."
        ),
    ),
    *service_opts("network"),
)


def neutron_adapter(conf: cfg.ConfigOpts, *, timeout_s: float) -> Adapter | None:
    """Return an adapter configured by this group; None if it names no endpoint.

    Sends nothing. Parameters and errors are those of `load_session`.
    """
    if not has_endpoint(conf, GROUP):
        return None
    session = load_session(conf, GROUP, timeout_s=timeout_s)
    adapter: Adapter = ks_loading.load_adapter_from_conf_options(
        conf, GROUP, session=session, connect_retries=conf[GROUP].http_retries
    )
    return adapter
