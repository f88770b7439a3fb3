"""The transport for OTLP receivers, whichever protocol they speak."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import ClassVar

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.transports.options import with_query
from mttp.transports.otlp import profiles
from mttp.transports.otlp.answers import OtlpSender
from mttp.transports.otlp.batches import Export
from mttp.transports.otlp.settings import TRACES_PATH, Settings, resolve
from mttp.transports.partial_export import PartialExport

__all__ = ["OtlpTransport"]

_log = logging.getLogger("mttp")


class OtlpTransport(SpanExporter):
    """
    Sends spans to an OTLP receiver: `http://` and `https://` URLs as they are, `grpc://` and `grpcs://`.

    Every option that is not given follows the OTEL_EXPORTER_OTLP variables, and `profile` the address.
    Nothing is sent, and nothing connected, ahead of the first export.
    Raises TransportError where an option or a variable is wrong, or a file can't be read.
    """

    name: ClassVar[str] = "otlp"
    """What it is called in counters."""
    sampled: ClassVar[bool] = True
    """Whether sampling decides what it gets."""
    buffer_bytes: int = 64 * 2**20
    """What may wait for it in memory."""
    patience: float = 0.0
    """Seconds that it may hold up the caller."""
    close_timeout: float = 10.0
    """Seconds that the last spans may take."""
    segment_bytes: int = 2 * 2**20
    """What it is given at once, roughly."""
    withholding = profiles.named("collector").withholding
    """What is kept back of every span, as the profile has it."""

    def __init__(self, url: str, /, **options: object) -> None:
        """`options` are those of `Settings`, parsed or not."""
        self.settings = resolve(url, options)
        """What the options and the variables come to."""
        self.withholding = self.settings.profile.withholding
        self.close_timeout = self.settings.profile.close_seconds
        self._url = url
        stated = [name for name, value in options.items() if value is not None and name != "headers"]
        self._given = {name: getattr(self.settings, name) for name in stated}
        if "profile" in self._given:
            self._given["profile"] = self.profile
        self._said = ""
        self._lock = threading.Lock()
        self._sender: OtlpSender | None = None
        self._closed = False

    @property
    def profile(self) -> str:
        """What listens there, as it was said or guessed."""
        return self.settings.profile.name

    @property
    def address(self) -> str | None:
        """Where another process finds the same receiver, without headers; None where no address says it."""
        if self.settings.protocol == "http" and not self._url.endswith(TRACES_PATH):
            return None
        return with_query(self._url, self._given)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans; raises Refused where not all of them were taken."""
        sender = self._connected()
        if sender is None:
            raise PartialExport(f"{self._url}: the transport is closed", kept=spans)
        export = Export(sender.send, self.settings.max_bytes)
        silent = otel_context.set_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY, True)
        token = otel_context.attach(silent)
        try:
            export.run(spans)
        finally:
            otel_context.detach(token)
        if export.kept or export.lost:
            raise PartialExport(
                f"{self._url}: {export.message}",
                kept=export.kept,
                rejections=export.rejections(),
                retry_after=export.retry_after,
            )
        self._say(export.message)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Release the connection at once; what is being sent over gRPC is broken off."""
        with self._lock:
            self._closed = True
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Nothing waits: every export is sent."""
        return True

    def after_fork(self) -> None:
        """In a forked child: connect anew, as senders do; the lock may be held by a thread of the parent."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return self._url

    def _connected(self) -> OtlpSender | None:
        with self._lock:
            if self._sender is None and not self._closed:
                self._sender = _sender(self.settings)
            return self._sender

    def _say(self, message: str) -> None:
        """Log what a receiver that takes everything has to say, once while it is the same."""
        if message and message != self._said:
            _log.warning("mttp: %s: %s", self._url, message)
        self._said = message


def _sender(settings: Settings) -> OtlpSender:
    if settings.protocol == "grpc":
        from mttp.transports.otlp.grpc import GrpcSender

        return GrpcSender(settings)
    from mttp.transports.otlp.http import HttpSender

    return HttpSender(settings)
