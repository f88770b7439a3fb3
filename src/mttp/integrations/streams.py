"""Listening to streams that a library returns, while the user reads them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import wrapt

from mttp.integrations.faults import guard

__all__ = ["StreamListener", "listen"]


class StreamListener(Protocol):
    """A listener to one stream."""

    def on_chunk(self, chunk: Any) -> None:
        """Called with each chunk before the user gets it."""

    def on_end(self, error: BaseException | None = None) -> None:
        """Called, possibly more than once, when the stream ends, is closed, or raises `error`."""


class _ChunkIterator(wrapt.ObjectProxy):  # type: ignore[type-arg]  # generic since wrapt 2 only
    """The iterator of a stream's chunks, with a listener."""

    def __init__(
        self, wrapped: Any, on_chunk: Callable[[Any], object], on_end: Callable[..., object]
    ) -> None:
        super().__init__(wrapped)
        self._self_on_chunk = on_chunk
        self._self_on_end = on_end

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        try:
            chunk = next(self.__wrapped__)
        except StopIteration:
            self._self_on_end()
            raise
        except BaseException as error:
            self._self_on_end(error)
            raise
        self._self_on_chunk(chunk)
        return chunk

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self.__wrapped__)
        except StopAsyncIteration:
            self._self_on_end()
            raise
        except BaseException as error:
            self._self_on_end(error)
            raise
        self._self_on_chunk(chunk)
        return chunk


def listen(library: str, stream: Any, listener: StreamListener, *, iterator: str, is_async: bool) -> None:
    """
    Call the listener for each chunk and at the end of a stream, which stays the same object.

    `iterator` is the stream's attribute that yields its chunks; raises AttributeError if it does not exist.
    """
    on_end = partial(guard, library, listener.on_end)
    chunks = _ChunkIterator(getattr(stream, iterator), partial(guard, library, listener.on_chunk), on_end)
    closing = _closing_async if is_async else _closing
    vars(stream).update({iterator: chunks, "close": wrapt.FunctionWrapper(stream.close, closing(on_end))})


def _closing(on_end: Callable[[], object]) -> Callable[..., Any]:
    def close(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        try:
            return wrapped(*args, **kwargs)
        finally:
            on_end()

    return close


def _closing_async(on_end: Callable[[], object]) -> Callable[..., Any]:
    async def close(wrapped: Callable[..., Any], _: Any, args: Any, kwargs: Any) -> Any:
        try:
            return await wrapped(*args, **kwargs)
        finally:
            on_end()

    return close
