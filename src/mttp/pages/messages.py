"""Messages, contents and calls of models and tools as blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from mttp.codec.pictures import png
from mttp.model.chat import Message, from_text, message_text, messages, pictures, reasoning, tool_calls
from mttp.model.episodes import Call, Step
from mttp.pages.blocks import Block, fact
from mttp.pages.recorded_facts import EMPTY, recorded_facts, troubles
from mttp.pages.words import duration
from mttp.reading.jsonable import to_json

__all__ = ["add_call", "call_block", "contents", "message_block", "parts", "result_block"]

_FEWEST_PIXELS: Final = 16
"""Images have at least this width and height; smaller arrays are numbers."""
_LARGEST_FRAME: Final = 1 << 20
"""Largest number of bytes of an image; larger arrays are shown as numbers."""
_FEW: Final = 32
_THOUGHT: Final = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def parts(value: Any, *, thinks: bool = False) -> list[dict[str, Any]]:
    """
    Return a value as parts of a message: texts, thoughts, JSON, arrays and pictures.

    What a model wrote `thinks`: its text between `<think>` and `</think>` is apart.
    """
    if isinstance(value, str):
        return [*_texts(value, thinks=thinks)] or [{"type": "text", "text": value or EMPTY}]
    if isinstance(value, np.ndarray):
        return [_frame(value) or _array(value)]
    return [] if value is None else [{"type": "json", "text": to_json(value)}]


def _texts(text: str, *, thinks: bool) -> Iterator[dict[str, Any]]:
    head, end, _ = text.partition("</think>")
    if thinks and end and "<think>" not in head:
        text = f"<think>{text}"  # the prompt has the first tag
    for place, piece in enumerate(_THOUGHT.split(text) if thinks else [text]):
        if piece.strip() or (piece and piece == text):
            yield {"type": "reasoning" if place % 2 else "text", "text": piece}


def _message_parts(message: Message) -> list[dict[str, Any]]:
    thought, text = reasoning(message), message_text(message)
    urls = [url for url in pictures(message) if url.startswith("data:image/") and ";base64," in url]
    return [
        *([{"type": "reasoning", "text": thought}] if thought else []),
        *(parts(text, thinks=message["role"] == "assistant") if text else []),
        *({"type": "picture", "text": "", "src": url} for url in urls),
    ]


def _array(value: np.ndarray[Any, Any]) -> dict[str, Any]:
    if value.ndim == 1 and value.size <= _FEW:  # numpy takes a hundred times as long
        text = f"[{', '.join(f'{item:.6g}' for item in value.tolist())}]" if value.dtype.kind in "fiu" else ""
    else:
        text = np.array2string(value, precision=5, threshold=200, edgeitems=3, max_line_width=100)
    return {"type": "array", "text": f"{text or value.tolist()} {value.dtype} {value.shape}"}


def _frame(value: np.ndarray[Any, Any]) -> dict[str, Any] | None:
    """Return an image that is neither tiny nor large as PNG; None for any other array."""
    if value.nbytes > _LARGEST_FRAME or min(value.shape[:2], default=0) < _FEWEST_PIXELS:
        return None
    if (encoded := png(value)) is None:
        return None
    size = f"picture, {value.shape[1]} by {value.shape[0]} pixels"
    return {"type": "picture", "text": size, "src": f"data:image/png;base64,{encoded}"}


def _block(role: str, shown: list[dict[str, Any]], part: str, name: str = "") -> Block:
    names = {"type": "message", "role": role, "name": name, "part": part, "words": ""}
    return {**names, "facts": [], "parts": shown, "blocks": []}


def contents(name: str, value: Any) -> list[Block]:
    """Return an observation, an action, arguments or a result as messages."""
    if (chat := messages(value)) is not None:
        return [message_block(message, name) for message in chat]
    return [] if value is None else [_block(name, parts(value, thinks=name == "action"), name)]


def message_block(message: Message, part: str) -> Block:
    """Return a message with its calls of tools."""
    name = str(message.get("name") or message.get("tool_call_id") or "")
    calls = [
        _call(f"calls {tool}", contents("arguments", from_text(arguments) if arguments else None))
        for tool, arguments in tool_calls(message)
    ]
    shown = _message_parts(message) or ([] if calls else parts(""))
    return {**_block(str(message["role"]), shown, part, name), "blocks": calls}


def result_block(message: Message) -> Block:
    """Return the message of a tool as the result of its call."""
    return _block("result", _message_parts(message) or parts(""), "result")


def _call(title: str, blocks: list[Block]) -> Block:
    return {"type": "call", "title": title, "words": "", "error": "", "facts": [], "blocks": blocks}


def call_block(call: Call, step: Step | None = None) -> Block:
    """Return a call with its request, answer, error and facts; what its step shows is left out."""
    block = _call(f"{call.operation} {call.name or ''}".rstrip(), [])
    if step is None or call.arguments is not step.observation:
        block["blocks"] += contents("arguments", call.arguments)
    if step is None or call.result is not step.action:
        block["blocks"] += contents("result", call.result)
    add_call(block, call)
    return block


def add_call(block: Block, call: Call) -> None:
    """Add what a call took to the header of a block, its facts, and its error."""
    words = [call.name] if block["type"] == "message" and call.name else []
    words += [f"{call.input_tokens:,} tokens in"] if call.input_tokens is not None else []
    words += [f"{call.output_tokens:,} tokens out"] if call.output_tokens is not None else []
    if call.start_time is not None and call.end_time is not None:
        words.append(duration((call.end_time - call.start_time) / 1e9))
    known = recorded_facts(call) | {f"parameters.{name}": value for name, value in call.parameters.items()}
    block["facts"] = [fact(name, value) for name, value in known.items()]
    block["words"] = ", ".join([*words, *call.finish_reasons])
    block["error"] = "; ".join(text for _, text in troubles(call))
