# SPDX-License-Identifier: Apache-2.0
"""A prefilter."""

from moorage.scheduler.prefilters import PrefilterRequest


def quiet_hosts_only(request: PrefilterRequest) -> None:
    """Require the trait of quiet hosts where a hint asks for it."""
    if "quiet" in (request.spec_obj.scheduler_hints or {}):
        request.requirements.root_required.add("CUSTOM_QUIET")
