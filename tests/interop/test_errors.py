# SPDX-License-Identifier: Apache-2.0
"""What a nova 34 conductor makes of a decision that failed, for every error of ours."""

from __future__ import annotations

from typing import Any

import pytest
from oslo_messaging._drivers.common import serialize_remote_exception

from moorage.scheduler import errors
from moorage.scheduler.errors import NoValidHost, SchedulerError, as_nova

from .peer import Peer

OURS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, SchedulerError)
]
FOREIGN = [RuntimeError, KeyError, OSError]


def _crossing(error: Exception) -> str:
    """A failure as oslo.messaging's server writes it."""
    try:
        raise as_nova(error) from error
    except Exception as e:
        data: str = serialize_remote_exception((type(e), e, e.__traceback__))
        return data


@pytest.mark.parametrize("kind", [*OURS, *FOREIGN], ids=lambda kind: kind.__name__)
def test_conductor_gets_no_valid_host(peer: Peer, kind: type[Exception]) -> None:
    rebuilt: dict[str, Any] = peer.ask("rebuild_error", data=_crossing(kind("why")))
    assert rebuilt["class"] == "NoValidHost_Remote"
    assert rebuilt["is_no_valid_host"]
    reason = rebuilt["kwargs"]["reason"]
    assert rebuilt["kwargs"]["code"] == 500
    assert rebuilt["message"] == f"No valid host was found. {reason}"
    if kind is not NoValidHost:
        name = kind.__name__ if kind in OURS else "SchedulerError"
        assert reason.startswith(f"{name}: ")


@pytest.mark.parametrize("kind", [*OURS, RuntimeError], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("operation", ["rebuild", "evacuate", "live migration"])
def test_conductor_leaves_nothing_half_done(
    peer: Peer, operation: str, kind: type[Exception]
) -> None:
    ended = peer.ask("fail_operation", operation=operation, data=_crossing(kind("why")))
    # nova's own ending after NoValidHost: a guest that runs stays as it is.
    state = "active" if operation == "live migration" else "error"
    assert ended == {"vm_state": state, "task_state": None, "migration": "error"}


def test_other_error_would_leave_them_so(peer: Peer) -> None:
    """Why every error crosses as NoValidHost."""
    error = errors.PlacementUnavailable("why")
    data = serialize_remote_exception((type(error), error, None))
    ended = peer.ask("fail_operation", operation="evacuate", data=data)
    assert ended["task_state"] == "rebuilding"
    assert ended["migration"] == "accepted"
