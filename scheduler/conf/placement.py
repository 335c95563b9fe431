# SPDX-License-Identifier: Apache-2.0
"""[placement]: where Placement is and how to authenticate (keystoneauth1's options)."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from oslo_config import cfg

GROUP = "placement"

_DEFAULTS = {"service_type": "placement", "valid_interfaces": ["internal", "public"]}


def _with_defaults(opts: list[cfg.Opt]) -> list[cfg.Opt]:
    for opt in opts:
        if opt.dest in _DEFAULTS:
            opt.default = _DEFAULTS[opt.dest]
    return opts


def auth_opts() -> list[cfg.Opt]:
    """Return the options that ``auth_type = password`` adds, for documentation."""
    opts: list[cfg.Opt] = ks_loading.get_auth_plugin_conf_options("password")
    return opts


OPTS = tuple(
    ks_loading.get_session_conf_options()
    + ks_loading.get_auth_common_conf_options()
    + _with_defaults(ks_loading.get_adapter_conf_options(include_deprecated=False))
)
