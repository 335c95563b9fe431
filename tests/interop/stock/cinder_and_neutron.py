# SPDX-License-Identifier: Apache-2.0
"""Cinder and Neutron as nova uses them to attach volumes and to bind ports.

They have what tests add. Moorage asks the same two servers.
"""

from __future__ import annotations

import json
import uuid
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qs

from ...fixtures.attached_services import (
    AttachedService,
    ServiceHandler,
    attached_service,
)

_CINDER_VERSIONS = {
    "versions": [
        {"id": "v3.0", "status": "CURRENT", "version": "3.71", "min_version": "3.0"}
    ]
}


def cinder_of_nova() -> AbstractContextManager[AttachedService]:
    """Run a Cinder that attaches volumes until the end of the block."""
    return attached_service(_CinderHandler)


def neutron_of_nova() -> AbstractContextManager[AttachedService]:
    """Run a Neutron that binds ports until the end of the block."""
    return attached_service(_NeutronHandler)


class _JsonHandler(ServiceHandler):
    def parts(self) -> list[str]:
        return self.path.partition("?")[0].strip("/").split("/")

    def body(self) -> Any:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return json.loads(data) if data else {}

    def reply_with(self, body: Any) -> None:
        self.reply(200, json.dumps(body).encode())


class _CinderHandler(_JsonHandler):
    def answer(self) -> None:
        if self.path == "/":
            self.reply_with(_CINDER_VERSIONS)
        else:
            super().answer()

    def do_POST(self) -> None:
        """Reserve a volume, or complete its attachment."""
        body = self.body()
        if self.parts() == ["v3", "attachments"]:
            wanted = body["attachment"]
            volume = self._volume(wanted["volume_uuid"])
            made = _attachment(str(uuid.uuid4()), wanted["volume_uuid"])
            self.service.add(f"/v3/attachments/{made['id']}", "attachment", **made)
            volume["status"] = "reserved"
            self.reply_with({"attachment": made})
        else:
            self.reply(204, b"")

    def do_PUT(self) -> None:
        """Connect a volume to a host."""
        self.body()
        self.reply_with(self.service.answers[self.path])

    def do_DELETE(self) -> None:
        """Detach a volume."""
        attachment = self.service.answers.pop(self.path)["attachment"]
        self._volume(attachment["volume_id"])["status"] = "available"
        self.reply_with({"attachments": []})

    def _volume(self, volume: str) -> dict[str, Any]:
        found: dict[str, Any] = self.service.answers[f"/v3/volumes/{volume}"]["volume"]
        return found


def _attachment(attachment: str, volume: str) -> dict[str, Any]:
    return {
        "id": attachment,
        "volume_id": volume,
        "status": "reserved",
        "attach_mode": "rw",
        "connection_info": {"driver_volume_type": "fake", "data": {}},
    }


class _NeutronHandler(_JsonHandler):
    def answer(self) -> None:
        """Answer a list of what a query asks for, or one object."""
        match self.parts():
            case ["v2.0", collection]:
                self.reply_with({collection: self._list(collection)})
            case parts:
                self.path = "/" + "/".join(parts)  # "?fields=…" only omits some
                super().answer()

    def do_PUT(self) -> None:
        """Bind a port, or unbind it."""
        [(name, changes)] = self.body().items()
        found = self.service.answers[self.path]
        found[name] |= changes
        self.reply_with(found)

    def _list(self, collection: str) -> list[dict[str, Any]]:
        query = parse_qs(self.path.partition("?")[2])
        prefix, name = f"/v2.0/{collection}/", collection.removesuffix("s")
        found = [
            body[name]
            for path, body in self.service.answers.items()
            if path.startswith(prefix)
        ]
        return [each for each in found if _matches(each, query)]


def _matches(found: dict[str, Any], query: dict[str, list[str]]) -> bool:
    return all(str(found[key]) in query[key] for key in query.keys() & found.keys())
