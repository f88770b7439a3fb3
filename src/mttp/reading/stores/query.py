"""One question to a trace store's query API, and what is said where the answer is none."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any
from urllib.parse import urlencode

from mttp.errors import ReadError
from mttp.reading.stores.address import Address

__all__ = ["Missing", "ask"]

_SHOWN = 200
_ADVICE = {
    401: "give credentials: headers=authorization=Bearer%20…",
    403: "give credentials: headers=authorization=Bearer%20…",
    429: "the store is busy; ask for fewer traces with limit=N, or later",
}


class Missing(ReadError):  # noqa: N818 - reads as what it says
    """The store answers that there is no such thing: a trace, or a part of its API."""

    def __init__(self, message: str, *, said: str) -> None:
        super().__init__(message)
        self.said = said
        """In the store's own words."""


def ask(
    address: Address,
    path: str,
    parameters: Mapping[str, Any] | None = None,
    *,
    body: Any = None,
) -> Any:
    """
    The JSON document at a path below the address; with a `body`, which is JSON too, it is posted.

    Raises Missing for a 404, and ReadError for whatever else is no such document: it says what came back.
    """
    url = f"{address.url}{path}" + (f"?{urlencode(parameters, doseq=True)}" if parameters else "")
    headers = {"Accept": "application/json", **address.headers}
    data = None
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=address.timeout) as response:
            kind, content = response.headers.get("content-type", ""), response.read()
    except urllib.error.HTTPError as error:
        raise _refused(url, error.code, error.read()) from error
    except (OSError, HTTPException, ValueError) as error:
        raise ReadError(f"{url}: {_unanswered(error, address)}") from error
    try:
        return json.loads(content)
    except ValueError as error:
        what = "a page for people" if b"<html" in content[:1000].lower() else repr(kind or "no content type")
        raise ReadError(
            f"{url} answers {what} instead of JSON: {_words(content)!r}; is this the port of the query API?"
        ) from error


def _refused(url: str, status: int, content: bytes) -> ReadError:
    advice, said = f" ({_ADVICE[status]})" if status in _ADVICE else "", _words(content)
    message = f"{url} answers {status}: {said}{advice}"
    return Missing(message, said=said) if status == 404 else ReadError(message)


def _unanswered(error: Exception, address: Address) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLError):
        return f"{reason} (tls=true is for a store that speaks TLS, and nothing for one that does not)"
    if isinstance(reason, TimeoutError):
        return f"no answer within {address.timeout:g} seconds; timeout=N waits longer"
    if isinstance(error, HTTPException):
        return f"{reason!r} is no answer in HTTP; is this the port of the query API?"
    return f"{reason}; is the store there, and is this the port of its query API?"


def _words(content: bytes) -> str:
    text = content[: 4 * _SHOWN].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_SHOWN]
