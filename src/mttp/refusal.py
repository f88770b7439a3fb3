"""What a transport says when it did not take everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["Refused", "Rejection"]


@dataclass(frozen=True, slots=True)
class Rejection:
    """Spans that a receiver turned down for good."""

    cause: str
    """Why, in one word: `http_400`, `grpc_unauthenticated`, `partial_success`, `too_large`, …"""
    spans: int
    """How many."""
    episodes: int
    """Of how many traces, at most."""


class Refused(Exception):  # noqa: N818 - reads as what it says
    """
    A transport did not take everything that it was given.

    `kept` is to be offered again, after `retry_after` seconds at the earliest; `rejections` are lost.
    All the rest was delivered.
    """

    def __init__(
        self,
        message: str,
        *,
        kept: Sequence[ReadableSpan] = (),
        rejections: Sequence[Rejection] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kept = kept
        self.rejections = rejections
        self.retry_after = retry_after
