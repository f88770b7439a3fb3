"""`Conversation`, the chat messages that a trajectory's model calls have recorded so far."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mttp.codec.plain import scalar_text
from mttp.model.chat import from_text
from mttp.model.interrupts import raise_interrupt

if TYPE_CHECKING:
    from mttp.recording.open_step import OpenStep

__all__ = ["Conversation", "Request"]

_SCALARS = frozenset({str, int, float, bool, type(None), bytes})
_TEXTS = ("text", "input_text", "output_text")
"""Types of parts that are text."""


class Request(NamedTuple):
    """The messages of a request, as they are recorded."""

    new: list[Any]
    """Those that are not recorded yet."""
    history: Sequence[int]
    """All its messages as ranges among the recorded ones: start and end of each."""


class Conversation:
    """
    The recorded messages, each as hashes of its text and of its tool calls.

    So an answer is known again in any form in which a program sends it back.
    """

    def __init__(self) -> None:
        self.step: OpenStep | None = None
        """The step of the last request, to which later tool calls belong."""
        self._pieces: list[int] = []
        self._positions: list[int] = []
        """The position of the message of each piece."""
        self._count = 0
        self._lock = threading.Lock()

    def ask(self, messages: Iterable[Any], *, is_continued: bool = False) -> Request:
        """
        Add the messages of a request.

        `is_continued` says that the server adds them to the conversation that it keeps.
        """
        with self._lock:
            known = len(self._pieces)
            place = known if is_continued else 0
            new, positions = [], [*range(self._count)] if is_continued else list[int]()
            for message in messages:
                pieces = _pieces(message)
                is_repeated = is_continued and _role(message) == "system"
                start = self._find(pieces, 0 if is_repeated else place, known)
                if start is None:
                    new.append(message)
                    positions.append(self._add(pieces))
                elif not is_repeated:
                    place = start + len(pieces)
                    positions += self._positions[start:place]
            return Request(new, _ranges(positions))

    def answer(self, message: Any) -> None:
        """Add an answer."""
        with self._lock:
            self._add(_pieces(message))

    def _add(self, pieces: Sequence[int]) -> int:
        """Add a message and return its position."""
        self._pieces += pieces
        self._positions += [self._count] * len(pieces)
        self._count += 1
        return self._count - 1

    def _find(self, pieces: Sequence[int], start: int, end: int) -> int | None:
        """Return where these pieces are recorded between two places."""
        size = len(pieces)
        while start <= end - size:
            if self._pieces[start : start + size] == pieces:
                return start
            try:
                start = self._pieces.index(pieces[0], start + 1, end)
            except ValueError:
                return None
        return None


def _ranges(positions: Iterable[int]) -> list[int]:
    ranges: list[int] = []
    for position in positions:
        if not ranges or position not in (ranges[-1] - 1, ranges[-1]):
            ranges += [position, position]
        ranges[-1] = position + 1
    return ranges


def _pieces(message: Any) -> list[int]:
    """Return the hashes of a message's text and of its tool calls, in order."""
    try:
        return [*map(hash, _parts(message))]
    except Exception as error:  # what can't be compared is new
        raise_interrupt(error)
        return [hash(object())]


def _parts(message: Any) -> Iterator[Any]:
    if not isinstance(message, Mapping):
        yield scalar_text(message)
        return
    calls = message.get("tool_calls") or message.get("function_call") or ()
    content, refusal = message.get("content"), message.get("refusal")
    parts = content if isinstance(content, (list, tuple)) else [content]
    texts = [part for part in map(_text, parts) if part is not None]
    others = [_frozen(part) for part in parts if _text(part) is None and part is not None]
    text = "\n".join(filter(None, [*texts, refusal]))
    if text or others or not calls:
        yield message.get("role"), message.get("tool_call_id"), text, *others
    for call in [calls] if isinstance(calls, Mapping) else calls:
        function = call.get("function", call)
        yield "calls", function.get("name"), _frozen(from_text(function.get("arguments")))


def _role(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def _text(part: Any) -> str | None:
    if isinstance(part, Mapping) and part.get("type") in _TEXTS:
        part = part.get("text")
    return part if isinstance(part, str) else None


def _frozen(value: Any) -> Any:
    """Return plain data as an object with a hash."""
    if isinstance(value, Mapping):
        return frozenset((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return value if type(value) in _SCALARS else scalar_text(value)
