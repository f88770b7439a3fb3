"""One question to a trace store's query API, and what is said where the answer is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from mttp.errors import ReadError, TransportError
from mttp.otlp.http_client import HttpClient, NoReply, Reply
from mttp.otlp.replies import ADVICE, is_page, printable, redacted
from mttp.otlp.request_errors import Kind, RequestError
from mttp.otlp.tls import tls_context
from mttp.reading.stores.address import Address

__all__ = ["UnknownPath", "StoreNotFound", "ask"]

_SHOWN = 200
_MAX_BYTES = 1 << 30
"""What is read of an answer, decompressed."""
_PORT = "is this the port of the query API? a path before the API is a part of the address"
_LOG = "its own log may say why"
_ADVICE = ADVICE | {
    413: "ask for fewer traces with limit=N",
    429: "the store is busy; ask for fewer traces with limit=N, or later",
}
_TLS = "tls=true is for a store that speaks TLS, and nothing for one that does not"
_TROUBLES: dict[Kind, str] = {
    "name": "check the address",
    "nobody": "is the store there, and is this the port of its query API?",
    "timeout": "timeout=N waits longer",
    "untrusted": f"the variable SSL_CERT_FILE names a file of certificates to trust; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "closed": f"is this the port of its query API? {_TLS}",
    "cut": "ask for fewer traces with limit=N, or again",
    "foreign": "is this the port of the query API? gRPC has another",
}


class StoreNotFound(ReadError):  # noqa: N818 - reads as what it says
    """The store answers that there is no such trace, or no such project."""


class UnknownPath(ReadError):  # noqa: N818 - reads as what it says
    """What answers does not know the path: it is another program, or an older one."""


def ask(address: Address, path: str, parameters: Mapping[str, Any] | None = None, *, body: Any = None) -> Any:
    """
    The JSON document at a path below the address; with a `body`, which is JSON too, it is posted.

    Raises Missing or Absent for a 404, and ReadError for whatever else is no such document: what came back.
    """
    url = f"{address.url}{path}" + (f"?{urlencode(parameters, doseq=True)}" if parameters else "")
    headers = {"Accept": "application/json", **address.headers}
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    try:
        client = HttpClient(url, tls=tls_context() if url.startswith("https") else None)
        reply = client.request(url, data, headers=headers, timeout=address.timeout, max_bytes=_MAX_BYTES)
        client.close()
    except TransportError as error:
        raise ReadError(f"{url}: {error}") from error
    except NoReply as error:
        raise _unanswered(url, error.trouble) from error
    if not 200 <= reply.status < 300:
        raise _refused(url, reply, headers)
    if reply.cut is not None:
        raise _unanswered(url, reply.cut)
    try:
        return json.loads(reply.body)
    except ValueError as error:
        kind = reply.headers.get("content-type", "")
        what = "a page for people" if is_page(reply.body) else repr(kind or "no content type")
        said = printable(reply.body, headers, _SHOWN)
        raise ReadError(f"{url} answers {what} instead of JSON: {said!r} ({_PORT})") from error


def _unanswered(url: str, found: RequestError) -> ReadError:
    return ReadError(f"{url}: {found.said}; {_TROUBLES.get(found.kind, 'is the store there?')}")


def _refused(url: str, reply: Reply, sent: Mapping[str, str]) -> ReadError:
    words = printable(reply.body, sent, _SHOWN) or redacted(reply.reason, sent)
    message = f"{url} answers {reply.status}: {words}"
    if location := redacted(reply.location, sent):
        return ReadError(f"{message} (it leads to {location}: write the address that it leads to)")
    is_absent = reply.status in (405, 501) or _knows_no_path(reply.status, reply.body)
    if reply.status == 404 and not is_absent:
        return StoreNotFound(f"{message} ({_PORT})")
    advice = _PORT if is_absent else _ADVICE.get(reply.status, _LOG if reply.status >= 500 else "")
    kind = UnknownPath if is_absent else ReadError
    return kind(f"{message} ({advice})" if advice else message)


def _knows_no_path(status: int, content: bytes) -> bool:
    """Whether an answer is that of a web server that has no such path, and says nothing of traces."""
    said = content.strip()
    if status == 400:
        return _NO_PATH_OF_VICTORIA in said
    return status == 404 and (not said or is_page(said) or said in _NO_PATHS)


_NO_PATHS = (b"404 page not found", b'{"detail":"Not Found"}', b"Not Found")
"""Go's, and those of Python."""
_NO_PATH_OF_VICTORIA = b"unsupported path requested"
