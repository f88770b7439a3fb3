"""Exceptions of the program's signal handlers pass; all other exceptions are suppressed."""

from __future__ import annotations

import functools
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from mttp.model.interrupts import is_interrupt, raise_interrupt, suppress_errors


class OutOfTimeError(Exception):
    pass


def _function(number: int, frame: object) -> None:
    raise OutOfTimeError


def _any_arguments(*_: object) -> None:
    raise OutOfTimeError


def _nested(number: int, frame: object) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    _any_arguments()


def _with_limit(limit: float, number: int, frame: object) -> None:
    raise OutOfTimeError(limit)


class _Limit:
    def on_alarm(self, number: int, frame: object) -> None:
        raise OutOfTimeError

    __call__ = on_alarm


_HANDLERS = {
    "function": _function,
    "any arguments": _any_arguments,
    "nested": _nested,
    "partial": functools.partial(_with_limit, 3.0),
    "method": _Limit().on_alarm,
    "object": _Limit(),
}


@pytest.mark.parametrize("handler", _HANDLERS.values(), ids=_HANDLERS.keys())
def test_handlers_exception_is_an_interrupt(handler: Callable[..., Any]) -> None:
    """The exception of a signal handler of any form passes the places that ignore exceptions."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(OutOfTimeError) as caught, suppress_errors():
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)

    assert is_interrupt(caught.value)
    with pytest.raises(OutOfTimeError):
        raise_interrupt(caught.value)


def test_other_exceptions_are_suppressed() -> None:
    """An exception without a signal handler in its traceback is no interrupt, whatever its class."""
    with suppress_errors():
        _function(signal.SIGALRM, None)
    with suppress_errors():
        raise TimeoutError("late")
    with pytest.raises(KeyboardInterrupt), suppress_errors():
        raise KeyboardInterrupt

    raise_interrupt(ValueError("no traceback"))


def test_other_threads_have_no_interrupts() -> None:
    """Signal handlers run in the main thread only, so that others need no search."""
    seen = []

    def call() -> None:
        try:
            _any_arguments()
        except OutOfTimeError as error:
            seen.append(is_interrupt(error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()

    assert seen == [False]


def _ignoring() -> None:
    with suppress_errors():
        int("x")


def _wrapping() -> None:
    try:
        signal.raise_signal(signal.SIGALRM)
    except OutOfTimeError as error:
        raise TypeError("no array") from error


def test_a_wrapped_interrupt_passes_as_itself() -> None:
    """A library may raise an error of its own because of the handler's exception."""
    before = signal.signal(signal.SIGALRM, _function)
    try:
        with pytest.raises(OutOfTimeError), suppress_errors():
            _wrapping()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_interrupt_that_the_program_handles_is_not_raised_again() -> None:
    """Errors of calls within its `except` block have it as their context."""
    before = signal.signal(signal.SIGALRM, _function)
    try:
        signal.raise_signal(signal.SIGALRM)
    except OutOfTimeError:
        _ignoring()
    finally:
        signal.signal(signal.SIGALRM, before)


def test_only_an_installed_handler_interrupts_code_with_handlers_of_its_own() -> None:
    """A grader that restores the program's handler, and lets its own time limit escape, has failed."""
    before = signal.signal(signal.SIGALRM, _function)
    try:
        with pytest.raises(OutOfTimeError) as caught:
            signal.raise_signal(signal.SIGALRM)
        with pytest.raises(OutOfTimeError):
            raise_interrupt(caught.value, installed=True)
    finally:
        signal.signal(signal.SIGALRM, before)
    raise_interrupt(caught.value, installed=True)
