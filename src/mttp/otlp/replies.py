"""Text and headers of HTTP replies, for messages and retries."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from mttp.codec.secrets import REDACTED, USUAL
from mttp.model import clock
from mttp.model.printable import one_line

__all__ = [
    "ADVICE",
    "LONGEST_WAIT",
    "MESSAGE_CHARACTERS",
    "decoded",
    "is_page",
    "printable",
    "redacted",
    "seconds_to_wait",
]

MESSAGE_CHARACTERS = 300
"""Maximum number of characters quoted from a reply."""
LONGEST_WAIT = 3600.0
"""Maximum of a Retry-After delay, in seconds."""
ADVICE = {
    401: "give credentials as headers: headers=authorization=Bearer%20…",
    403: "give credentials as headers: headers=authorization=Bearer%20…",
    502: "a proxy answered: is the server behind it running?",
    503: "is it starting, or overloaded? or is the server behind a proxy down?",
    504: "a proxy answered: is the server behind it running?",
}
"""Suggestions for statuses that do not depend on the request."""
_SHORTEST_SECRET = 4
_PAGE = re.compile(
    r"(?:\s|<!--.*?-->|<\?.*?\?>)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (b"<\0", "utf-16-le"),
    (b"\0<", "utf-16-be"),
)
"""How texts of other encodings than UTF-8 begin."""
_TAGS = re.compile(r"<(script|style)\b.*?(</\1>|$)|<!--.*?-->|<[^>]*>", re.IGNORECASE | re.DOTALL)


def decoded(body: bytes) -> str:
    """Return a body as text, by its byte order mark or first character, without the mark."""
    encoding = next((encoding for start, encoding in _WIDE if body.startswith(start)), "utf-8-sig")
    return body.decode(encoding, "replace")


def is_page(body: bytes) -> bool:
    """Whether a body is HTML."""
    return _PAGE.match(decoded(body)) is not None


def printable(body: bytes, sent: Mapping[str, str], characters: int = MESSAGE_CHARACTERS) -> str:
    """Return the start of a body as one line of text, without secrets and HTML tags."""
    text = decoded(body[: 16 * MESSAGE_CHARACTERS])
    if _PAGE.match(text):
        text = _TAGS.sub(" ", text)
    return redacted(" ".join(one_line(text).split()), sent)[:characters]


def redacted(text: str, sent: Mapping[str, str]) -> str:
    """Return the text without secrets, including those of the sent headers, which a server may repeat."""
    for name, value in sent.items():
        for secret in (value, value.partition(" ")[2]):
            if len(secret) >= _SHORTEST_SECRET and USUAL.names(name):
                text = text.replace(secret, REDACTED)
    return USUAL.text(text)


def seconds_to_wait(given: str) -> float | None:
    """Parse a Retry-After header, a number of seconds or a date; at most `LONGEST_WAIT`."""
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - clock.wall() / 1e9
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None
