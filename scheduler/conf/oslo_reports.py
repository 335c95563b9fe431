# SPDX-License-Identifier: Apache-2.0
"""[oslo_reports]: where a report that SIGUSR2 asks for goes."""

from oslo_config import cfg

GROUP = "oslo_reports"

OPTS = (
    cfg.StrOpt(
        "log_dir",
        help=(
            "Folder for the files of reports that SIGUSR2 asks for. Unset: they are "
            "written to stderr."
        ),
    ),
)
