# SPDX-License-Identifier: Apache-2.0
"""A client of Neutron with three GETs, which raise NetworkError on any failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1.adapter import Adapter
from oslo_config import cfg

from ..conf.neutron import neutron_adapter
from ..errors import NetworkError

_TIMEOUT_S = (
    30.0  # if [neutron] timeout is not set: a hung Neutron must not block requests
)


def make_network_client(conf: cfg.ConfigOpts) -> NeutronClient | None:
    """Return a client configured by ``[neutron]``; None: Neutron is not configured.

    No request is sent.

    Raises
    ------
    ConfigurationError
        auth_type or one of its options is invalid.
    """
    adapter = neutron_adapter(conf, timeout_s=_TIMEOUT_S)
    return None if adapter is None else NeutronClient(adapter)


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
