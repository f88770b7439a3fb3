"""
Every error that mttp raises on purpose.

    MttpError
    ├── ConfigureError      set-up was asked for something it can't do
    │   └── TransportError  a transport could not be opened
    ├── InstrumentError     a target can't be instrumented
    ├── MissingExtra        an optional dependency is not installed (also an ImportError)
    ├── ReadError           a recording can't be read
    ├── SpecError           a reward spec can't be used
    │   └── NeedsGroup      a component means something within a group only
    ├── StudyError          recordings can't be compared as asked
    ├── EncodeError         a message can't be written
    ├── SendError           a receiver did not take a message
    └── DecodeError         a message can't be read, or may not be trusted
        ├── EnvelopeError   it is no message: malformed, too large, or without what each must have
        ├── PayloadError    its payload is not what its type says
        ├── ChecksumError   its payload is not what was sent
        └── VersionError    it follows another version of the protocol

Nothing here is ever raised inside a training loop: recording counts and logs its faults instead.
"""

from __future__ import annotations

__all__ = [
    "ChecksumError",
    "ConfigureError",
    "DecodeError",
    "EncodeError",
    "EnvelopeError",
    "InstrumentError",
    "MissingExtra",
    "MttpError",
    "NeedsGroup",
    "PayloadError",
    "ReadError",
    "SendError",
    "SpecError",
    "StudyError",
    "TransportError",
    "VersionError",
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


class SpecError(MttpError, ValueError):
    """A reward spec, or the code that it names, can't be used; the message begins with file and line."""

    def __init__(
        self, reason: str, *, path: str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {reason}" if path else f"line {place}: {reason}" if place else reason)
        self.reason = reason
        """What is wrong, in words."""
        self.path = path
        """The spec's file, where it came from one."""
        self.line = line
        """The line at which it is wrong, from 1, where one can be named."""
        self.column = column
        """The column, from 1."""


class MissingExtra(MttpError, ImportError):  # noqa: N818 - reads as what it says
    """An optional dependency is not installed; the message says how to install it."""

    def __init__(self, *, package: str, extra: str | None, purpose: str) -> None:
        """`extra` is the extra of mttp that brings the package; None where none does."""
        what = package if extra is None else f"'mttp[{extra}]'"
        super().__init__(f"{purpose} needs {package}: pip install {what}")


class NeedsGroup(SpecError):  # noqa: N818 - reads as what it says
    """A component compares samples with each other, and there was only one; `rank` scores a group."""


class StudyError(MttpError, ValueError):
    """Recordings can't be compared as asked; the message says what to change."""


class EncodeError(MttpError, ValueError):
    """A message can't be written: what it should hold has no place in JSON."""


class SendError(MttpError):
    """The receiver did not take a message, or it could not be sent."""

    def __init__(
        self, message: str, *, cause: str, may_pass: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.cause = cause
        """Why, in a word: http_400, connection, timeout, tls, too_large, channel_full, closed, invalid."""
        self.may_pass = may_pass
        """Whether the same message may be taken later."""
        self.retry_after = retry_after
        """Seconds to wait before sending again, where the receiver states it."""


class DecodeError(MttpError, ValueError):
    """A message can't be read, or may not be trusted."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"byte {position:,}: {reason}")
        self.reason = reason
        """What is wrong, in words."""
        self.position = position
        """The byte at which it is wrong, from 0, where one can be named; of the payload in a PayloadError."""


class EnvelopeError(DecodeError):
    """What was received is no message: malformed, too large, or without what each must have."""


class PayloadError(DecodeError):
    """A payload is not what the message's type says, or there is no such type."""


class ChecksumError(DecodeError):
    """A payload is not the one that the checksum was computed of."""


class VersionError(DecodeError):
    """A version is no version, or none that both sides speak."""
