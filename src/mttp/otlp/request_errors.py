"""What kept a request from being answered, in plain words instead of a library's."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any, Literal, TypeAlias

__all__ = ["Kind", "RequestError", "trouble"]

Kind: TypeAlias = Literal[
    "name", "nobody", "timeout", "untrusted", "no_tls", "tls", "closed", "cut", "foreign", "other"
]
"""The kind of error, from which callers derive advice."""

_SHOWN = 200
_CAUSES: dict[Kind, str] = {"timeout": "timeout", "untrusted": "tls", "no_tls": "tls", "tls": "tls"}
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""What OpenSSL says of an answer that is no TLS."""


@dataclass(frozen=True, slots=True)
class RequestError:
    """Why there is no answer."""

    kind: Kind
    """Which sort of trouble."""
    said: str
    """What is wrong, in words."""

    @property
    def cause(self) -> str:
        """What it is counted as: timeout, tls or connection."""
        return _CAUSES.get(self.kind, "connection")


def trouble(error: BaseException, timeout: float) -> RequestError:
    """What an exception of a request, which may have taken so many seconds, comes to."""
    for cause in _causes(error):
        if (found := _known(cause, timeout)) is not None:
            return found
    return RequestError("other", " ".join(str(error).split())[:_SHOWN] or type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that led to one, itself last: libraries wrap those that say what happened."""
    chain: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in chain:
        chain.append(found)
        inner = [getattr(found, "reason", None), *found.args, found.__cause__]
        found = next((item for item in inner if isinstance(item, BaseException)), None)
    return reversed(chain)


def _known(error: BaseException, timeout: float) -> RequestError | None:
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, socket.gaierror):
        return RequestError("name", f"the host's name is unknown ({error.strerror})")
    if isinstance(error, TimeoutError):
        return RequestError("timeout", f"no answer within {timeout:g} seconds")
    if isinstance(error, ConnectionRefusedError):
        return RequestError("nobody", "nobody listens there (connection refused)")
    if isinstance(error, (RemoteDisconnected, ConnectionError)):
        return RequestError("closed", "the connection was closed without an answer")
    if isinstance(error, IncompleteRead):
        got: Any = error.partial  # bytes, or with urllib3 how many
        count = got if isinstance(got, int) else len(got)
        return RequestError("cut", f"the answer broke off after {count:,} bytes")
    if isinstance(error, HTTPException):
        return RequestError("foreign", "what answers there does not speak HTTP")
    if isinstance(error, OSError) and error.strerror:
        return RequestError("other", f"it can't be reached ({error.strerror})")
    return None


def _of_tls(error: ssl.SSLError) -> RequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return RequestError(
            "untrusted", f"its certificate can't be trusted: {error.verify_message.rstrip('.')}"
        )
    if error.reason in _NO_TLS:
        return RequestError("no_tls", "what answers there does not speak TLS")
    return RequestError("tls", f"TLS failed: {error.reason or error}")
