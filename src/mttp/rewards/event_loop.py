"""The background event loop that runs asynchronous components for synchronous callers."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Awaitable
from concurrent.futures import Future
from typing import Any

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


class TimeLimitError(Exception):
    """An awaitable exceeded its time limit and was cancelled."""


async def limited(awaitable: Awaitable[Any], timeout: float | None) -> Any:
    """Await with a time limit in seconds; raises TimeLimitError, and what the awaitable raises."""
    if timeout is None:
        return await awaitable
    task = asyncio.ensure_future(awaitable)
    try:
        finished, _ = await asyncio.wait({task}, timeout=timeout)
    except asyncio.CancelledError:
        task.cancel()
        raise
    if finished:
        return task.result()
    task.cancel()
    raise TimeLimitError(f"timed out after {timeout:g} s")


def wait(awaitable: Awaitable[Any], timeout: float | None) -> Any:
    """
    Run an awaitable on a background event loop, in the caller's context, and wait for its result.

    One loop serves the process, so that a judge's client keeps its connections between calls.
    """
    future: Future[Any] = Future()
    loop = _running()
    if threading.current_thread() is _thread:
        getattr(awaitable, "close", lambda: None)()
        raise RuntimeError(
            "can't score synchronously inside an asynchronous component; use `await spec.ascore(...)`"
        )
    loop.call_soon_threadsafe(_start, awaitable, timeout, future, context=contextvars.copy_context())
    return future.result()


def _start(awaitable: Awaitable[Any], timeout: float | None, future: Future[Any]) -> None:
    def settle(task: asyncio.Future[Any]) -> None:
        _tasks.discard(task)
        if task.cancelled():
            future.cancel()
        elif (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    task = asyncio.ensure_future(limited(awaitable, timeout))
    _tasks.add(task)  # an event loop has only weak references to its tasks
    task.add_done_callback(settle)


_tasks: set[asyncio.Future[Any]] = set()


def _running() -> asyncio.AbstractEventLoop:
    global _loop, _thread
    with _lock:
        if _loop is None or _thread is None or not _thread.is_alive():  # the child of a fork has no threads
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="mttp-rewards", daemon=True)
            _thread.start()
        return _loop
