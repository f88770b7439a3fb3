"""Receives messages over HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from io import BytesIO
from typing import Annotated
from urllib.parse import urlsplit

from mttp.otlp.app_server import AppServer  # first: its error names the missing extra

# isort: split
from anyio import CancelScope, move_on_after
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from mttp.errors import SendError, TransportError
from mttp.mist.channels import Channel, ChannelReader, ChannelWriter
from mttp.mist.messages import MAX_SIZE, MessageLine, as_line
from mttp.transports.options import ByteCount, Positive, Seconds, path_of, take, text

MIST_PATH = "/mist"
TIMEOUT = 10.0
"""Seconds that the body of a request may take."""
MAX_UNFINISHED_BYTES = 256 * 2**20
"""Maximum bytes of incomplete bodies, over all connections."""
RETRY_AFTER = 1
"""The header Retry-After of a 503, in seconds."""


class ListeningOrigin:
    """Listens on a host and port; each POST to /mist is one message."""

    def __init__(
        self,
        host: str,
        port: int,
        *,
        capacity: Positive | None = None,
        max_bytes: ByteCount = MAX_SIZE,
        timeout: Seconds = TIMEOUT,
        max_unfinished_bytes: ByteCount = MAX_UNFINISHED_BYTES,
        token: Annotated[str, text] | None = None,
    ) -> None:
        inbox = _Inbox(
            capacity=capacity,
            max_bytes=max_bytes,
            timeout=timeout,
            max_unfinished_bytes=max_unfinished_bytes,
        )
        self._inbox, self.refused = inbox, inbox.refused
        self._server = AppServer(
            inbox,
            host,
            port,
            name="mttp-receive",
            token=token,
            on_refused=inbox.count,
            on_close=inbox.stop,
        )
        self.address = f"mttp+http://{f'[{host}]' if ':' in host else host}:{self._server.port}"

    @property
    def pending(self) -> int:
        """Number of messages in the inbox."""
        return self._inbox.reader.pending

    def lines(self) -> Iterator[MessageLine]:
        """Iterate over messages and errors in order of arrival."""
        while line := self._inbox.reader.get():
            yield line

    def close(self) -> None:
        """Stop listening; accepted messages stay in the inbox."""
        self._server.close()
        self._inbox.writer.close()


class _Inbox:
    """
    The ASGI app that accepts messages; it runs only on the server's thread.

    It answers 202 when a message is in the inbox, which holds `capacity` messages, and 503 while it is full.
    Incomplete bodies together take at most `max_unfinished_bytes`; a request beyond that is answered 503.
    """

    def __init__(
        self,
        *,
        capacity: int | None,
        max_bytes: int,
        timeout: float,
        max_unfinished_bytes: int,
    ) -> None:
        if max_unfinished_bytes < max_bytes:
            raise TransportError(
                f"max_unfinished_bytes={max_unfinished_bytes} is less than max_bytes={max_bytes}: "
                "the largest messages could never be received"
            )
        channel = Channel(capacity, name="inbox")
        self.reader, self.writer = ChannelReader(channel), ChannelWriter(channel, wait=False)
        self.refused: Counter[str] = Counter()
        self._max_bytes, self._timeout = max_bytes, timeout
        self._space = self._left = max_unfinished_bytes
        self._received = 0
        self._reading: set[CancelScope] = set()
        self._is_closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            response = await self._take(request)
        except HTTPException as error:
            headers = {"Connection": "close", **(error.headers or {})}
            response = self._refusal(error.status_code, error.detail, headers)
        except ClientDisconnect:
            return
        await response(scope, receive, send)

    def count(self, status: int) -> None:
        """Count a rejected request."""
        self.refused[f"http_{status}"] += 1

    def stop(self) -> None:
        """Abort incomplete requests."""
        self._is_closing = True
        for reading in self._reading:
            reading.cancel()

    async def _take(self, request: Request) -> Response:
        """Receive a message; raises HTTPException if the request is invalid."""
        self._check(request)
        body = await self._body(request)
        self._received += 1
        line = as_line(body, number=self._received, source=request.client.host if request.client else "")
        try:
            self.writer.put_line(line)
        except SendError as error:
            return self._refusal(503, str(error), {})
        if line.error is not None:
            reason = f"{line.error}\n".encode("utf-8", "backslashreplace")  # it may quote half a surrogate
            return PlainTextResponse(reason, 400)
        return Response(status_code=202)

    def _refusal(self, status: int, reason: str, headers: Mapping[str, str]) -> Response:
        self.count(status)
        again = {"Retry-After": str(RETRY_AFTER)} if status == 503 else {}
        return PlainTextResponse(f"{reason}\n", status, {**headers, **again})

    def _check(self, request: Request) -> None:
        """Raise HTTPException for a request whose head is invalid."""
        length = request.headers.get("content-length")
        if request.scope["path"] != MIST_PATH:
            raise HTTPException(404, f"messages are received at {MIST_PATH}")
        if request.method != "POST":
            raise HTTPException(405, "messages must be sent by POST", {"Allow": "POST"})
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise HTTPException(415, "messages must be sent uncompressed")
        if length is None and "transfer-encoding" not in request.headers:
            raise HTTPException(411, "the request has no content-length")
        self._check_size(int(length or 0))

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise HTTPException(413, f"a message may have at most {self._max_bytes:,} bytes")

    async def _body(self, request: Request) -> bytes:
        """Read the body within the timeout; its bytes count as incomplete until then."""
        content = BytesIO()
        with move_on_after(0 if self._is_closing else self._timeout) as reading:
            self._reading.add(reading)
            try:
                async for piece in request.stream():
                    self._check_size(content.tell() + len(piece))
                    if len(piece) > self._left:
                        used = f"{self._space - self._left:,} bytes of {self._space:,}"
                        raise HTTPException(503, f"incomplete messages use {used}")
                    self._left -= content.write(piece)
                return content.getvalue()
            finally:
                self._reading.discard(reading)
                self._left += content.tell()
        if self._is_closing:
            raise HTTPException(503, "the receiver is closing")
        raise HTTPException(408, f"the message took more than {self._timeout:g} s")


def open(address: str, options: Mapping[str, object]) -> ListeningOrigin:
    """Open a listener; the default host is the loopback interface."""
    try:
        parts = urlsplit(f"http://{path_of(address)}")
        port = parts.port
    except ValueError as error:
        raise TransportError(f"{error}; write mttp+http://127.0.0.1:8700") from error
    if port is None or parts.path.rstrip("/") not in ("", MIST_PATH) or "@" in parts.netloc:
        raise TransportError(
            "a listener needs a host and a port, and its path is /mist; write mttp+http://127.0.0.1:8700"
        )
    return ListeningOrigin(parts.hostname or "127.0.0.1", port, **take(options, ListeningOrigin))
