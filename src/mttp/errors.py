"""
Every error that mttp raises on purpose.

    MttpError
    ├── ConfigureError      set-up was asked for something it can't do
    │   └── TransportError  a transport could not be opened
    ├── InstrumentError     a target can't be instrumented
    ├── MissingExtra        an optional dependency is not installed (also an ImportError)
    └── ReadError           a recording can't be read

Nothing here is ever raised inside a training loop: recording counts and logs its faults instead.
"""

from __future__ import annotations

__all__ = [
    "ConfigureError",
    "InstrumentError",
    "MissingExtra",
    "MttpError",
    "ReadError",
    "TransportError",
]


class MttpError(Exception):
    """Something that mttp was asked to do could not be done."""


class ConfigureError(MttpError, ValueError):
    """Set-up was asked for something it can't do."""


class TransportError(ConfigureError):
    """A transport's address is wrong, or what it names can't be opened."""


class InstrumentError(MttpError, TypeError):
    """Nothing here knows how to instrument the target."""


class ReadError(MttpError):
    """A recording is missing, is not a recording, or (when reading strictly) has a problem."""


class MissingExtra(MttpError, ImportError):  # noqa: N818 - reads as what it says
    """An optional dependency is not installed; the message says which extra brings it."""

    def __init__(self, *, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'mttp[{extra}]'")
