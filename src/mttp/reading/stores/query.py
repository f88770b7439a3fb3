"""Requests to the query API of a trace store, and their errors."""

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

_MAX_SHOWN = 200
_MAX_BYTES = 1 << 30
"""Largest response, decompressed."""
_PORT = "is this the port of the query API? the address must include a path before the API"
_LOG = "see the log of the store"
_ADVICE = ADVICE | {
    413: "ask for fewer traces with limit=N",
    429: "the store is busy; ask for fewer traces with limit=N, or later",
}
_TLS = "use tls=true if, and only if, the store uses TLS"
_ADVICE_BY_KIND: dict[Kind, str] = {
    "name": "check the address",
    "refused": "is the store running, and is this the port of its query API?",
    "timeout": "timeout=N waits longer",
    "untrusted": f"set SSL_CERT_FILE to a file of trusted certificates; {_TLS}",
    "no_tls": _TLS,
    "tls": _TLS,
    "closed": f"is this the port of its query API? {_TLS}",
    "cut": "ask for fewer traces with limit=N, or again",
    "foreign": "is this the port of the query API? gRPC has a different port",
}


class StoreNotFound(ReadError):  # noqa: N818 - a result of a query
    """The store has no such trace, or no such project."""


class UnknownPath(ReadError):  # noqa: N818 - a result of a query
    """The server has no such path: it is another program or an older version."""


def ask(address: Address, path: str, parameters: Mapping[str, Any] | None = None, *, body: Any = None) -> Any:
    """
    Request a path below the address and return the JSON document; a `body` is posted as JSON.

    Raises StoreNotFound or UnknownPath for a 404, and ReadError if the response is not a JSON document.
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
        raise _unanswered(url, error.error) from error
    if not 200 <= reply.status < 300:
        raise _refused(url, reply, headers)
    if reply.cut is not None:
        raise _unanswered(url, reply.cut)
    try:
        return json.loads(reply.body, parse_int=_number)
    except (ValueError, RecursionError) as error:
        kind = reply.headers.get("content-type", "")
        what = "an HTML page" if is_page(reply.body) else repr(kind or "no content type")
        text = printable(reply.body, headers, _MAX_SHOWN)
        raise ReadError(f"{url} returns {what} instead of JSON: {text!r} ({_PORT})") from error


def _number(text: str) -> float:
    """Return an integer; -0 is the double that Go writes so."""
    return -0.0 if text == "-0" else int(text)


def _unanswered(url: str, error: RequestError) -> ReadError:
    return ReadError(f"{url}: {error.message}; {_ADVICE_BY_KIND.get(error.kind, 'is the store running?')}")


def _refused(url: str, reply: Reply, sent: Mapping[str, str]) -> ReadError:
    words = printable(reply.body, sent, _MAX_SHOWN) or redacted(reply.reason, sent)
    message = f"{url} answers {reply.status}: {words}"
    if location := redacted(reply.location, sent):
        return ReadError(f"{message} (it redirects to {location}: use that address)")
    is_absent = reply.status in (405, 501) or _is_unknown_path(reply.status, reply.body)
    if reply.status == 404 and not is_absent:
        return StoreNotFound(f"{message} ({_PORT})")
    advice = _PORT if is_absent else _ADVICE.get(reply.status, _LOG if reply.status >= 500 else "")
    kind = UnknownPath if is_absent else ReadError
    return kind(f"{message} ({advice})" if advice else message)


def _is_unknown_path(status: int, content: bytes) -> bool:
    """Whether a response means that the server has no such path, not that it has no such trace."""
    text = content.strip()
    if status == 400:
        return _UNKNOWN_PATH_OF_VICTORIA in text
    return status == 404 and (not text or is_page(text) or text in _UNKNOWN_PATHS)


_UNKNOWN_PATHS = (b"404 page not found", b'{"detail":"Not Found"}', b"Not Found")
"""Default responses of Go's and Python's web servers."""
_UNKNOWN_PATH_OF_VICTORIA = b"unsupported path requested"
