"""One question to a trace store's query API, and what is said where the answer is none."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from mttp.errors import ReadError
from mttp.printable import one_line
from mttp.reading.stores.address import Address
from mttp.wire.deadlines import TimelyResponse
from mttp.wire.replies import is_page, printable
from mttp.wire.troubles import Kind, trouble

__all__ = ["Absent", "Missing", "ask"]

_SHOWN = 200
_BODY_BYTES = 1 << 16
_PORT = "is this the port of the query API? a path before the API is a part of the address"
_CREDENTIALS = "give credentials: headers=authorization=Bearer%20…"
_LOG = "its own log may say why"
_ADVICE = {
    401: _CREDENTIALS,
    403: _CREDENTIALS,
    413: "ask for fewer traces with limit=N",
    429: "the store is busy; ask for fewer traces with limit=N, or later",
    502: "a proxy answers: is the store behind it running?",
    503: "is it starting, or overloaded? a proxy answers so, too, where the store behind it is gone",
    504: "a proxy answers: is the store behind it running?",
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


class Missing(ReadError):  # noqa: N818 - reads as what it says
    """The store answers that there is no such trace, or no such project."""


class Absent(ReadError):  # noqa: N818 - reads as what it says
    """What answers does not know the path: it is another program, or an older one."""


def ask(
    address: Address,
    path: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    body: Any = None,
) -> Any:
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
        kind, content = _answer(Request(url, data=data, headers=headers), address.timeout)
    except HTTPError as error:
        raise _refused(url, error) from error
    except (OSError, HTTPException, ValueError) as error:
        found = trouble(error, address.timeout)
        advice = _TROUBLES.get(found.kind, "is the store there?")
        raise ReadError(f"{url}: {found.said}; {advice}") from error
    try:
        return json.loads(content)
    except ValueError as error:
        what = "a page for people" if is_page(content) else repr(kind or "no content type")
        said = printable(content, _SHOWN)
        raise ReadError(f"{url} answers {what} instead of JSON: {said!r} ({_PORT})") from error


def _answer(request: Request, timeout: float) -> tuple[str, bytes]:
    """Content type and body, whole within the timeout however slowly it comes; raises what urllib raises."""
    with build_opener(_Stay, _Plain(), _Secure()).open(request, timeout=timeout) as response:
        return response.headers.get("content-type", ""), response.read()


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: credentials are for the one place that they were given for."""

    def redirect_request(self, *args: Any) -> None:
        """None means no."""


class _Connection(HTTPConnection):
    def getresponse(self) -> HTTPResponse:
        assert self.timeout is not None
        self.response_class = partial(TimelyResponse, until=time.monotonic() + self.timeout)  # type: ignore[assignment]
        return super().getresponse()


class _SecureConnection(_Connection, HTTPSConnection):
    pass


class _Plain(HTTPHandler):
    def http_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_Connection, request)


class _Secure(HTTPSHandler):
    def https_open(self, request: Request) -> HTTPResponse:
        return self.do_open(_SecureConnection, request)


def _refused(url: str, error: HTTPError) -> ReadError:
    content, location = _beginning(error), one_line(error.headers.get("location", ""))
    message = f"{url} answers {error.code}: {printable(content, _SHOWN) or one_line(error.reason)}"
    if location and 300 <= error.code < 400:
        return ReadError(f"{message} (it leads to {location}: write the address that it leads to)")
    is_absent = error.code in (405, 501) or _knows_no_path(error.code, content)
    if error.code == 404 and not is_absent:
        return Missing(f"{message} ({_PORT})")
    advice = _PORT if is_absent else _ADVICE.get(error.code, _LOG if error.code >= 500 else "")
    kind = Absent if is_absent else ReadError
    return kind(f"{message} ({advice})" if advice else message)


def _beginning(body: IO[bytes]) -> bytes:
    try:
        return body.read(_BODY_BYTES)
    except (OSError, HTTPException, ValueError):
        return b""


def _knows_no_path(status: int, content: bytes) -> bool:
    """Whether an answer is that of a web server that has no such path, and says nothing of traces."""
    said = content.strip()
    if status == 400:
        return _NO_PATH_OF_VICTORIA in said
    return status == 404 and (not said or is_page(said) or said in _NO_PATHS)


_NO_PATHS = (b"404 page not found", b'{"detail":"Not Found"}', b"Not Found")
"""Go's, and those of Python."""
_NO_PATH_OF_VICTORIA = b"unsupported path requested"
