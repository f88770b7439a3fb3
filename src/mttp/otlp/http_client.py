"""The HTTP client: one request, sent and answered whole by a deadline."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from io import BufferedReader
from ipaddress import ip_address, ip_network
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import urllib3

from mttp.errors import TransportError
from mttp.model.printable import one_line
from mttp.model.version import __version__
from mttp.otlp.deadlines import Deadline
from mttp.otlp.replies import MESSAGE_CHARACTERS, printable, redacted
from mttp.otlp.request_errors import RequestError, trouble

__all__ = ["HttpClient", "NoReply", "Reply"]

_PIECE = 1 << 14
"""Bytes that are written at once: TLS makes one record of them, which starts its time anew."""
_READ = 1 << 16
_CONNECTIONS = 8
"""Connections that are kept open, for threads that send at the same time."""
_FAULTS = (urllib3.exceptions.HTTPError, HTTPException, OSError, ValueError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a server answered."""

    status: int
    """The status code."""
    reason: str
    """What the server says beside it."""
    headers: Mapping[str, str]
    """The headers; their names are found in lower case too."""
    body: bytes
    """The body, decompressed, up to the limit of the request."""
    cut: RequestError | None = None
    """Why the body is not whole; None where it is."""

    @property
    def location(self) -> str:
        """Where a redirect leads; empty where the reply is none."""
        given = self.headers.get("location", "") if 300 <= self.status < 400 else ""
        return one_line(given)[:MESSAGE_CHARACTERS]

    def said(self, sent: Mapping[str, str], body: bytes | None = None) -> str:
        """Status, reason and the beginning of the body on one line, without secrets of the headers sent."""
        words = printable(self.body if body is None else body, sent)
        status = f"{self.status} {redacted(self.reason, sent)[:MESSAGE_CHARACTERS]}".strip()
        return f"{status}: {words}" if words else status


class NoReply(Exception):  # noqa: N818 - reads as what it says
    """No status came by the deadline."""

    def __init__(self, found: RequestError) -> None:
        super().__init__(found.said)
        self.trouble = found
        """What kept the request from being answered."""


class HttpClient:
    """
    Sends requests from any thread, over connections that are kept open.

    HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY name the proxy when the client is made, unless
    `is_direct`. A redirect is not followed. A forked child opens connections of its own.
    """

    def __init__(self, url: str, *, tls: ssl.SSLContext | None = None, is_direct: bool = False) -> None:
        self._proxy = None if is_direct else _proxy_of(urlsplit(url))
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
        The reply to a POST of the body, or to a GET; raises NoReply where none came within the timeout.

        Of its body so many bytes are read, decompressed.

        A request whose connection breaks is sent once more at once: it may have been kept open too long.
        """
        if self._process != os.getpid():
            self._open()
        method = "GET" if body is None else "POST"
        send = partial(self._pools.urlopen, method, url, body=body, timeout=None, preload_content=False)
        sent = {"user-agent": f"mttp/{__version__}", **headers}
        exchange = _Exchange(time.monotonic() + timeout)
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
        """Close the connections that no request uses; the others are closed once they are answered."""
        self._pools.clear()

    def break_off(self) -> None:
        """Close all connections, from any thread; requests that wait for an answer get none."""
        if self._process == os.getpid():  # else the requests are the parent's
            for exchange in list(self._running):
                exchange.break_off()
        self.close()

    def _sent(self, send: Callable[[], Any], timeout: float, *, once_more: bool = True) -> Any:
        """The response, of which the status and the headers are there."""
        try:
            return send()
        except _FAULTS as error:
            found = trouble(error, timeout)
            if found.kind == "closed" and once_more:
                return self._sent(send, timeout, once_more=False)
            if self._proxy is not None and isinstance(error, urllib3.exceptions.ProxyError):
                place = self._proxy.netloc.rpartition("@")[2]
                said = f"the proxy {place}, which the environment names, fails: {found.said}"
                found = RequestError(found.kind, said)
            raise NoReply(found) from error


class _Exchange:
    """One request while it runs."""

    def __init__(self, until: float) -> None:
        self.until = until
        self.connection: _ClientConnection | None = None
        self._is_over = False

    def left(self) -> float:
        """Seconds that are left; raises where there are none, or it was broken off."""
        if self._is_over:
            raise ConnectionAbortedError("the request was broken off")
        if (left := self.until - time.monotonic()) <= 0:
            raise TimeoutError("the time is up")
        return left

    def break_off(self) -> None:
        """End it from another thread."""
        self._is_over = True
        with suppress(AttributeError, OSError, TypeError):  # not connected yet, or no more
            socket.socket.shutdown(self.connection.sock, socket.SHUT_RDWR)  # type: ignore[union-attr]


_CURRENT: ContextVar[_Exchange] = ContextVar("mttp_http_exchange")
"""The request that this thread sends, which its connection asks for the time that is left."""


class _Response(HTTPResponse):
    """An answer that must have come by the deadline of its request."""

    def __init__(self, connected: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(connected, *args, **options)
        self.fp.close()
        deadline = Deadline(connected)
        deadline.until = _CURRENT.get().until
        self.fp = BufferedReader(deadline)


class _ClientConnection(urllib3.connection.HTTPConnection):
    """A connection on which whatever is done ends when the time of the request is up."""

    response_class = _Response

    def _new_conn(self) -> socket.socket:
        exchange = _CURRENT.get()
        self.timeout = exchange.left()
        connected = super()._new_conn()
        connected.settimeout(exchange.left())
        return connected

    def send(self, data: Any) -> None:
        exchange = _CURRENT.get()
        exchange.connection = self
        if self.sock is None:
            self.connect()
        for start in range(0, len(data), _PIECE):
            self.sock.settimeout(exchange.left())
            super().send(data[start : start + _PIECE])


class _SecureConnection(_ClientConnection, urllib3.connection.HTTPSConnection):
    """The same over TLS."""


class _ConnectionPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _ClientConnection


class _SecureConnectionPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


def _read(response: Any, limit: int, timeout: float) -> tuple[bytes, RequestError | None]:
    """The body up to the limit, and why it is not whole; the connection is kept only where it is."""
    pieces, left = [], limit
    cut = RequestError("cut", f"the answer is longer than {limit:,} bytes")
    try:
        while left and (piece := response.read1(min(left, _READ), decode_content=True)):
            pieces.append(piece)
            left -= len(piece)
        if left or not response.read1(1, decode_content=True):
            return b"".join(pieces), None
    except _FAULTS as error:
        cut = trouble(error, timeout)
    finally:
        response.close()
    return b"".join(pieces), cut


def _proxy_of(url: SplitResult) -> SplitResult | None:
    """The proxy that the environment names for a URL; raises TransportError where it can't be used."""
    proxies = getproxies()
    named = proxies.get(url.scheme) or proxies.get("all")
    if not named or _is_excepted(url, proxies.get("no", "")):
        return None
    proxy = urlsplit(named if "://" in named else f"http://{named}")
    if proxy.scheme not in ("http", "https") or not proxy.hostname:
        place = f"{proxy.scheme}://{proxy.netloc.rpartition('@')[2]}"
        raise TransportError(
            f"the environment names the proxy {place}, and only proxies at http:// and https:// can be used; "
            f"NO_PROXY={url.hostname} goes without"
        )
    return proxy


def _is_excepted(url: SplitResult, exceptions: str) -> bool:
    """Whether NO_PROXY names the host, as a name, an address or a network."""
    with suppress(ValueError):
        address = ip_address(url.hostname or "")
        for entry in exceptions.split(","):
            with suppress(ValueError):
                if address in ip_network(entry.strip().strip("[]"), strict=False):
                    return True
    return bool(proxy_bypass(url.netloc))
