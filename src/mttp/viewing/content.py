"""Observations, actions, and arguments and results of calls as content of a page."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.model.chat import Message, message_text, messages, pictures, reasoning, tool_calls
from mttp.reading.jsonable import to_json

__all__ = ["chat_content", "content"]

_FEWEST_PIXELS = 16
"""Images have at least this width and height; smaller arrays are numbers."""
_LARGEST_FRAME = 1 << 20
"""Largest number of bytes of an image; larger arrays are shown as numbers."""
_FEW = 32
_CHANNELS = {1: 0, 3: 2, 4: 6}
"""Colour type in PNG by number of channels."""


def content(value: Any) -> dict[str, Any] | None:
    """The value as text, chat, frame, array or JSON; None for None."""
    if value is None:
        return None
    if (chat := messages(value)) is not None:
        return chat_content(chat)
    if isinstance(value, str):
        return {"type": "text", "text": value}
    if isinstance(value, np.ndarray):
        return _frame(value) or _array(value)
    return {"type": "json", "text": to_json(value, indent=1)}


def chat_content(chat: Sequence[Message]) -> dict[str, Any]:
    """Chat messages as content."""
    return {"type": "chat", "messages": [_message(one) for one in chat]}


def _message(message: Message) -> dict[str, Any]:
    return {
        "role": str(message["role"]),
        "name": str(message.get("name") or message.get("tool_call_id") or ""),
        "reasoning": reasoning(message),
        "text": message_text(message),
        "pictures": [url for url in pictures(message) if url.startswith("data:image/") and ";base64," in url],
        "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in tool_calls(message)],
    }


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    if value.ndim == 1 and value.size <= _FEW:  # numpy takes a hundred times as long
        text = f"[{', '.join(f'{one:.6g}' for one in value.tolist())}]" if value.dtype.kind in "fiu" else ""
    else:
        text = np.array2string(value, precision=5, threshold=200, edgeitems=3, max_line_width=100)
    return {"type": "array", "shape": list(value.shape), "text": f"{text or value.tolist()} {value.dtype}"}


def _frame(value: np.ndarray[Any, Any]) -> dict[str, Any] | None:
    """An image: bytes of shape [height, width] or [height, width, 1, 3 or 4 channels]; else None."""
    if value.dtype != np.uint8 or value.ndim not in (2, 3) or value.nbytes > _LARGEST_FRAME:
        return None
    height, width, *rest = value.shape
    channels = rest[0] if rest else 1
    if min(height, width) < _FEWEST_PIXELS or channels not in _CHANNELS:
        return None
    return {"type": "frame", "png": _png(value, width, height, channels), "width": width, "height": height}


def _png(value: np.ndarray[Any, Any], width: int, height: int, channels: int) -> str:
    """Base64 of the image as PNG (https://www.w3.org/TR/png-3/): a header, the rows, an end."""
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # each row starts with the filter type none
    rows[:, 1:] = value.reshape(height, width * channels)
    header = struct.pack(">IIBBBBB", width, height, 8, _CHANNELS[channels], 0, 0, 0)
    chunks: Mapping[bytes, bytes] = {b"IHDR": header, b"IDAT": zlib.compress(rows.tobytes()), b"IEND": b""}
    body = b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks.items()
    )
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + body).decode()
