"""Messages over HTTP: one is one POST, as the stack's own tools receive them."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from mttp.errors import SendError, TransportError
from mttp.messages import Message
from mttp.printable import one_line
from mttp.transports.options import ByteCount, Headers, ReadableFile, Seconds, take, with_query
from mttp.wire.deadlines import TimelyResponse
from mttp.wire.replies import printable, seconds_to_wait
from mttp.wire.troubles import Kind, trouble

__all__ = ["MIST_PATH", "HttpOutlet", "open"]

MIST_PATH = "/mist"
"""Where the stack's tools take messages."""
MAX_BYTES = 2**20
"""The stack's own listeners read no more of a message, and answer 400."""
TIMEOUT = 10.0
"""Seconds that one message may take."""
_BODY_BYTES = 1 << 16
_MAY_PASS = frozenset({408, 425, 429})
_ADVICE = {
    401: "give credentials as headers",
    403: "give credentials as headers",
    404: "check the path, which is /mist for the stack's tools",
    405: "does it receive messages there? the stack's tools do at /mist",
}

_TLS = "check certificates, and whether the receiver uses TLS: https does, http does not"
_TROUBLES: dict[Kind, str] = {
    "name": "check the address",
    "nobody": "is a receiver running there, and is this its port?",
    "timeout": "timeout=N waits longer",
    "untrusted": f"certificate=FILE names whose certificates are trusted; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "closed": f"does it receive messages there? {_TLS}",
}
_CAUSES: dict[Kind, str] = {"timeout": "timeout", "untrusted": "tls", "no_tls": "tls", "tls": "tls"}


class HttpOutlet:
    """
    Posts to one URL, over a connection that is kept open.

    `timeout` is how many seconds one message may take, `max_bytes` how many bytes it may have;
    `headers` are sent with each, and `certificate` is a file of those that the receiver's is checked against.
    """

    is_stream: ClassVar[bool] = False
    is_remote: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        timeout: Seconds = TIMEOUT,
        max_bytes: ByteCount = MAX_BYTES,
        headers: Headers | None = None,
        certificate: ReadableFile | None = None,
    ) -> None:
        parts = _checked(url)
        self.url = url if parts.path else f"{url}{MIST_PATH}"
        self.max_bytes = max_bytes
        self._host, self._path = parts.netloc, parts.path or MIST_PATH
        self._timeout = timeout
        self._headers = {"content-type": "application/json", **(headers or {})}
        self._certificate = certificate
        self._tls = _tls(certificate) if parts.scheme == "https" else None
        self._closed = False
        self.after_fork()

    @property
    def address(self) -> str:
        """The URL, with what was asked for but for headers."""
        options: dict[str, object] = {} if self._timeout == TIMEOUT else {"timeout": self._timeout}
        options |= {} if self.max_bytes == MAX_BYTES else {"max_bytes": self.max_bytes}
        options |= {"certificate": self._certificate} if self._certificate else {}
        return with_query(f"mttp+{self.url}", options)

    def send(self, messages: Sequence[Message]) -> None:
        """Post them one after another, up to the first that is not taken."""
        for message in messages:
            body = message.to_bytes()
            if len(body) > self.max_bytes:
                raise SendError(
                    f"a {message.type} message takes {len(body):,} bytes, "
                    f"the receiver takes {self.max_bytes:,}; if it takes more, say so by max_bytes",
                    cause="too_large",
                )
            with self._lock:
                self._post(body)

    def close(self) -> None:
        """Break off what is being sent, and release the connection."""
        self._closed = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with suppress(OSError):
                connection.sock.shutdown(SHUT_RDWR)
        if self._lock.acquire(blocking=False):
            self._drop()
            self._lock.release()

    def after_fork(self) -> None:
        """In a forked child: connect anew; the parent's connection is left alone."""
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"mttp+{self.url}"

    def _post(self, body: bytes) -> None:
        """Post once; once more at once where a connection broke that may have been kept open too long."""
        until = time.monotonic() + self._timeout
        was_open = self._connection is not None
        try:
            try:
                self._exchange(body, until)
            except ConnectionError:
                if not was_open:
                    raise
                self._exchange(body, until)
        except (OSError, HTTPException, ValueError) as error:  # the last if closed meanwhile
            raise self._unanswered(error) from error

    def _exchange(self, body: bytes, until: float) -> None:
        connection = self._connected(until)
        response = None
        try:
            try:
                connection.request("POST", self._path, body, self._headers)
            except (BrokenPipeError, ConnectionResetError):
                is_whole = False  # whoever has heard enough may have answered all the same
            else:
                is_whole = True
            connection.response_class = partial(TimelyResponse, until=until)  # type: ignore[assignment]
            response = connection.getresponse()
            said = _beginning(response)
        finally:
            is_reusable = response is not None and response.isclosed() and connection.sock is not None
            if not (is_whole and is_reusable):
                self._drop()
        _judge(response, said)

    def _connected(self, until: float) -> HTTPConnection:
        left = until - time.monotonic()
        if self._closed:
            raise SendError(f"{self} is closed", cause="closed")
        if left <= 0:
            raise TimeoutError("the time is up")
        if self._connection is None:
            connection = (
                HTTPConnection(self._host, timeout=left)
                if self._tls is None
                else HTTPSConnection(self._host, timeout=left, context=self._tls)
            )
            self._connection = connection
            connection.connect()
        assert self._connection.sock is not None
        self._connection.sock.settimeout(max(until - time.monotonic(), 0.001))
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _unanswered(self, error: Exception) -> SendError:
        """Why there is no answer, and what may be wrong."""
        self._drop()
        if self._closed:
            return SendError(f"{self} is closed", cause="closed")
        found = trouble(error, self._timeout)
        advice = _TROUBLES.get(found.kind, "does it receive messages there?")
        cause = _CAUSES.get(found.kind, "connection")
        return SendError(f"{self}: {found.said}; {advice}", cause=cause, may_pass=True)


def _beginning(response: HTTPResponse) -> bytes:
    """The beginning of a body; what can't be read changes nothing about the status."""
    try:
        return response.read(_BODY_BYTES)
    except (OSError, HTTPException, ValueError):
        return b""


def _judge(response: HTTPResponse, body: bytes) -> None:
    """Raise SendError unless the message was taken."""
    status = response.status
    if 200 <= status < 300:
        return
    reason = one_line(response.reason or "")
    said = ": ".join(filter(None, (f"{status} {reason}".strip(), printable(body))))
    raise SendError(
        f"{said} ({_ADVICE[status]})" if status in _ADVICE else said,
        cause=f"http_{status}",
        may_pass=status in _MAY_PASS or status >= 500,
        retry_after=seconds_to_wait(response.headers.get("retry-after", "")),
    )


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises where it is none
    except ValueError as error:
        raise TransportError(f"{error}; write mttp+{url.partition('://')[0]}://HOST:PORT") from error
    if not parts.hostname:
        raise TransportError(f"no host; write mttp+{parts.scheme}://HOST:PORT")
    if "@" in parts.netloc:
        raise TransportError("an address holds no credentials; give them as headers")
    return parts


def _tls(certificate: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=certificate)
    except (OSError, ValueError) as error:
        raise TransportError(f"certificate {certificate} can't be used: {error}") from error


def open(address: str, options: Mapping[str, object]) -> HttpOutlet:
    """A receiver; where its address has no path, messages go to /mist."""
    url = address.removeprefix("mttp+")
    url = url if urlsplit(url).path.strip("/") else url.rstrip("/")
    return HttpOutlet(url, **take(options, HttpOutlet))
