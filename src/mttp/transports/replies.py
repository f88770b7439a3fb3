"""What HTTP receivers say beside the status."""

from __future__ import annotations

import math
import time
from email.utils import parsedate_to_datetime

__all__ = ["MESSAGE_CHARACTERS", "printable", "seconds_to_wait"]

MESSAGE_CHARACTERS = 300
"""What is repeated of a receiver's own words, at most."""


def printable(body: bytes) -> str:
    """The beginning of a body as one line of text."""
    text = body[: 4 * MESSAGE_CHARACTERS].decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MESSAGE_CHARACTERS]


def seconds_to_wait(given: str) -> float | None:
    """What a Retry-After header says, which is a number of seconds or a date."""
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None
