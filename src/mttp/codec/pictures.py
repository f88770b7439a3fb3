"""Pictures and sounds: in an episode each is recorded once, and none beyond a size."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np

from mttp.codec.plain import Plain

__all__ = ["FEWEST", "MAX_BYTES", "bounded", "png"]

MAX_BYTES = 1 << 20
"""The maximum size of a picture; of larger ones only size and digest are recorded."""
FEWEST = 1024
"""Shorter texts stay as they are."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)[^,]{0,100};base64,")
_ENCODED = {"data": ("media_type", "format"), "content": ("mime_type",)}
"""The field with the data of a part, and the fields that say what it is."""
_CHANNELS = {1: 0, 3: 2, 4: 6}
"""Colour type in PNG by number of channels."""


def png(array: object) -> str | None:
    """
    Return the base64 text of bytes of shape [height, width] or [height, width, 1, 3 or 4 channels] as PNG.

    A PNG (https://www.w3.org/TR/png-3/) is a header, the rows, an end; None for any other value.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.ndim not in (2, 3):
        return None
    height, width, channels = (*array.shape, 1)[:3]
    if not array.size or channels not in _CHANNELS:
        return None
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row starts with the filter type none
    rows[:, 1:] = array.reshape(height, width * channels)
    header = struct.pack(">IIBBBBB", width, height, 8, _CHANNELS[channels], 0, 0, 0)
    chunks: Mapping[bytes, bytes] = {b"IHDR": header, b"IDAT": zlib.compress(rows.tobytes()), b"IEND": b""}
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()


def bounded(
    key: str, value: Plain, known: dict[str, object], omissions: list[str], *, place: object
) -> Plain:
    """
    Return content whose pictures are data only where they are new, and small enough.

    Any other is a data URL without data but with its size and digest.
    `known` has the place of each digest by now, and `omissions` gets those that are too large.
    """
    return _Pictures(key, known, omissions, place).content(value, "")


class _Pictures:
    def __init__(self, key: str, known: dict[str, object], omissions: list[str], place: object) -> None:
        self._key, self._known, self._omissions, self._place = key, known, omissions, place
        self._here: set[str] = set()

    def content(self, value: Plain, kind: str) -> Plain:
        """Return a value; `kind` is the media type of encoded data."""
        if isinstance(value, str):
            return self._text(value, kind) if len(value) >= FEWEST else value
        if isinstance(value, list):
            items = [self.content(item, "") for item in value]
            return value if all(map(_is_same, items, value)) else items
        if isinstance(value, dict):
            fields = {name: self.content(item, _kind(name, value)) for name, item in value.items()}
            return value if all(map(_is_same, fields.values(), value.values())) else fields
        return value

    def _text(self, value: str, kind: str) -> str:
        url = _DATA_URL.match(value)
        if url is None and not kind:
            return value
        try:
            data = base64.b64decode(value[url.end() :] if url else value)
        except ValueError:
            data = value.encode("utf-8", "surrogatepass")
        digest = sha256(data).hexdigest()
        is_large = len(data) > MAX_BYTES
        if is_large:
            self._omissions.append(f"{self._key}: a part takes {len(data)} bytes, the limit is {MAX_BYTES}")
        elif digest not in self._here and self._known.setdefault(digest, self._place) == self._place:
            self._here.add(digest)
            return value
        return f"data:{url[1] if url else kind};bytes={len(data)};sha256={digest},"


def _kind(name: Any, part: Mapping[Any, Any]) -> str:
    """Return the media type of a field that holds encoded data; empty for any other."""
    media = next((part[other] for other in _ENCODED.get(name, ()) if isinstance(part.get(other), str)), "")
    return media if "/" in media or not media else f"audio/{media}"


def _is_same(picture: object, other: object) -> bool:
    return picture is other
