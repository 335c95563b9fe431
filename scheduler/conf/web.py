# SPDX-License-Identifier: Apache-2.0
"""[web]: the HTTP API of explanations, and the page."""

from oslo_config import cfg

GROUP = "web"

OPTS = (
    cfg.PortOpt(
        "port",
        help=(
            "TCP port of the HTTP API, which moorage-api serves and the command "
            "moorage uses, and of the page at /. 0: any free port, which is logged. "
            "Unset: moorage-api does not start. Related options: address, auth."
        ),
    ),
    cfg.HostAddressOpt(
        "address",
        default="127.0.0.1",
        help=(
            "Listen address of the HTTP API. One that is not of the loopback interface "
            "requires auth = token or auth = keystone."
        ),
    ),
    cfg.StrOpt(
        "auth",
        default="none",
        choices=[
            ("none", "every user of this machine may read; only for loopback"),
            (
                "token",
                "requests need the token of token_file in X-Auth-Token; the page asks "
                "for it",
            ),
            (
                "keystone",
                "requests need a token of a user with the role admin; Keystone is "
                "configured in [keystone_authtoken], and the extra moorage[keystone] "
                "is required; the page asks for such a token",
            ),
        ],
        help="Who may use the HTTP API. It shows hosts, instances and requests.",
    ),
    cfg.StrOpt(
        "token_file",
        help=(
            "File with the token for auth = token: at least 16 characters, only "
            "readable by its owner or group. The command moorage takes the same file "
            "as --token-file."
        ),
    ),
)
