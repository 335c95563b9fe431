# SPDX-License-Identifier: Apache-2.0
"""keystoneauth1's options for the endpoint and authentication of a service."""

from __future__ import annotations

from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.exceptions import MissingAuthPlugin
from keystoneauth1.plugin import BaseAuthPlugin
from keystoneauth1.session import Session
from oslo_config import cfg

from ..errors import ConfigurationError
from ..failures import Failure


def service_opts(service_type: str) -> tuple[cfg.Opt, ...]:
    """Return the options of session, auth plugin and adapter, with nova's defaults."""
    defaults = {
        "service_type": service_type,
        "valid_interfaces": ["internal", "public"],
    }
    adapter_opts: list[cfg.Opt] = ks_loading.get_adapter_conf_options(
        include_deprecated=False
    )
    for opt in adapter_opts:
        opt.default = defaults.get(opt.dest, opt.default)
    return (
        *ks_loading.get_session_conf_options(),
        *ks_loading.get_auth_common_conf_options(),
        *adapter_opts,
    )


def has_endpoint(conf: cfg.ConfigOpts, group: str) -> bool:
    """Return whether the options of a group lead to an endpoint of its service."""
    options = conf[group]
    return bool(options.auth_type or options.auth_section or options.endpoint_override)


def load_auth(conf: cfg.ConfigOpts, group: str) -> BaseAuthPlugin | None:
    """Return the auth plugin of a group, or of the group of its ``auth_section``.

    Raises
    ------
    keystoneauth1.exceptions.MissingAuthPlugin
        The group of ``auth_section`` does not exist, or has no auth_type.
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


def load_session(conf: cfg.ConfigOpts, group: str, *, timeout_s: float) -> Session:
    """Return a session with the auth plugin of a group; it sends nothing yet.

    Parameters
    ----------
    timeout_s : float
        Used if the group's timeout is not set.

    Raises
    ------
    ConfigurationError
        auth_type or one of its options is invalid.
    """
    try:
        auth = load_auth(conf, group)
    except (ksa_errors.AuthPluginException, ksa_errors.ClientException) as e:
        failure = Failure.of(f"[{group}] auth_type", conf[group].auth_type, e)
        raise ConfigurationError(f"{failure}") from e
    session: Session = ks_loading.load_session_from_conf_options(
        conf, group, auth=auth, timeout=conf[group].timeout or timeout_s
    )
    return session


def auth_opts() -> list[cfg.Opt]:
    """Return the options that ``auth_type = password`` adds, for documentation."""
    opts: list[cfg.Opt] = ks_loading.get_auth_plugin_conf_options("password")
    return opts
