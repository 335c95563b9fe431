# SPDX-License-Identifier: Apache-2.0
"""Secrets are known for what they are, also those that their owner does not mark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import oslo_messaging.opts
import pytest
from keystoneauth1 import loading
from oslo_config import cfg

from moorage.scheduler.conf import list_opts
from moorage.scheduler.conf.values import is_secret


def _others() -> Iterator[cfg.Opt]:
    loaders: Iterable[Any] = loading.get_available_plugin_loaders().values()
    for loader in loaders:
        # keystoneauth1 has no public way.
        yield from (opt._to_oslo_opt() for opt in loader.get_options())  # noqa: SLF001
    for _, opts in oslo_messaging.opts.list_opts():
        yield from opts


@pytest.mark.parametrize(
    "name", ["password", "idp_otp_key", "transport_url", "ssl_client_key_password"]
)
def test_secret_of_a_library_is_known(name: str) -> None:
    found = [opt for opt in _others() if opt.dest == name]
    assert found
    assert all(map(is_secret, found))


def test_what_helps_to_find_a_mistake_is_no_secret() -> None:
    ours = {opt.dest: opt for _, opts in list_opts() for opt in opts}
    visible = ("auth_url", "connection_debug", "enabled_filters", "node_uuid_file")
    assert not any(is_secret(ours[name]) for name in visible)
    assert is_secret(ours["connection"])
