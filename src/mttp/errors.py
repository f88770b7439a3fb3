"""
The exceptions that mttp raises.

    MttpError
    ├── ConfigureError      a setting is invalid
    │   └── TransportError  a transport can't be opened
    ├── InstrumentError     a target can't be instrumented
    ├── MissingExtra        an optional dependency is not installed (also an ImportError)
    ├── ReadError           a recording can't be read
    ├── SpecError           a reward spec can't be used
    │   └── NeedsGroup      a component compares the samples of a group
    ├── StudyError          recordings can't be compared as asked
    ├── EncodeError         a message can't be written
    ├── SendError           a message was not delivered
    └── DecodeError         a message can't be decoded
        ├── EnvelopeError   the envelope is malformed, incomplete or too large
        ├── PayloadError    the payload does not match the message's type
        ├── ChecksumError   the payload does not match its checksum
        └── VersionError    the protocol version is not supported

Recording never raises inside a training loop: it counts and logs faults instead.
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
    """The base class of all exceptions that mttp raises."""


class ConfigureError(MttpError, ValueError):
    """A setting is invalid; the message names the setting, its value and what to change."""


class TransportError(ConfigureError):
    """A transport's address is invalid, or its target can't be opened."""


class InstrumentError(MttpError, TypeError):
    """No integration can instrument the target."""


class ReadError(MttpError):
    """A recording is missing or is not a recording; under strict reading, a recording has a problem."""


class SpecError(MttpError, ValueError):
    """A reward spec or the code it refers to can't be used; the message begins with file and line."""

    def __init__(
        self, reason: str, *, path: str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        place = ":".join(str(part) for part in (path, line, column) if part is not None)
        super().__init__(f"{place}: {reason}" if path else f"line {place}: {reason}" if place else reason)
        self.reason = reason
        """The message without the position."""
        self.path = path
        """The file of the spec; None for a spec without a file."""
        self.line = line
        """The line of the error, from 1; None if unknown."""
        self.column = column
        """The column of the error, from 1; None if unknown."""


class MissingExtra(MttpError, ImportError):  # noqa: N818 - reads as what it says
    """An optional dependency is not installed; the message says how to install it."""

    def __init__(self, *, package: str, extra: str | None, purpose: str) -> None:
        """Name the extra of mttp that installs the package; None if no extra does."""
        what = package if extra is None else f"'mttp[{extra}]'"
        super().__init__(f"{purpose} needs {package}: pip install {what}")


class NeedsGroup(SpecError):  # noqa: N818 - reads as what it says
    """A component compares samples with each other and can't score a single one; `rank` scores a group."""


class StudyError(MttpError, ValueError):
    """The recordings or arguments of a study can't be used; the message says what to change."""


class EncodeError(MttpError, ValueError):
    """A message can't be encoded: a value has no representation in JSON."""


class SendError(MttpError):
    """A message could not be sent, or the receiver rejected it."""

    def __init__(
        self, message: str, *, cause: str, may_pass: bool = False, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.cause = cause
        """The cause: http_400, connection, timeout, tls, too_large, channel_full, closed or invalid."""
        self.may_pass = may_pass
        """Whether sending the message again may succeed."""
        self.retry_after = retry_after
        """Seconds to wait before a retry, as requested by the receiver; None without a request."""


class DecodeError(MttpError, ValueError):
    """A message can't be decoded."""

    def __init__(self, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason if position is None else f"byte {position:,}: {reason}")
        self.reason = reason
        """The message without the position."""
        self.position = position
        """The byte offset of the error, in the payload for a PayloadError; None if unknown."""


class EnvelopeError(DecodeError):
    """The envelope of a message is malformed, too large, or lacks a required field."""


class PayloadError(DecodeError):
    """A payload does not match the message's type, or the type is unknown."""


class ChecksumError(DecodeError):
    """A payload does not match its checksum."""


class VersionError(DecodeError):
    """A protocol version is invalid, or the two sides have none in common."""
