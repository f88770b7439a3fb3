"""Describes exceptions for spans and logs."""

from __future__ import annotations

import traceback

from mttp.model.interrupts import raise_interrupt

__all__ = ["error_message", "qualified_name", "traced"]


def qualified_name(exception: BaseException) -> str:
    """Return the qualified class name of an exception, as in `error.type`; builtins have no module."""
    kind = type(exception)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def error_message(exception: BaseException) -> str:
    """Return the message of an exception, or a substitute if `str` raises."""
    try:
        return str(exception)
    except Exception as error:
        raise_interrupt(error)
        return f"<{type(exception).__name__} whose message raised {type(error).__name__}>"


def traced(exception: BaseException) -> str:
    """
    Return the class and the traceback of an exception in one line for a log, outermost call first.

    Its message is omitted, because it may contain content.
    """
    frames = traceback.extract_tb(exception.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{qualified_name(exception)} at {places}" if places else qualified_name(exception)
