"""Sends messages over HTTP, one POST per message."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from mttp.errors import SendError, TransportError
from mttp.mist.messages import Message
from mttp.otlp.http_client import HttpClient, NoReply, Reply
from mttp.otlp.replies import ADVICE, is_page, seconds_to_wait
from mttp.otlp.request_errors import Kind
from mttp.otlp.tls import tls_context
from mttp.transports.options import ByteCount, Headers, ReadableFile, Seconds, take, with_query

MIST_PATH = "/mist"
"""Path at which the stack's tools receive messages."""
MAX_BYTES = 2**20
"""Default size limit; the stack's own listeners answer 400 to a larger message."""
TIMEOUT = 10.0
"""Default seconds that one message may take."""
_BODY_BYTES = 1 << 16
_TEMPORARY = frozenset({408, 425, 429})
_ADVICE = ADVICE | {
    404: "check the path, which is /mist for the stack's tools",
    405: "does it receive messages there? the stack's tools do at /mist",
}

_TLS = "check certificates, and whether the receiver uses TLS: https does, http does not"
_ADVICE_BY_KIND: dict[Kind, str] = {
    "name": "check the address",
    "refused": "is a receiver running there, and is this its port?",
    "timeout": "timeout=N waits longer",
    "untrusted": f"certificate=FILE names a file of trusted certificates; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "closed": f"does it receive messages there? {_TLS}",
}


class HttpOutlet:
    """
    Posts messages to one URL, over connections that are kept open.

    `timeout` is the limit of one request in seconds, `max_bytes` that of one message in bytes.
    `headers` are sent with each request; `certificate` is a file of trusted certificates.
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
        self._timeout = timeout
        self._headers = {"content-type": "application/json", **(headers or {})}
        self._certificate = certificate
        self._tls = tls_context(certificate) if parts.scheme == "https" else None
        self._closed = False
        self.after_fork()

    @property
    def address(self) -> str:
        """The address with its options but without headers."""
        options: dict[str, object] = {} if self._timeout == TIMEOUT else {"timeout": self._timeout}
        options |= {} if self.max_bytes == MAX_BYTES else {"max_bytes": self.max_bytes}
        options |= {"certificate": self._certificate} if self._certificate else {}
        return with_query(f"mttp+{self.url}", options)

    def send(self, messages: Sequence[Message]) -> None:
        """Post the messages in order; raises SendError at the first that is not accepted."""
        for message in messages:
            body = message.to_bytes()
            if len(body) > self.max_bytes:
                raise SendError(
                    f"a {message.type} message has {len(body):,} bytes, "
                    f"at most {self.max_bytes:,} are allowed; max_bytes=N raises the limit",
                    cause="too_large",
                )
            self._check(self._post(body))

    def close(self) -> None:
        """Abort requests in progress, and close the connections."""
        self._closed = True
        self._client.break_off()

    def after_fork(self) -> None:
        """In a forked child: open new connections."""
        self._client = HttpClient(self.url, tls=self._tls, is_direct=True)

    def __repr__(self) -> str:
        return f"mttp+{self.url}"

    def _post(self, body: bytes) -> Reply:
        """Post a body and return the reply; raises SendError if there is none."""
        closed = SendError(f"{self} is closed", cause="closed")
        if self._closed:
            raise closed
        try:
            return self._client.request(
                self.url, body, headers=self._headers, timeout=self._timeout, max_bytes=_BODY_BYTES
            )
        except NoReply as error:
            if self._closed:
                raise closed from error
            fault = error.error
            advice = _ADVICE_BY_KIND.get(fault.kind, "does it receive messages there?")
            raise SendError(f"{self}: {fault.message}; {advice}", cause=fault.cause, may_pass=True) from error

    def _check(self, reply: Reply) -> None:
        """Raise SendError unless the reply is a success: its body is empty or JSON, and no page."""
        status = reply.status
        if 200 <= status < 300:
            if _is_answer(reply):
                return
            summary = reply.summary(self._headers)
            raise SendError(f"{summary} (no answer of a receiver of messages)", cause="not_mist")
        summary = reply.summary(self._headers)
        raise SendError(
            f"{summary} ({_ADVICE[status]})" if status in _ADVICE else summary,
            cause=f"http_{status}",
            may_pass=status in _TEMPORARY or status >= 500,
            retry_after=seconds_to_wait(reply.headers.get("retry-after", "")),
        )


def _is_answer(reply: Reply) -> bool:
    """Return whether a success is the answer of a receiver: nothing or JSON, as far as it was read."""
    if reply.cut is not None:
        return not is_page(reply.body)
    try:
        if reply.body.strip():
            json.loads(reply.body)
    except (ValueError, RecursionError):
        return False
    return True


def _checked(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError if it is invalid
    except ValueError as error:
        raise TransportError(f"{error}; write mttp+{url.partition('://')[0]}://HOST:PORT") from error
    if not parts.hostname:
        raise TransportError(f"no host; write mttp+{parts.scheme}://HOST:PORT")
    if "@" in parts.netloc:
        raise TransportError("an address can't contain credentials; give them as headers")
    return parts


def open(address: str, options: Mapping[str, object]) -> HttpOutlet:
    """Open an outlet to a receiver; the default path is /mist."""
    url = address.removeprefix("mttp+")
    url = url if urlsplit(url).path.strip("/") else url.rstrip("/")
    return HttpOutlet(url, **take(options, HttpOutlet))
