# SPDX-License-Identifier: Apache-2.0
"""Frames: a sequence of small, typed pieces, compressed as one stream.

Each frame is encoded as msgpack, after its length. Small pieces bound the memory that a
reader needs, and the time for which a writer holds the interpreter's lock, because
compressing a piece releases the lock.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

_T = TypeVar("_T")

#: The first bytes of a view, and the version of the format of all following bytes.
_MAGIC: Final = b"moorage view "
_VERSION: Final = b"\x02"
_LEVEL: Final = 1
_LENGTH: Final = struct.Struct(">I")
#: The maximum number of bytes of one frame, and of a whole view, uncompressed; a view
#: of 100,000 hosts needs a quarter of it.
_MAX_FRAME: Final = 1 << 25
_MAX_UNPACKED: Final = 1 << 30
_READ: Final = 1 << 20


class UnreadableView(ValueError):
    """Raised for bytes that are no view of this version; the message is one line."""


class Frame(msgspec.Struct, array_like=True):
    """One piece of a view.

    Attributes
    ----------
    kind : str
        What the frame is a piece of, such as "numbers" or "providers".
    name : str
        Which column, resource class or other part of this kind; "" if the kind has only
        one part.
    """

    kind: str
    name: str
    data: Any


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=str)
_DECODER: Final = msgspec.msgpack.Decoder(Frame)


def write_frames(frames: Iterable[Frame]) -> bytes:
    """Return frames as bytes."""
    compressor = zlib.compressobj(_LEVEL)
    parts = [_MAGIC + _VERSION]
    for frame in frames:
        data = _ENCODER.encode(frame)
        parts.append(compressor.compress(_LENGTH.pack(len(data)) + data))
    parts.append(compressor.flush())
    return b"".join(parts)


def read_frames(data: bytes) -> Iterator[Frame]:
    """Yield the frames that bytes contain.

    Raises
    ------
    UnreadableView
        The bytes are damaged, too large, or of another version.
    """
    if not data.startswith(_MAGIC):
        raise UnreadableView("it is no view of Moorage")
    if data[len(_MAGIC) : len(_MAGIC) + 1] != _VERSION:
        raise UnreadableView("its view has the format of another version of Moorage")
    stream = _Stream(data[len(_MAGIC) + 1 :])
    while head := stream.read(_LENGTH.size):
        (size,) = _LENGTH.unpack(head)
        if size > _MAX_FRAME:
            raise UnreadableView(f"it is damaged: a piece of {size} bytes")
        try:
            yield _DECODER.decode(stream.read(size))
        except (msgspec.MsgspecError, ValueError, RecursionError) as e:
            raise UnreadableView(f"it is damaged: {e}") from e


class _Stream:
    """Decompresses as much as is read, and no more."""

    def __init__(self, data: bytes) -> None:
        self._decompressor = zlib.decompressobj()
        self._compressed = data
        self._unread = bytearray()
        self._n_unpacked = 0

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; no bytes at the end of the stream."""
        while len(self._unread) < size and not self._decompressor.eof:
            try:
                piece = self._decompressor.decompress(self._compressed, _READ)
            except zlib.error as e:
                raise UnreadableView(f"it is damaged: {e}") from e
            self._compressed = self._decompressor.unconsumed_tail
            if not piece and not self._compressed and not self._decompressor.eof:
                raise UnreadableView("it is truncated")
            self._n_unpacked += len(piece)
            if self._n_unpacked > _MAX_UNPACKED:
                raise UnreadableView(f"it has more than {_MAX_UNPACKED} bytes")
            self._unread += piece
        if self._unread and len(self._unread) < size:
            raise UnreadableView("it is truncated")
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


# -- arrays ------------------------------------------------------------------------


def array_data(array: npt.NDArray[Any]) -> bytes:
    """Return the values of an array as little-endian bytes."""
    values = np.ascontiguousarray(array)
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def read_array(
    data: object, dtype: npt.DTypeLike, size: int | None = None
) -> npt.NDArray[Any]:
    """Return the array that `data`, which is untrusted, contains.

    Raises
    ------
    UnreadableView
        `data` is no array of this type, or has other than `size` values.
    """
    little_endian = np.dtype(dtype).newbyteorder("<")
    if not isinstance(data, bytes) or len(data) % little_endian.itemsize:
        raise UnreadableView("it is damaged: an array has another type")
    array = np.frombuffer(data, little_endian).astype(np.dtype(dtype))
    if size is not None and len(array) != size:
        raise UnreadableView(f"it is damaged: {len(array)} values where {size} belong")
    return array


def read_indices(data: object, n_values: int, *, least: int = 0) -> npt.NDArray[Any]:
    """Return an array of int32 whose elements are indices of `n_values` values.

    Raises
    ------
    UnreadableView
        `data` is no array, or an element is not between `least` and `n_values` - 1.
    """
    indices = read_array(data, np.int32)
    if len(indices) and not least <= indices.min() <= indices.max() < n_values:
        raise UnreadableView("it is damaged: an index is out of range")
    return indices


def checked(read: Callable[[Any], _T], data: Any) -> _T:  # noqa: ANN401 - untrusted
    """Return the result of a function that reads untrusted data.

    Raises
    ------
    UnreadableView
        The data has another shape than the function expects.
    """
    try:
        return read(data)
    except (
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError
    ) as e:  # fmt: skip
        if isinstance(e, UnreadableView):
            raise
        raise UnreadableView(f"it is damaged: {type(e).__name__}: {e}") from e
