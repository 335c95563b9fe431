# SPDX-License-Identifier: Apache-2.0
"""Whether any scheduler answers on the message bus."""

from __future__ import annotations

import contextlib

from oslo_config import cfg

from moorage.scheduler.rpc import get_server, get_transport
from moorage.scheduler.rpc.endpoints import BaseAPIEndpoint
from moorage.scheduler.rpc.scheduler_watch import SchedulerWatch
from moorage.scheduler.rpc.transport import register_opts


def test_schedulers_that_do_not_answer_are_a_problem_until_one_does(
    conf: cfg.ConfigOpts,
) -> None:
    register_opts(conf)
    transport = get_transport(conf, "fake://")
    watch = SchedulerWatch(transport, timeout_s=0.2)
    assert watch.problem == "No scheduler has been asked yet."
    watch.check()
    assert watch.problem == "No scheduler answered within 0.2 s."
    server = get_server(conf, transport, [BaseAPIEndpoint()])
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(transport.cleanup)
        stack.callback(server.wait)
        stack.callback(server.stop)
        watch = SchedulerWatch(transport)
        watch.check()
        assert watch.problem == ""
