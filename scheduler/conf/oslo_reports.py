# SPDX-License-Identifier: Apache-2.0
"""[oslo_reports]: where a report that SIGUSR2 asks for goes."""

from oslo_config import cfg

GROUP = "oslo_reports"

OPTS = (
    cfg.StrOpt(
        "log_dir",
        # As in oslo.reports, which a nova in this process may register its own of
        # later: oslo.config takes two only that are alike in everything.
        help="Path to a log directory where to create a file",
    ),
)
