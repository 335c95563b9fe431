# SPDX-License-Identifier: Apache-2.0
"""Detect options with secret values."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

#: The replacement for a secret value.
HIDDEN: Final = "***"

#: Parts of the names of secrets. Not all owners mark theirs: keystoneauth1 does not
#: mark idp_otp_key, nor oslo.messaging ssl_client_key_password.
_NAMES: Final = ("password", "secret", "token", "otp_key")


def is_secret(opt: cfg.Opt) -> bool:
    """Return whether the value of an option may be a secret."""
    return bool(opt.secret) or is_secret_name(opt.dest)


def is_secret_name(name: str) -> bool:
    """Return whether an option of that name may have a secret, marked or not."""
    return any(part in name for part in _NAMES)
