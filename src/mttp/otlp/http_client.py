"""The HTTP client: one deadline for a whole request and its answer."""

from __future__ import annotations

import math
import os
import socket
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from io import BufferedReader, RawIOBase
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from mttp.errors import TransportError
from mttp.model import clock
from mttp.model.printable import one_line
from mttp.model.version import __version__
from mttp.otlp.descriptors import Descriptor, above_standard
from mttp.otlp.replies import MESSAGE_CHARACTERS, printable, redacted
from mttp.otlp.request_errors import RequestError, request_error

__all__ = ["HttpClient", "NoReply", "Reply", "proxy_of"]

_PIECE = 1 << 14
"""Bytes of one write; each TLS record has the socket's whole timeout, so records are small."""
_READ = 1 << 16
_CONNECTIONS = 8
"""Connections that are kept open, for threads that send concurrently."""
_FAULTS = (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer of a server."""

    status: int
    """The status code."""
    reason: str
    """The reason phrase."""
    headers: Mapping[str, str]
    """The headers; look-ups ignore case."""
    body: bytes
    """The body, decompressed, up to the limit of the request."""
    cut: RequestError | None = None
    """The reason if the body is incomplete, else None."""

    @property
    def location(self) -> str:
        """The target of a redirect; empty for other replies."""
        target = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        return one_line(target)[:MESSAGE_CHARACTERS]

    def summary(self, sent: Mapping[str, str], body: bytes | None = None) -> str:
        """Return status, reason and start of the body in one line, without secrets of the sent headers."""
        words = printable(self.body if body is None else body, sent)
        status = f"{self.status} {redacted(self.reason, sent)[:MESSAGE_CHARACTERS]}".strip()
        return f"{status}: {words}" if words else status


class NoReply(Exception):  # noqa: N818 - reads as what it says
    """No status arrived before the deadline."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error.message)
        self.error = error
        """The reason."""


class HttpClient:
    """
    Sends requests from any thread, over connections that are kept open.

    HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY select the proxy when the client is created, unless
    `is_direct`. Redirects are not followed. A forked child opens its own connections.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, is_direct: bool = False) -> None:
        self._proxy = None if is_direct else proxy_of(urlsplit(url))
        self._tls = tls
        self._open()

    def _open(self) -> None:
        self._process = os.getpid()
        self._running: set[_Exchange] = set()
        options: dict[str, Any] = {"maxsize": _CONNECTIONS, "retries": False, "ssl_context": self._tls}
        if self._proxy is None:
            self._pools = urllib3.PoolManager(**options)
        else:
            user, _, host = self._proxy.netloc.rpartition("@")
            options["proxy_headers"] = urllib3.make_headers(proxy_basic_auth=unquote(user)) if user else None
            self._pools = urllib3.ProxyManager(f"{self._proxy.scheme}://{host}", **options)
        self._pools.pool_classes_by_scheme = {"http": _ConnectionPool, "https": _SecureConnectionPool}

    def request(
        self, url: str, body: bytes | None, *, headers: Mapping[str, str], timeout: float, max_bytes: int
    ) -> Reply:
        """
        Send a POST of the body, or a GET if it is None, and return the reply.

        At most `max_bytes` of the reply's body are read, decompressed.
        If the connection breaks, the request is sent once more: the server may have closed it while idle.
        Raises NoReply if no status arrives within `timeout` seconds.
        """
        if self._process != os.getpid():
            self._open()
        method = "GET" if body is None else "POST"
        send = partial(self._pools.urlopen, method, url, body=body, timeout=None, preload_content=False)
        sent = {"user-agent": f"mttp/{__version__}", **headers}
        exchange = _Exchange(clock.seconds() + timeout)
        token = _CURRENT.set(exchange)
        self._running.add(exchange)
        try:
            response = self._sent(partial(send, headers=sent, redirect=False), timeout)
            content, cut = _read(response, max_bytes, timeout)
        finally:
            self._running.discard(exchange)
            _CURRENT.reset(token)
        reason = one_line(response.reason or "")
        return Reply(status=response.status, reason=reason, headers=response.headers, body=content, cut=cut)

    def close(self) -> None:
        """Close idle connections; others are closed after their answer."""
        self._pools.clear()

    def break_off(self) -> None:
        """Abort all requests and close all connections, from any thread."""
        if self._process == os.getpid():  # else the requests are the parent's
            for exchange in list(self._running):
                exchange.break_off()
        self.close()

    def _sent(self, send: Callable[[], Any], timeout: float, *, once_more: bool = True) -> Any:
        """Send a request and return the response after its status and headers; raises NoReply."""
        try:
            return send()
        except _FAULTS as error:
            failure = request_error(error, timeout)
            if failure.kind == "closed" and once_more:
                return self._sent(send, timeout, once_more=False)
            if self._proxy is not None and isinstance(error, urllib3.exceptions.ProxyError):
                place = self._proxy.netloc.rpartition("@")[2]
                message = f"the proxy {place}, set in the environment, failed: {failure.message}"
                failure = RequestError(failure.kind, message)
            raise NoReply(failure) from error


class _Exchange:
    """A request in progress."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.connection: _ClientConnection | None = None
        self._is_over = False

    def left(self) -> float:
        """Return the seconds until the deadline; raises OSError after it, or if the request was aborted."""
        if self._is_over:
            raise ConnectionAbortedError("the request was aborted")
        if (left := self.until - clock.seconds()) <= 0:
            raise TimeoutError("the deadline has passed")
        return left

    def break_off(self) -> None:
        """Abort the request, from another thread."""
        self._is_over = True
        with suppress(AttributeError, OSError, TypeError):  # not connected yet, or already closed
            self.connection.let_go()  # type: ignore[union-attr]
            socket.socket.shutdown(self.connection.sock, socket.SHUT_RDWR)  # type: ignore[union-attr]


_CURRENT: ContextVar[_Exchange] = ContextVar("mttp_http_exchange")
"""The request of this thread, from which its connection gets the deadline."""


class _Response(HTTPResponse):
    """A response whose reads end at the deadline of its request."""

    def __init__(self, connected: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(connected, *args, **options)
        self.fp.close()
        deadline = _Deadline(connected)
        deadline.until = _CURRENT.get().until
        self.fp = BufferedReader(deadline)


class _ClientConnection(urllib3.connection.HTTPConnection):
    """A connection whose operations end at the deadline of their request."""

    response_class = _Response
    _descriptor: Descriptor | None = None

    def _new_conn(self) -> socket.socket:
        exchange = _CURRENT.get()
        self.timeout = exchange.left()
        connected = socket.socket(fileno=above_standard(super()._new_conn().detach()))
        self._descriptor = Descriptor(connected.fileno())
        connected.settimeout(exchange.left())
        return connected

    def let_go(self) -> bool:
        """Drop the socket if its number is another file's by now; return whether it is."""
        is_lost = self._descriptor is not None and not self._descriptor.is_ours
        if is_lost and self.sock is not None:
            self.sock.detach()
        return is_lost

    def close(self) -> None:
        self.let_go()
        super().close()

    def send(self, data: Any) -> None:
        exchange = _CURRENT.get()
        exchange.connection = self
        if self.sock is None:
            self.connect()
        elif self.let_go():
            raise ConnectionResetError("the program has closed the descriptor of the connection")
        for start in range(0, len(data), _PIECE):
            self.sock.settimeout(exchange.left())
            super().send(data[start : start + _PIECE])


class _SecureConnection(_ClientConnection, urllib3.connection.HTTPSConnection):
    """A connection over TLS with a deadline."""


class _ConnectionPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _ClientConnection


class _SecureConnectionPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _read(response: Any, limit: int, timeout: float) -> tuple[bytes, RequestError | None]:
    """Read the body up to `limit`, and return it with the reason if it is incomplete."""
    pieces, left = [], limit
    cut = RequestError("cut", f"the answer is longer than {limit:,} bytes")
    try:
        while left and (piece := response.read1(min(left, _READ), decode_content=True)):
            pieces.append(piece)
            left -= len(piece)
        if left or not response.read1(1, decode_content=True):
            return b"".join(pieces), None
    except _FAULTS as error:
        cut = request_error(error, timeout)
    finally:
        response.close()
    return b"".join(pieces), cut


def proxy_of(url: SplitResult) -> SplitResult | None:
    """Return the proxy of the environment for a URL; raises TransportError for an unsupported one."""
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or _is_excepted(url, proxies.get("no", "")):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        place = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
        raise TransportError(
            f"the proxy {place}, set in the environment, is not supported; use http:// or https://, "
            f"or NO_PROXY={url.hostname}"
        )
    return proxy


def _is_excepted(url: SplitResult, exceptions: str) -> bool:
    """Whether NO_PROXY contains the host, as a name, an address or a network."""
    with suppress(ValueError):
        address = ip_address(url.hostname or "")
        for entry in exceptions.split(","):
            with suppress(ValueError):
                if address in ip_network(entry.strip().strip("[]"), strict=False):
                    return True
    return bool(proxy_bypass(url.netloc))


class _Deadline(RawIOBase):
    """A raw stream over a socket; reading raises TimeoutError after the deadline."""

    def __init__(self, connection: socket.socket) -> None:
        self.until = math.inf
        """The deadline on the monotonic clock."""
        self._connection = connection
        self._raw = connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        """Wait for bytes, and read the available ones."""
        left = self.until - clock.seconds()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self._connection.settimeout(None if math.isinf(left) else left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        """Drop the reference to the socket."""
        self._raw.close()
        super().close()
