# SPDX-License-Identifier: Apache-2.0
"""[oslo_reports]: the folder of the reports that SIGUSR2 triggers."""

from oslo_config import cfg

GROUP = "oslo_reports"

OPTS = (
    cfg.StrOpt(
        "log_dir",
        # Identical to oslo.reports' option, which nova in the same process may register
        # later: oslo.config accepts a duplicate only if all attributes are equal.
        help="Path to a log directory where to create a file",
    ),
)
