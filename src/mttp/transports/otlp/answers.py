"""What became of one request, and what that means for the spans in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from mttp.model.printable import one_line
from mttp.otlp.replies import printable

__all__ = ["ExportResponse", "OtlpSender", "partly"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResponse:
    """A receiver's answer, or why there was none."""

    verdict: Literal["taken", "again", "never", "smaller"]
    """Taken; to be sent again later; turned down for good; or too large, to be sent in smaller parts."""
    cause: str = ""
    """In a word: http_503, grpc_unavailable, connection, timeout, tls, …"""
    message: str = ""
    """In the receiver's words or the system's, with what may be wrong; no control characters."""
    retry_after: float | None = None
    """Seconds for which nothing should be sent, where the receiver said so."""
    rejected: int = 0
    """Spans that the receiver did not take although it took the request."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", one_line(self.message))


class OtlpSender(Protocol):
    """
    One protocol's side of the transport; it never raises for what a receiver or a network does.

    In a forked child it connects anew, and leaves the parent's connection alone.
    """

    def send(self, request: bytes, spans: int, timeout: float | None = None) -> ExportResponse:
        """Send a request of so many spans, and wait for the answer, by default for the settings' timeout."""

    def close(self) -> None:
        """Release the connection; called from any thread, also while `send` waits."""


def partly(rejected: int, spans: int, message: str, sent: Mapping[str, str]) -> ExportResponse:
    """The answer to a request with these headers that was taken, perhaps but for some of its spans."""
    said = printable(message.encode(), sent)
    return ExportResponse(verdict="taken", message=said, rejected=min(max(rejected, 0), spans))
