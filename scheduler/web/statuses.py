# SPDX-License-Identifier: Apache-2.0
"""The HTTP status and the text of each error."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Final

from ..database import StoreUnavailable
from ..errors import InvalidRequest, NetworkError, PlacementError, SchedulerError
from ..explain import NoProviders, UnknownHost
from ..sources.base import FlavorsUnavailable, RequestsUnavailable
from .answers import NotFound

LOG = logging.getLogger(__name__)

#: The status of each error that a client or an operator can do something about.
_STATUSES: Final[tuple[tuple[type[Exception], HTTPStatus], ...]] = (
    (NotFound, HTTPStatus.NOT_FOUND),
    (UnknownHost, HTTPStatus.NOT_FOUND),
    (InvalidRequest, HTTPStatus.BAD_REQUEST),
    (FlavorsUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (RequestsUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (NoProviders, HTTPStatus.SERVICE_UNAVAILABLE),
    (StoreUnavailable, HTTPStatus.SERVICE_UNAVAILABLE),
    (PlacementError, HTTPStatus.SERVICE_UNAVAILABLE),
    (NetworkError, HTTPStatus.SERVICE_UNAVAILABLE),
    (SchedulerError, HTTPStatus.INTERNAL_SERVER_ERROR),
)


def describe(error: Exception, operation: str) -> tuple[HTTPStatus, str]:
    """Return the status of an error and its text for the client; log what failed.

    Parameters
    ----------
    operation : str
        The method and the path of the request.
    """
    is_unexpected = isinstance(error, SchedulerError) and error.is_unexpected
    for kind, status in () if is_unexpected else _STATUSES:
        if isinstance(error, kind):
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                LOG.warning("%s failed: %s", operation, error)
            return status, str(error)
    LOG.error("%s failed", operation, exc_info=error)
    text = "An unexpected error; see the log of moorage-api"
    return HTTPStatus.INTERNAL_SERVER_ERROR, text
