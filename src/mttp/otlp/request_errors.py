"""Describes exceptions of HTTP requests: their kind and a message for people."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any, Literal, TypeAlias

__all__ = ["Kind", "RequestError", "request_error"]

Kind: TypeAlias = Literal[
    "name", "refused", "timeout", "untrusted", "no_tls", "tls", "closed", "cut", "foreign", "other"
]
"""The kind of error, from which callers derive advice."""

_SHOWN = 200
_CAUSES: dict[Kind, str] = {"timeout": "timeout", "untrusted": "tls", "no_tls": "tls", "tls": "tls"}
_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""OpenSSL's reasons for an answer that is not TLS."""


@dataclass(frozen=True, slots=True)
class RequestError:
    """The reason why a request has no complete answer."""

    kind: Kind
    """The kind of the error."""
    message: str
    """A description of the error."""

    @property
    def cause(self) -> str:
        """The cause in counters: timeout, tls or connection."""
        return _CAUSES.get(self.kind, "connection")


def request_error(error: BaseException, timeout: float) -> RequestError:
    """Return the description of an exception; `timeout` is the request's limit in seconds."""
    for cause in _causes(error):
        if (description := _known(cause, timeout)) is not None:
            return description
    return RequestError("other", " ".join(str(error).split())[:_SHOWN] or type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Return the chain of causes of an exception, innermost first: libraries wrap the specific ones."""
    chain: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in chain:
        chain.append(cause)
        inner = [getattr(cause, "reason", None), *cause.args, cause.__cause__]
        cause = next((item for item in inner if isinstance(item, BaseException)), None)
    return reversed(chain)


def _known(error: BaseException, timeout: float) -> RequestError | None:
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, socket.gaierror):
        return RequestError("name", f"unknown host name ({error.strerror})")
    if isinstance(error, TimeoutError):
        return RequestError("timeout", f"no answer within {timeout:g} seconds")
    if isinstance(error, ConnectionRefusedError):
        return RequestError("refused", "connection refused")
    if isinstance(error, (RemoteDisconnected, ConnectionError)):
        return RequestError("closed", "the connection was closed without an answer")
    if isinstance(error, IncompleteRead):
        partial: Any = error.partial  # bytes, or with urllib3 their number
        count = partial if isinstance(partial, int) else len(partial)
        return RequestError("cut", f"the answer ended after {count:,} bytes")
    if isinstance(error, HTTPException):
        return RequestError("foreign", "the server does not speak HTTP")
    if isinstance(error, OSError) and error.strerror:
        return RequestError("other", error.strerror)
    return None


def _of_tls(error: ssl.SSLError) -> RequestError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return RequestError(
            "untrusted", f"its certificate can't be trusted: {error.verify_message.rstrip('.')}"
        )
    if error.reason in _NO_TLS:
        return RequestError("no_tls", "the server does not speak TLS")
    return RequestError("tls", f"TLS failed: {error.reason or error}")
