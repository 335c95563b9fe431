# SPDX-License-Identifier: Apache-2.0
"""How a service is found and authenticated to: keystoneauth1's options, for a group."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg


def service_opts(service_type: str) -> tuple[cfg.Opt, ...]:
    """Return the options of session, auth plugin and adapter, with nova's defaults."""
    defaults = {
        "service_type": service_type,
        "valid_interfaces": ["internal", "public"],
    }
    adapter: list[cfg.Opt] = ks_loading.get_adapter_conf_options(
        include_deprecated=False
    )
    for opt in adapter:
        opt.default = defaults.get(opt.dest, opt.default)
    return (
        *ks_loading.get_session_conf_options(),
        *ks_loading.get_auth_common_conf_options(),
        *adapter,
    )


def auth_opts() -> list[cfg.Opt]:
    """Return the options that ``auth_type = password`` adds, for documentation."""
    opts: list[cfg.Opt] = ks_loading.get_auth_plugin_conf_options("password")
    return opts
