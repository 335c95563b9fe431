# SPDX-License-Identifier: Apache-2.0
"""GETs of another service's objects, bounded in bytes, with one typed error."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import requests
from keystoneauth1 import exceptions as ksa_errors
from keystoneauth1.adapter import Adapter

from ..decoding import loads
from ..failures import cause_of
from .answers import LookupFailed

#: A network of Neutron has some kilobytes.
MAX_BYTES: Final = 256 * 1024
_CHUNK: Final = 1024
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity"}

_REFUSALS: Final = (
    ksa_errors.AuthorizationFailure,
    ksa_errors.AuthPluginException,
    ksa_errors.EndpointNotFound,
    ksa_errors.MissingAuthPlugin,
    ksa_errors.Unauthorized,
)


class ObjectReader:
    """Reads objects of one service.

    Parameters
    ----------
    service : str
        For messages, such as "Cinder".
    group : str
        The options' group, for messages.
    """

    def __init__(self, service: str, group: str, adapter: Adapter) -> None:
        self.service = service
        self._group = group
        self._adapter = adapter

    def get(self, path: str, name: str) -> Mapping[str, Any]:
        """Return the object of that name in the answer.

        Raises
        ------
        LookupFailed
        """
        try:
            # log=False: keystoneauth1 would read the body of any size.
            response = self._adapter.get(
                path, raise_exc=False, stream=True, log=False, headers=_HEADERS
            )
            with contextlib.closing(response):
                status, body = response.status_code, self._body(response, path)
        except LookupFailed:
            raise
        except _REFUSALS as e:
            raise LookupFailed(
                f"Authenticating for {self.service} failed: {cause_of(e)}. Check the "
                f"options of [{self._group}]",
                is_outage=True,
            ) from e
        except Exception as e:
            # An auth plugin, keystoneauth1, requests and urllib3 have errors each.
            raise LookupFailed(
                f"GET {path} of {self.service} got no answer: {cause_of(e)}",
                is_outage=True,
            ) from e
        self._check(status, path)
        return self._object(body, path, name)

    def _body(self, response: requests.Response, path: str) -> bytes:
        body = bytearray()
        for chunk in response.iter_content(_CHUNK):
            body += chunk
            if len(body) > MAX_BYTES:
                raise self.malformed(path, f"more than {MAX_BYTES} bytes")
        return bytes(body)

    def _check(self, status: int, path: str) -> None:
        if status == requests.codes.ok:
            return
        if status == requests.codes.not_found:
            raise LookupFailed(f"{self.service} has no {path}", is_unknown=True)
        advice = ""
        if status in (requests.codes.unauthorized, requests.codes.forbidden):
            advice = f": the user of [{self._group}] needs the role admin"
        raise LookupFailed(f"GET {path} of {self.service} answered {status}{advice}")

    def _object(self, body: bytes, path: str, name: str) -> Mapping[str, Any]:
        try:
            content = loads(body)
        except (ValueError, RecursionError) as e:
            raise self.malformed(path, "no JSON") from e
        found = content.get(name) if isinstance(content, dict) else None
        if not isinstance(found, dict):
            raise self.malformed(path, f"no {name!r}")
        return found

    def malformed(self, path: str, what: str) -> LookupFailed:
        """Return the error of an answer that cannot be used."""
        return LookupFailed(
            f"GET {path} of {self.service} answered {what}: check the endpoint in "
            f"[{self._group}], and that its user has the role admin"
        )
