"""Sends recorded spans to an OTLP receiver, at a limited rate if asked, and resumes interrupted pushes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np

from mttp.codec import blocks, episodes
from mttp.codec.conformity import Conformity
from mttp.codec.fitting import wire_bytes
from mttp.codec.profiles import DAMAGE, unpacked
from mttp.codec.withholding import Kept, Withholding
from mttp.errors import ConfigureError, TransportError
from mttp.model.spans import SpanRecord
from mttp.otlp import regular_files
from mttp.otlp.spans.span_records import framed
from mttp.otlp.whole_files import replacing
from mttp.semconv import attributes as a
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.answers import ExportResponse
from mttp.transports.otlp.batches import Export
from mttp.transports.partial_export import PartialExport
from mttp.transports.pipeline.content_filter import kept_of, with_kept
from mttp.transports.spool import SpoolFolder

__all__ = ["Push", "Pushed", "PushState", "latest", "shifted"]

BATCH_SPANS = 512
"""Maximum number of spans in a batch."""
BATCH_BYTES = 2 * 2**20
"""Approximate size of a batch."""
PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""First and longest delay between retries, in seconds; each delay is twice the one before."""
_MAX_STATE = 64 << 20
"""Maximum size of a state file, in bytes."""
_TIMES = (a.STEPS_START_TIMES, a.STEPS_END_TIMES)


@dataclass(slots=True)
class Pushed:
    """The progress of a push."""

    spans: int = 0
    """Number of spans that were delivered or permanently rejected."""
    resumed: int = 0
    """How many of these an earlier push had processed."""
    traces: set[str] = field(default_factory=set)
    """Ids of the traces of which this push sent spans."""
    bytes: int = 0
    """Bytes that a dry run would have sent, before compression."""
    lost: Counter[str] = field(default_factory=Counter)
    """Number of permanently rejected spans, and of damaged spans of a spool, by cause."""
    message: str = ""
    """The receiver's message about the first rejected span."""
    omitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of spans with an omitted or truncated attribute, by attribute and reason."""


@dataclass(slots=True, kw_only=True)
class Push:
    """One push of recorded spans to a receiver."""

    transport: OtlpTransport
    """The transport that sends the spans."""
    withholding: Withholding
    """Decides which attributes of each span are sent."""
    shift: int = 0
    """Nanoseconds that are added to all times."""
    rate: float | None = None
    """Maximum number of spans per second."""
    max_retry_seconds: float = 30.0
    """How long to retry while the receiver accepts nothing."""
    dry: bool = False
    """Whether to encode the spans without sending them."""
    on_trouble: Callable[[str], None] = print
    """Called with the reason when a batch is retried, once per reason in a row."""
    on_progress: Callable[[Pushed], None] | None = None
    """Called after each batch."""
    pushed: Pushed = field(default_factory=Pushed)
    """The progress so far."""
    _reported: str = field(default="", init=False, repr=False)
    _began: float | None = field(default=None, init=False, repr=False)

    def run(self, records: Iterable[SpanRecord], *, done: int = 0) -> Pushed:
        """
        Send the spans after the first `done`, which an earlier push sent, and return the progress.

        Raises TransportError if the receiver accepts nothing, or rejects the whole first request.
        """
        self.pushed.spans = self.pushed.resumed = done
        self._send_all(islice(self._prepared(records), done, None))
        return self.pushed

    def run_spool(
        self, folders: Iterable[SpoolFolder], *, progress: Callable[[int], object] | None = None
    ) -> Pushed:
        """
        Send the spans of folders of a spool, delete what was sent, and return the progress.

        `progress` is called with the bytes of each batch.
        Raises TransportError like `run`; what was not sent then stays.
        """
        for folder in folders:
            while batch := folder.take(BATCH_BYTES):
                self._send_all(self._prepared(batch.records))
                folder.advance(delete=not self.dry)
                if batch.damaged:
                    self.pushed.lost["spool_damaged"] += batch.damaged
                if progress is not None:
                    progress(batch.bytes)
            if not self.dry:
                folder.remove()
        return self.pushed

    def _send_all(self, spans: Iterator[SpanRecord]) -> None:
        began = self._began = monotonic() if self._began is None else self._began
        # At most one second's spans, if the rate is limited.
        size = BATCH_SPANS if self.rate is None else min(BATCH_SPANS, max(int(self.rate), 1))
        for batch in _batches(spans, size):
            if self.rate is not None and not self.dry:
                due = began + (self.pushed.spans - self.pushed.resumed) / self.rate
                sleep(max(due - monotonic(), 0.0))
            self._send(batch)
            if self.on_progress is not None:
                self.on_progress(self.pushed)

    def _prepared(self, records: Iterable[SpanRecord]) -> Iterator[SpanRecord]:
        """Yield spans with arrays unpacked, times shifted, and unsupported attributes omitted."""
        spent: dict[str, int] = {}
        conformity = Conformity()
        for record in records:
            bytes_spent = spent.get(record.trace_id, 0)
            if blocks.is_block(record.attributes):  # a damaged count of steps may be huge
                record, _ = conformity.examine(record)
            try:
                selection = self._kept(record, bytes_spent)
            except DAMAGE:
                record, _ = conformity.examine(record)
                selection = self._kept(record, bytes_spent)
            spent[record.trace_id] = selection.spent
            if self.transport.names_outcomes:
                record = replace(record, name=episodes.telling_name(record.name, record.attributes))
            yield shifted(with_kept(record, selection), self.shift)

    def _kept(self, record: SpanRecord, spent: int) -> Kept:
        whole = replace(record, attributes=unpacked(record.attributes))
        return kept_of(self.withholding, whole, spent)

    def _send(self, batch: list[SpanRecord]) -> None:
        self._count(batch)
        if self.dry:
            export = Export(self._would_send, self.transport.settings.max_bytes)
            export.run(list(map(framed, batch)))
            self.pushed.lost.update({cause: len(traces) for cause, traces in export.lost.items()})
        else:
            self._deliver(batch)
        self.pushed.spans += len(batch)

    def _count(self, batch: list[SpanRecord]) -> None:
        for span in batch:
            self.pushed.traces.add(span.trace_id)
            for omission in span.attributes.get(a.OMISSIONS) or ():
                self.pushed.omitted[_omission(str(omission))] += 1

    def _would_send(self, request: bytes, _: int) -> ExportResponse:
        self.pushed.bytes += len(request)
        return ExportResponse(verdict="taken")

    def _deliver(self, batch: list[SpanRecord]) -> None:
        """Send the spans, and retry those that the receiver may accept later."""
        left: list[Any] = list(map(framed, batch))
        pause, until = PAUSE, monotonic() + self.max_retry_seconds
        while left:
            try:
                self.transport.export(left)
                return
            except PartialExport as refused:
                self._take(refused, len(left))
                if len(refused.kept) < len(left):
                    pause, until = PAUSE, monotonic() + self.max_retry_seconds
                left = list(refused.kept)
                if left:
                    self._wait_to_retry(max(pause, refused.retry_after or 0.0), until, str(refused))
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _take(self, refused: PartialExport, offered: int) -> None:
        """Count rejected spans; raise TransportError if the whole first request was rejected."""
        for rejection in refused.rejections:
            self.pushed.lost[rejection.cause] += rejection.spans
            self.pushed.message = self.pushed.message or str(refused)
        none_yet = self.pushed.spans == self.pushed.resumed
        rejected = sum(rejection.spans for rejection in refused.rejections)
        if none_yet and rejected == offered and refused.rejections[0].cause != "too_large":
            raise TransportError(f"the receiver accepted nothing: {refused}")

    def _wait_to_retry(self, seconds: float, until: float, why: str) -> None:
        if monotonic() + seconds > until:
            asked = f"; the receiver asks to wait {seconds:,.0f} seconds" if seconds > LONGEST_PAUSE else ""
            raise TransportError(
                f"{why}{asked}; gave up after {self.max_retry_seconds:g} seconds (--max-retry-seconds); "
                f"{self.pushed.spans:,} spans are done; run the same command again to resume"
            )
        if why != self._reported:
            self.on_trouble(f"{why}; retrying")
            self._reported = why
        sleep(seconds)


def _omission(text: str) -> tuple[str, str]:
    """Return the omitted attribute and the reason, whose digits are replaced so that equal reasons add up."""
    key, _, why = text.partition(": ")
    return key, "".join("#" if character.isdigit() else character for character in why)


def _batches(spans: Iterator[SpanRecord], count: int) -> Iterator[list[SpanRecord]]:
    batch: list[SpanRecord] = []
    size = 0
    for span in spans:
        batch.append(span)
        size += wire_bytes(span.attributes)
        if len(batch) >= count or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def latest(records: Iterable[SpanRecord]) -> int:
    """Return the latest end time of the spans, in nanoseconds since the Unix epoch; 0 without spans."""
    return max((max(record.start_time, record.end_time) for record in records), default=0)


def shifted(record: SpanRecord, by: int) -> SpanRecord:
    """Return the span with `by` nanoseconds added to all its times."""
    if not by:
        return record
    attributes = dict(record.attributes)
    if blocks.is_block(attributes):
        attributes |= {key: np.asarray(attributes[key]) + by for key in _TIMES if key in attributes}
    return replace(
        record,
        start_time=record.start_time + by,
        end_time=record.end_time + by,
        attributes=attributes,
        events=[replace(event, time=event.time + by) for event in record.events],
    )


@dataclass(frozen=True, slots=True)
class PushState:
    """The file that stores the progress of a push, so that an interrupted push can be resumed."""

    path: Path
    """Path of the file."""
    about: Mapping[str, Any]
    """Identifies the push: its sources, receiver and options."""

    def load(self, *, restart: bool = False) -> Mapping[str, Any]:
        """
        Return the stored progress, empty if there is none or with `restart`.

        Raises ConfigureError if the file belongs to another push, or is not a state file.
        """
        try:
            state = json.loads(regular_files.read(self.path, _MAX_STATE))
            about, so_far = state["about"], dict(state["so_far"])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigureError(f"{self.path} can't be read: {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigureError(
                f"{self.path} is not the state of a push; remove it, or name another file with --state"
            ) from error
        if restart:
            return {}
        if about != json.loads(json.dumps(self.about)):
            raise ConfigureError(
                f"{self.path} belongs to a different push, or the recording has changed since; "
                "--restart starts from the beginning"
            )
        return so_far

    def save(self, **so_far: Any) -> None:
        """Replace the file atomically by this progress; raises ConfigureError if it can't be written."""
        try:
            with replacing(self.path) as partial:
                partial.write_text(json.dumps({"about": self.about, "so_far": so_far}))
        except OSError as error:
            raise ConfigureError(
                f"the progress of the push can't be written to {self.path}: {error.strerror}; "
                "--state FILE names another file"
            ) from error

    def remove(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
