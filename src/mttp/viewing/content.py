"""Observations, actions, and arguments and results of calls as content of a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mttp.codec.pictures import png
from mttp.model.chat import Message, message_text, messages, pictures, reasoning, tool_calls
from mttp.pages.episode import EMPTY
from mttp.reading.jsonable import to_json

__all__ = ["chat_content", "content"]

_FEWEST_PIXELS = 16
"""Images have at least this width and height; smaller arrays are numbers."""
_LARGEST_FRAME = 1 << 20
"""Largest number of bytes of an image; larger arrays are shown as numbers."""
_FEW = 32


def content(value: Any) -> dict[str, Any] | None:
    """The value as text, chat, frame, array or JSON; None for None."""
    if value is None:
        return None
    if (chat := messages(value)) is not None:
        return chat_content(chat)
    if isinstance(value, str):
        return {"type": "text", "text": value or EMPTY}
    if isinstance(value, np.ndarray):
        return _frame(value) or _array(value)
    return {"type": "json", "text": to_json(value, indent=1)}


def chat_content(chat: Sequence[Message]) -> dict[str, Any]:
    """Chat messages as content."""
    return {"type": "chat", "messages": [_message(one) for one in chat]}


def _message(message: Message) -> dict[str, Any]:
    shown = {
        "role": str(message["role"]),
        "name": str(message.get("name") or message.get("tool_call_id") or ""),
        "reasoning": reasoning(message),
        "text": message_text(message),
        "pictures": [url for url in pictures(message) if url.startswith("data:image/") and ";base64," in url],
        "tool_calls": [{"name": name, "arguments": arguments} for name, arguments in tool_calls(message)],
    }
    is_empty = not any(shown[name] for name in ("reasoning", "text", "pictures", "tool_calls"))
    return shown | {"text": EMPTY} if is_empty else shown


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    if value.ndim == 1 and value.size <= _FEW:  # numpy takes a hundred times as long
        text = f"[{', '.join(f'{one:.6g}' for one in value.tolist())}]" if value.dtype.kind in "fiu" else ""
    else:
        text = np.array2string(value, precision=5, threshold=200, edgeitems=3, max_line_width=100)
    return {"type": "array", "shape": list(value.shape), "text": f"{text or value.tolist()} {value.dtype}"}


def _frame(value: np.ndarray[Any, Any]) -> dict[str, Any] | None:
    """An image that is neither tiny nor large, as PNG; None for any other array."""
    if value.nbytes > _LARGEST_FRAME or min(value.shape[:2], default=0) < _FEWEST_PIXELS:
        return None
    if (encoded := png(value)) is None:
        return None
    return {"type": "frame", "png": encoded, "width": value.shape[1], "height": value.shape[0]}
