# SPDX-License-Identifier: Apache-2.0
"""Encode a decision record and its request as msgpack, compressed by zlib."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Final

import msgspec

from ...objects import MalformedObject, RequestSpec, Serializer
from ..drivers.record import DecisionRecord, InstanceRecord

#: The version of the format: the first byte of an encoded record.
_VERSION: Final = 3
#: A record that would need more bytes is stored without its request.
_MAX_BYTES: Final = 1 << 20
#: A record of more bytes than this is refused: reading it would take too long.
_MAX_UNPACKED: Final = 1 << 25
#: The latest start of a decision, seconds since the epoch, that Python has a date for.
_MAX_TIME_S: Final = 1e11


class UnreadableRecord(ValueError):
    """Raised for bytes that are no record, or one of another version of Moorage."""


class _Stored(msgspec.Struct, array_like=True):
    record: DecisionRecord
    request: dict[str, Any] | None


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


def encode(record: DecisionRecord) -> bytes:
    """Return a record, with its request, as bytes.

    Text that UTF-8 cannot represent is changed. A request that cannot be written, or is
    too large, is omitted. For the second and later instances, the parts of weights of
    other hosts than the selected one are omitted: they are most of a large record.
    """
    first_instances, later_instances = record.instances[:1], record.instances[1:]
    instances = first_instances + [
        _without_parts(instance) for instance in later_instances
    ]
    shortened = dataclasses.replace(record, request=None, instances=instances)
    stored = _Stored(shortened, _request_of(record))
    try:
        data = _compressed(stored)
    except (OverflowError, TypeError, RecursionError):
        data = b""
    if data and len(data) <= _MAX_BYTES:
        return data
    stored.request = None
    return _compressed(stored)


def _without_parts(instance: InstanceRecord) -> InstanceRecord:
    top_hosts = tuple(
        weighed_host
        if instance.is_on(weighed_host)
        else dataclasses.replace(weighed_host, parts=())
        for weighed_host in instance.top_hosts
    )
    return dataclasses.replace(instance, top_hosts=top_hosts)


def _request_of(record: DecisionRecord) -> dict[str, Any] | None:
    """Return the wire form of a request, without what a claim has added to it."""
    if record.request is None:
        return None
    primitive: dict[str, Any] = record.request.obj_to_primitive()
    fields = primitive["nova_object.data"]
    for group in fields.get("requested_resources") or ():
        group["nova_object.data"]["provider_uuids"] = []
    return primitive


def _compressed(stored: _Stored) -> bytes:
    try:
        packed = _ENCODER.encode(stored)
    except UnicodeEncodeError:
        packed = _ENCODER.encode(_cleaned(msgspec.to_builtins(stored)))
    return bytes([_VERSION]) + zlib.compress(packed)


def _to_plain(value: object) -> object:
    """Return plain data for a value of another library, such as a number of NumPy."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_to_plain)


def _cleaned(value: object) -> object:
    """Return plain data without lone surrogates, which UTF-8 cannot represent."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_cleaned(key): _cleaned(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(entry) for entry in value]
    return value


def decode(data: bytes) -> tuple[DecisionRecord, dict[str, Any] | None]:
    """Return a record and its request, which is in wire form.

    Raises
    ------
    UnreadableRecord
        The bytes are damaged, too large, or of another version.
    """
    if data[:1] != bytes([_VERSION]):
        raise UnreadableRecord("it has the format of another version of Moorage")
    decompressor = zlib.decompressobj()
    try:
        packed = decompressor.decompress(data[1:], _MAX_UNPACKED)
        if decompressor.unconsumed_tail:
            raise UnreadableRecord(f"it has more than {_MAX_UNPACKED} bytes")
        stored = _DECODER.decode(packed)
    except UnreadableRecord:
        raise
    except (zlib.error, msgspec.DecodeError, ValueError) as e:
        raise UnreadableRecord(f"{type(e).__name__}: {e}") from e
    if not 0 <= stored.record.started_at < _MAX_TIME_S:
        raise UnreadableRecord(f"started_at is {stored.record.started_at}")
    return stored.record, stored.request


def read_request(primitive: dict[str, Any]) -> RequestSpec:
    """Return the request that a wire form describes.

    Raises
    ------
    MalformedObject
        The wire form is invalid, or that of another object.
    """
    request = Serializer().deserialize_entity(None, primitive)
    if not isinstance(request, RequestSpec):
        raise MalformedObject("a RequestSpec", primitive)
    return request
