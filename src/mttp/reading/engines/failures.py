"""Errors of query engines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mttp.errors import MttpError, ReadError
from mttp.otlp.replies import redacted

__all__ = ["readable"]

_MESSAGE = 500


@contextmanager
def readable(source: object, *, secret: str = "") -> Iterator[None]:
    """Raise ReadError for any exception: engines raise many types. The message does not contain `secret`."""
    try:
        yield
    except (MttpError, GeneratorExit):
        raise
    except Exception as error:
        reason = redacted(" ".join(f"{type(error).__name__}: {error}".split()), {})
        shown = reason.replace(secret, "…") if secret else reason
        raise ReadError(f"{source}: {shown[:_MESSAGE]}") from error
