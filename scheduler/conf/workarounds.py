# SPDX-License-Identifier: Apache-2.0
"""[workarounds]: temporary options."""

from oslo_config import cfg

GROUP = "workarounds"

OPTS = (
    cfg.BoolOpt(
        "disable_fallback_pcpu_query",
        default=False,
        mutable=True,
        help=(
            "Do not query Placement a second time for guests with dedicated CPUs, for "
            "hosts that report VCPU but no PCPU. Saves a query once no host uses "
            "[DEFAULT] vcpu_pin_set."
        ),
    ),
    cfg.BoolOpt(
        "disable_compute_service_check_for_ffu",
        default=False,
        help=(
            'With the source "nova_db": if a nova-compute is older than nova 34 '
            "supports, only log a warning at the start instead of stopping. For a "
            "fast-forward upgrade, where controllers start before the computes."
        ),
    ),
)
