"""What HTTP servers say beside the status."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from mttp.codec.secrets import REDACTED, USUAL
from mttp.model.printable import one_line

__all__ = [
    "ADVICE",
    "LONGEST_WAIT",
    "MESSAGE_CHARACTERS",
    "is_page",
    "printable",
    "redacted",
    "seconds_to_wait",
]

MESSAGE_CHARACTERS = 300
"""What is repeated of a server's own words, at most."""
LONGEST_WAIT = 3600.0
"""Seconds that a server may ask to wait: who asks for years has a wrong clock, or means no."""
ADVICE = {
    401: "give credentials as headers: headers=authorization=Bearer%20…",
    403: "give credentials as headers: headers=authorization=Bearer%20…",
    502: "a proxy answers: is the server behind it running?",
    503: "is it starting, or overloaded? a proxy answers so, too, where the server behind it is gone",
    504: "a proxy answers: is the server behind it running?",
}
"""What to try where a server answers with such a status, whatever it was asked for."""
_SHORTEST_SECRET = 4
_PAGE = re.compile(rb"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)
_TAGS = re.compile(r"<(script|style)\b.*?(</\1>|$)|<!--.*?-->|<[^>]*>", re.IGNORECASE | re.DOTALL)


def is_page(body: bytes) -> bool:
    """Whether a body is HTML, which is no answer to a program."""
    return _PAGE.match(body) is not None


def printable(body: bytes, sent: Mapping[str, str], characters: int = MESSAGE_CHARACTERS) -> str:
    """The beginning of a body as one line of text, without secrets; of a page what people read there."""
    text = body[: 16 * MESSAGE_CHARACTERS].decode("utf-8", "replace")
    if is_page(body):
        text = _TAGS.sub(" ", text)
    return redacted(" ".join(one_line(text).split()), sent)[:characters]


def redacted(text: str, sent: Mapping[str, str]) -> str:
    """A text without secrets: those of the headers that were sent, which a server may repeat, and others."""
    for name, value in sent.items():
        for secret in (value, value.partition(" ")[2]):
            if len(secret) >= _SHORTEST_SECRET and USUAL.names(name):
                text = text.replace(secret, REDACTED)
    return str(USUAL.hide("", text, []))


def seconds_to_wait(given: str) -> float | None:
    """What a Retry-After header says, which is a number of seconds or a date; an hour at most."""
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time.time()
        except (TypeError, ValueError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_WAIT) if math.isfinite(seconds) else None
