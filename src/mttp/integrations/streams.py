"""Streams that a library returns: a listener sees each piece, and the end, as the user reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import wrapt

from mttp.integrations.faults import guard

__all__ = ["Listener", "listen"]


class Listener(Protocol):
    """Who hears what a stream gives."""

    def heard(self, piece: Any) -> None:
        """The user is about to get this piece."""

    def over(self, error: BaseException | None = None) -> None:
        """There is no more: it was read to its end, closed before, or raised this; said at least once."""


class _Pieces(wrapt.ObjectProxy):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """An iterator, whose pieces are heard."""

    def __init__(self, wrapped: Any, heard: Callable[[Any], object], over: Callable[..., object]) -> None:
        super().__init__(wrapped)
        self._self_heard = heard
        self._self_over = over

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            piece = next(self.__wrapped__)
        except StopIteration:
            self._self_over()
            raise
        except BaseException as error:
            self._self_over(error)
            raise
        self._self_heard(piece)
        return piece

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            piece = await anext(self.__wrapped__)
        except StopAsyncIteration:
            self._self_over()
            raise
        except BaseException as error:
            self._self_over(error)
            raise
        self._self_heard(piece)
        return piece


def listen(library: str, stream: Any, listener: Listener, *, iterator: str, is_async: bool) -> None:
    """
    Hear what a stream gives from here on; it stays the same object.

    `iterator` is the attribute from which it takes its pieces; raises AttributeError where there is none.
    """
    over = partial(guard, library, listener.over)
    pieces = _Pieces(getattr(stream, iterator), partial(guard, library, listener.heard), over)
    closing = _closing_async if is_async else _closing
    vars(stream).update({iterator: pieces, "close": wrapt.FunctionWrapper(stream.close, closing(over))})


def _closing(over: Callable[[], object]) -> Callable[..., Any]:
    def close(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        try:
            return wrapped(*args, **kwargs)
        finally:
            over()

    return close


def _closing_async(over: Callable[[], object]) -> Callable[..., Any]:
    async def close(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        try:
            return await wrapped(*args, **kwargs)
        finally:
            over()

    return close
