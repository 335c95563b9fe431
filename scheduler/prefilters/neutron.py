# SPDX-License-Identifier: Apache-2.0
"""A thin client of Neutron: three GETs, one typed error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1 import loading as ks_loading
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from ..conf.keystoneauth import load_auth
from ..errors import ConfigurationError, NetworkError
from ..failures import Failure

_GROUP = "neutron"
_TIMEOUT_S = (
    30.0  # if [neutron] timeout is not set: a hung Neutron must not block requests
)


def make_network_client(conf: cfg.ConfigOpts) -> NeutronClient | None:
    """Return a client configured by ``[neutron]``; None if that has no endpoint.

    Sends nothing.

    Raises
    ------
    ConfigurationError
        auth_type or one of its options is invalid.
    """
    options = conf.neutron
    if not (options.auth_type or options.auth_section or options.endpoint_override):
        return None
    try:
        auth = load_auth(conf, _GROUP)
    except (ksa_errors.AuthPluginException, ksa_errors.ClientException) as e:
        failure = Failure.of("[neutron] auth_type", options.auth_type, e)
        raise ConfigurationError(f"{failure}") from e
    session = ks_loading.load_session_from_conf_options(
        conf, _GROUP, auth=auth, timeout=options.timeout or _TIMEOUT_S
    )
    adapter = ks_loading.load_adapter_from_conf_options(
        conf,
        _GROUP,
        session=session,
        auth=auth,
        connect_retries=options.http_retries,
    )
    return NeutronClient(adapter)


class NeutronClient:
    """A client of one Neutron; every method raises NetworkError on failure."""

    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter

    def show_port(self, port: str) -> Mapping[str, Any]:
        """Return ``{"port": {…}}``."""
        return self._get(f"/v2.0/ports/{port}", "port")

    def show_subnet(self, subnet: str) -> Mapping[str, Any]:
        """Return ``{"subnet": {…}}``."""
        return self._get(f"/v2.0/subnets/{subnet}", "subnet")

    def list_subnets(self, *, network_id: str) -> Mapping[str, Any]:
        """Return ``{"subnets": [{…}, …]}`` of one network."""
        return self._get(f"/v2.0/subnets?network_id={network_id}", "subnets")

    def _get(self, url: str, expected: str) -> Mapping[str, Any]:
        try:
            body = self._adapter.get(url).json()
        except (ksa_errors.ClientException, requests.RequestException, ValueError) as e:
            raise NetworkError(
                f"GET {url} of Neutron failed: {e} Check that Neutron runs, that the "
                "object exists, and the options of [neutron]."
            ) from e
        if not isinstance(body, dict) or expected not in body:
            raise NetworkError(
                f"GET {url} of Neutron answered without {expected!r}: check that "
                "[neutron] endpoint_override is the URL of Neutron"
            )
        return body
