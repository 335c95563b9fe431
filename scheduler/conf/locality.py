# SPDX-License-Identifier: Apache-2.0
"""[locality]: levels such as rack, row and room, and where hosts are at them."""

from __future__ import annotations

from typing import Final

from oslo_config import cfg, types

GROUP = "locality"

#: ``host`` and ``cell`` would give hints that nova has, with other rules.
_LEVEL: Final = types.String(regex=r"(?!(?:host|cell)$)[a-z][a-z0-9_]{0,31}$")

OPTS = (
    cfg.ListOpt(
        "levels",
        default=[],
        item_type=_LEVEL,
        bounds=False,
        mutable=True,
        help=(
            "The levels at which hosts have places, the smallest first, for example "
            "rack, row, room. Possible values: names of lower-case letters, digits and "
            '"_", other than host and cell. A host aggregate with the metadata '
            "moorage:level = rack is a rack: its name, or its metadata moorage:place, "
            "is the name of the place. The sources file and push have places in the "
            "column of that name. Empty: hints and extra specs about places are "
            "ignored. Related: LocalityFilter in [filter_scheduler] enabled_filters."
        ),
    ),
)
