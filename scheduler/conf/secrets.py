# SPDX-License-Identifier: Apache-2.0
"""Which options have values that nobody is told."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg

#: Stands for such a value.
HIDDEN: Final = "***"

#: Parts of the names of secrets. Not all owners mark theirs: keystoneauth1 does not
#: mark idp_otp_key, nor oslo.messaging ssl_client_key_password.
_NAMES: Final = ("password", "secret", "token", "otp_key")


def is_secret(opt: cfg.Opt) -> bool:
    """Tell whether the value of an option may be a secret."""
    return bool(opt.secret) or is_secret_name(opt.dest)


def is_secret_name(name: str) -> bool:
    """Tell whether an option of that name may have a secret, marked as one or not."""
    return any(part in name for part in _NAMES)
