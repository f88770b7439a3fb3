"""The transport for OTLP receivers over HTTP and gRPC."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from opentelemetry import context as otel_context
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec.secrets import without_secrets
from mttp.model.log import log
from mttp.otlp.frames import Frame
from mttp.transports.export_target import taking_frames
from mttp.transports.options import with_query
from mttp.transports.otlp import profiles
from mttp.transports.otlp.answers import ExportResponse, OtlpSender
from mttp.transports.otlp.batches import Export
from mttp.transports.otlp.settings import TRACES_PATH, Settings, resolve
from mttp.transports.partial_export import PartialExport
from mttp.transports.spool import Spool
from mttp.transports.spool.folder import SpoolDestination

__all__ = ["OtlpTransport"]


class OtlpTransport(SpanExporter):
    """
    Sends spans to an OTLP receiver: `http://` and `https://` URLs as they are, `grpc://` and `grpcs://`.

    Options default to the OTEL_EXPORTER_OTLP variables; `profile` defaults to a guess from the address.
    The first export opens the connection.
    With `spool`, a directory, spans that the receiver does not accept now wait there, up to `spool_bytes`.
    Raises TransportError for a wrong option or variable, or a file or directory that can't be used.
    """

    name: ClassVar[str] = "otlp"
    """Its name in counters."""
    sampled: ClassVar[bool] = True
    """Whether it receives only sampled episodes."""
    buffer_bytes: int = 64 * 2**20
    """Bytes that its queue may hold."""
    max_block_seconds: float = 0.0
    """Seconds that a full queue may block the caller, per episode."""
    close_timeout: float = 10.0
    """Seconds that a closing session waits for the last spans."""
    segment_bytes: int = 2 * 2**20
    """Approximate bytes of one call of `export`."""
    withholding = profiles.DEFAULT.withholding
    """The attributes that the profile withholds from every span."""

    names_outcomes: bool = False
    """Whether names of spans say outcomes and indices."""

    def __init__(self, url: str, /, **options: object) -> None:
        """`options` are those of `Settings`, parsed or not."""
        self.settings = resolve(url, options)
        """The settings resolved from options and variables."""
        self.withholding = self.settings.profile.withholding
        self.close_timeout = self.settings.profile.close_seconds
        self.names_outcomes = self.settings.names == "outcome"
        self._url = url
        self._place = without_secrets(url)
        self.spool = self._open_spool()
        """The spool; None without the option."""
        names = [name for name, value in options.items() if value is not None and name != "headers"]
        self._given = {name: getattr(self.settings, name) for name in names}
        if "profile" in self._given:
            self._given["profile"] = self.profile
        self._logged = ""
        self._lock = threading.Lock()
        self._sender: OtlpSender | None = None
        self._closed = False

    def _open_spool(self) -> Spool | None:
        if self.settings.spool is None:
            return None
        destination = SpoolDestination(self._place, self.profile)
        return Spool(Path(self.settings.spool), self.settings.spool_bytes, destination)

    @property
    def profile(self) -> str:
        """The name of the profile: the given one, or the one guessed from the address."""
        return self.settings.profile.name

    @property
    def address(self) -> str | None:
        """The address with its options but without headers; None where no address expresses it."""
        if self.settings.protocol == "http" and not self._url.endswith(TRACES_PATH):
            return None
        return with_query(self._url, self._given)

    @taking_frames
    def export(self, spans: Sequence[ReadableSpan | Frame]) -> SpanExportResult:
        """Send the spans; raises PartialExport where not all of them were taken."""
        sender = self._connected()
        if sender is None:
            raise PartialExport(f"{self._place}: the transport is closed", kept=spans)
        export = Export(sender.send, self.settings.max_bytes)
        silent = otel_context.set_value(otel_context._SUPPRESS_INSTRUMENTATION_KEY, True)
        token = otel_context.attach(silent)
        try:
            export.run(spans)
        finally:
            otel_context.detach(token)
        if export.kept or export.lost:
            raise PartialExport(
                f"{self._place}: {export.message}",
                kept=export.kept,
                rejections=export.rejections(),
                retry_after=export.retry_after,
            )
        self._log_message(export.message)
        return SpanExportResult.SUCCESS

    def ping(self, timeout: float) -> ExportResponse:
        """Send a request without spans, and return the outcome within `timeout` seconds."""
        sender = self._connected()
        if sender is None:
            return ExportResponse(verdict="again", cause="shutdown", message="the transport is closed")
        return sender.send(b"", 0, timeout)

    def shutdown(self) -> None:
        """Close the connection; a gRPC request in progress is cancelled."""
        with self._lock:
            self._closed = True
            sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
        if self.spool is not None:
            self.spool.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` sends synchronously."""
        return True

    def after_fork(self) -> None:
        """Replace the lock in a forked child: a thread of the parent may hold it."""
        self._lock = threading.Lock()
        if self.spool is not None:
            self.spool.after_fork()

    def __repr__(self) -> str:
        return self._place

    def _connected(self) -> OtlpSender | None:
        with self._lock:
            if self._sender is None and not self._closed:
                self._sender = _sender(self.settings)
            return self._sender

    def _log_message(self, message: str) -> None:
        """Log the receiver's message after a full success; a repeated message is logged once."""
        if message and message != self._logged:
            log.warning("mttp: %s: %s", self._place, message)
        self._logged = message


def _sender(settings: Settings) -> OtlpSender:
    if settings.protocol == "grpc":
        from mttp.transports.otlp.grpc import GrpcSender

        return GrpcSender(settings)
    from mttp.transports.otlp.http import HttpSender

    return HttpSender(settings)
