# SPDX-License-Identifier: Apache-2.0
"""[workarounds]: what was meant to be there for a while."""

from oslo_config import cfg

GROUP = "workarounds"

OPTS = (
    cfg.BoolOpt(
        "disable_fallback_pcpu_query",
        default=False,
        mutable=True,
        help=(
            "Do not ask Placement a second time for guests with dedicated CPUs, for "
            "hosts that report VCPU and no PCPU. Spares a question once no host has "
            "[DEFAULT] vcpu_pin_set any more."
        ),
    ),
    cfg.BoolOpt(
        "disable_compute_service_check_for_ffu",
        default=False,
        help=(
            'With the source "nova_db": only warn at the start of a nova-compute that '
            "is older than nova 34 supports, instead of stopping. For a fast-forward "
            "upgrade, where controllers are started before the computes."
        ),
    ),
)
