# SPDX-License-Identifier: Apache-2.0
"""[cinder]: Cinder's endpoint and authentication (nova's options, keystoneauth1's)."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from .keystoneauth import load_session

GROUP = "cinder"

OPTS = (
    cfg.StrOpt(
        "catalog_info",
        default="volumev3::publicURL",
        regex=r"^[\w-]+:\w*:.*$",
        help=(
            "Where Cinder is in the service catalog. Possible values: "
            "<service_type>:<service_name>:<endpoint_type>; the name may be empty. "
            "Cinder is used only if auth_type, auth_section or endpoint_template is "
            "set here, to find the places of volumes. Related: endpoint_template."
        ),
    ),
    cfg.StrOpt(
        "endpoint_template",
        help=(
            "The URL of Cinder's API, instead of that in the catalog, for example "
            "http://localhost:8776/v3/%(project_id)s. Possible values: a URL; "
            "%(project_id)s and %(user_id)s are those of the user of this group."
        ),
    ),
    cfg.StrOpt(
        "os_region_name",
        help="The region of Cinder's endpoint in the catalog; unset: any.",
    ),
    cfg.IntOpt(
        "http_retries",
        default=3,
        min=0,
        help=(
            "Maximum number of retries of a request to Cinder after a failed "
            "connection. Related: [locality] lookup_timeout limits the time that a "
            "decision waits in all."
        ),
    ),
    *ks_loading.get_session_conf_options(),
    *ks_loading.get_auth_common_conf_options(),
)


def cinder_adapter(conf: cfg.ConfigOpts, *, timeout_s: float) -> Adapter | None:
    """Return an adapter configured by this group; None if it names no endpoint.

    Sends nothing. Parameters and errors are those of `load_session`.
    """
    options = conf[GROUP]
    if not (options.auth_type or options.auth_section or options.endpoint_template):
        return None
    service_type, service_name, interface = options.catalog_info.split(":", 2)
    return Adapter(
        load_session(conf, GROUP, timeout_s=timeout_s),
        service_type=service_type,
        service_name=service_name or None,
        interface=interface,
        region_name=options.os_region_name,
        # keystoneauth1 fills in the project of the session.
        endpoint_override=options.endpoint_template,
        connect_retries=options.http_retries,
    )
