# SPDX-License-Identifier: Apache-2.0
"""keystoneauth1's options for the endpoint and authentication of a service."""

from __future__ import annotations

from keystoneauth1 import loading as ks_loading
from keystoneauth1.exceptions import MissingAuthPlugin
from keystoneauth1.plugin import BaseAuthPlugin
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


def load_auth(conf: cfg.ConfigOpts, group: str) -> BaseAuthPlugin | None:
    """Return the auth plugin of a group, or of the group of its ``auth_section``.

    Raises
    ------
    keystoneauth1.exceptions.MissingAuthPlugin
        There is no such group, or it has no auth_type.
    keystoneauth1.exceptions.AuthPluginException
        auth_type, or one of its options, is invalid.
    """
    ks_loading.register_auth_conf_options(conf, group)
    section = conf[group].auth_section
    if section and not conf[section].auth_type:
        raise MissingAuthPlugin(
            f"[{group}] auth_section = {section}: there is no auth_type in [{section}]"
        )
    auth: BaseAuthPlugin | None = ks_loading.load_auth_from_conf_options(conf, group)
    return auth


def auth_opts() -> list[cfg.Opt]:
    """Return the options that ``auth_type = password`` adds, for documentation."""
    opts: list[cfg.Opt] = ks_loading.get_auth_plugin_conf_options("password")
    return opts
