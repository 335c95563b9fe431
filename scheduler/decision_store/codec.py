# SPDX-License-Identifier: Apache-2.0
"""Decision records as bytes: msgpack of a record and its request, and zlib."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any, Final

import msgspec

from ...objects import RequestSpec, Serializer
from ..drivers.record import DecisionRecord, InstanceRecord

#: The first byte: the format.
_VERSION: Final = 3
#: A record that would need more is stored without its request.
_MAX_BYTES: Final = 1 << 20
#: A record of that size is refused: reading it would take too long.
_MAX_UNPACKED: Final = 1 << 25
#: Seconds since the epoch up to which Python has dates.
_MAX_TIME_S: Final = 1e11


class UnreadableRecord(ValueError):
    """Raised for bytes that are no record, or that of another Moorage."""


class _Stored(msgspec.Struct, array_like=True):
    record: DecisionRecord
    request: dict[str, Any] | None


_DECODER: Final = msgspec.msgpack.Decoder(_Stored)


def encode(record: DecisionRecord) -> bytes:
    """Return a record, with its request, as bytes.

    Text that UTF-8 cannot represent is changed. A request that cannot be written, or is
    too large, is left out; and the parts of weights after the first instance, except
    those of the chosen host: most of a record of many instances.
    """
    first, later = record.instances[:1], record.instances[1:]
    instances = first + [_without_parts(instance) for instance in later]
    alone = dataclasses.replace(record, request=None, instances=instances)
    stored = _Stored(alone, _request_of(record))
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
        top if instance.is_on(top) else dataclasses.replace(top, parts=())
        for top in instance.top_hosts
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


def _plain(value: object) -> object:
    """Return plain data for a value of another library, such as a number of NumPy."""
    item = getattr(value, "item", None)
    return item() if callable(item) else str(value)


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)


def _cleaned(value: object) -> object:
    """Return plain data without lone surrogates, which UTF-8 cannot represent."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {_cleaned(k): _cleaned(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(entry) for entry in value]
    return value


def decode(data: bytes) -> tuple[DecisionRecord, dict[str, Any] | None]:
    """Return a record and its request, which is in wire form.

    Raises
    ------
    UnreadableRecord
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
    """Return the request of a wire form.

    Raises
    ------
    MalformedObject
    """
    request: RequestSpec = Serializer().deserialize_entity(None, primitive)
    return request
