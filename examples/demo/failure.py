# SPDX-License-Identifier: Apache-2.0
"""Why the demo ended early, in one line that says what to look at."""

from __future__ import annotations

import tempfile
import traceback
from typing import Final

import oslo_messaging

from moorage.scheduler.cmd.daemon import OPERATOR_ERRORS
from moorage.scheduler.failures import one_line, without_secrets

_IN_MEMORY: Final = "fake://"
#: What a user of the demo sets, by the option of Moorage that gets the value.
_OF_THE_DEMO: Final = {
    "[DEFAULT] transport_url =": "--transport-url (MOORAGE_TRANSPORT_URL) =",
    "[web] port:": "--page (make demo-page PAGE_PORT):",
}


def describe(error: Exception, transport_url: str) -> str:
    """Return one line; the traceback of an error of the demo goes to a file."""
    match error:
        case oslo_messaging.MessagingTimeout() if transport_url == _IN_MEMORY:
            return (
                "the scheduler, which is in this process, did not answer a request in "
                "time: the machine was suspended or is too busy (see `uptime`); run "
                "the demo again"
            )
        case oslo_messaging.MessagingTimeout():
            return (
                "the scheduler did not answer a request in time: check the broker of "
                f"--transport-url {without_secrets(transport_url)}, and the load of "
                "this machine (`uptime`)"
            )
        case oslo_messaging.MessagingException():
            return (
                f"--transport-url {without_secrets(transport_url)}: {one_line(error)}; "
                "the demo needs a virtual host of its own (rabbitmqctl add_vhost)"
            )
        case _ if isinstance(error, OPERATOR_ERRORS):
            text = " ".join(str(error).split()).rstrip(".")
            for option, input_ in _OF_THE_DEMO.items():
                text = text.replace(option, input_)
            return text
    with tempfile.NamedTemporaryFile(
        "w", prefix="moorage-demo-", suffix=".log", delete=False
    ) as log:
        traceback.print_exception(error, file=log)
    what = f"{type(error).__name__}: {one_line(error)}"
    return f"an error that the demo does not expect: {what}; {log.name} has details"
