"""Exceptions as spans tell of them."""

from __future__ import annotations

import traceback

__all__ = ["error_message", "qualified_name", "traced"]


def qualified_name(exception: BaseException) -> str:
    """An exception's class as `error.type` wants it, builtins without their module."""
    kind = type(exception)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_message(exception: BaseException) -> str:
    """What an exception says, be it that it can't."""
    try:
        return str(exception)
    except Exception as error:
        return f"<{type(exception).__name__} whose message raised {type(error).__name__}>"


def traced(exception: BaseException) -> str:
    """
    An exception's class and where it was raised, outermost call first, as one line for a log.

    Its message is left out, which may quote content.
    """
    frames = traceback.extract_tb(exception.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{qualified_name(exception)} at {places}" if places else qualified_name(exception)
