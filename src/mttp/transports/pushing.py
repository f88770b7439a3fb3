"""Recorded spans to an OTLP receiver: as it keeps them, at a pace, and from where an earlier push stopped."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import Any, TypeVar

import numpy as np

from mttp.codec import blocks
from mttp.codec.fitting import wire_bytes
from mttp.codec.profiles import unpacked
from mttp.codec.withholding import Kept, Withholding
from mttp.errors import ConfigureError, TransportError
from mttp.model.spans import Link, SpanEvent, SpanRecord
from mttp.otlp import regular_files
from mttp.otlp.spans.span_records import Restored
from mttp.semconv import attributes as a
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.answers import ExportResponse
from mttp.transports.otlp.batches import Export
from mttp.transports.partial_export import PartialExport

__all__ = ["Push", "Pushed", "PushState", "latest", "shifted"]

BATCH_SPANS = 512
"""Spans that are handed over at once, at most."""
BATCH_BYTES = 2 * 2**20
"""What they take, roughly."""
PAUSE, LONGEST_PAUSE = 0.5, 8.0
"""Seconds ahead of the first attempt after one that failed, which double, and at most."""
_Mark = TypeVar("_Mark", SpanEvent, Link)
_MAX_STATE = 64 << 20
"""Largest file of how far a push has come, in bytes."""
_TIMES = (a.STEPS_START_TIMES, a.STEPS_END_TIMES)


@dataclass(slots=True)
class Pushed:
    """What came of a push so far."""

    spans: int = 0
    """Spans that are done with: delivered, or turned down for good."""
    resumed: int = 0
    """How many of them an earlier push had done with."""
    traces: set[str] = field(default_factory=set)
    """The traces that this push sent something of."""
    bytes: int = 0
    """What a dry push would have sent, before compression."""
    lost: Counter[str] = field(default_factory=Counter)
    """Spans that were turned down for good, by cause."""
    message: str = ""
    """What the receiver said of the first of these."""
    omitted: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Spans that went without an attribute, or without all of it, by attribute and reason."""


@dataclass(slots=True, kw_only=True)
class Push:
    """One push, which can be taken up again where it stopped."""

    transport: OtlpTransport
    """Where to."""
    withholding: Withholding
    """What of each span."""
    shift: int = 0
    """Nanoseconds by which all times are later than they were recorded."""
    rate: float | None = None
    """The most spans per second."""
    patience: float = 30.0
    """Seconds for which a receiver that takes nothing is tried again."""
    dry: bool = False
    """Whether everything is done but sending."""
    on_trouble: Callable[[str], None] = print
    """Told why the receiver takes nothing when it is tried again, once while it is the same."""
    on_progress: Callable[[Pushed], None] | None = None
    """Told after each batch."""
    pushed: Pushed = field(default_factory=Pushed)
    """What came of it so far."""
    _told: str = field(default="", init=False, repr=False)

    def run(self, records: Iterable[SpanRecord], *, done: int = 0) -> Pushed:
        """
        Send the spans but for the first `done`, which an earlier push sent.

        Raises TransportError where the receiver takes nothing, or would turn down everything.
        """
        self.pushed.spans = self.pushed.resumed = done
        began = monotonic()
        for batch in _batches(islice(self._prepared(records), done, None), self._batch_spans()):
            if self.rate is not None and not self.dry:
                due = began + (self.pushed.spans - done) / self.rate
                sleep(max(due - monotonic(), 0.0))
            self._send(batch)
            if self.on_progress is not None:
                self.on_progress(self.pushed)
        return self.pushed

    def _batch_spans(self) -> int:
        """The most spans at once: those of a second, where a rate is to be kept."""
        return BATCH_SPANS if self.rate is None else min(BATCH_SPANS, max(int(self.rate), 1))

    def _prepared(self, records: Iterable[SpanRecord]) -> Iterator[Restored]:
        """The spans as they are sent: arrays as arrays, later, without what the receiver does not keep."""
        spent: dict[str, int] = {}
        for record in records:
            values = unpacked(record.attributes)
            kept = self.withholding.keep(
                values,
                spent=spent.get(record.trace_id, 0),
                status=record.status_message,
                marks=[
                    *(event.attributes for event in record.events),
                    *(link.attributes for link in record.links),
                ],
            )
            spent[record.trace_id] = kept.spent
            yield Restored(shifted(_with(record, kept), self.shift))

    def _send(self, batch: list[Restored]) -> None:
        self._count(batch)
        if self.dry:
            export = Export(self._would_send, self.transport.settings.max_bytes)
            export.run(batch)
            self.pushed.lost.update({cause: len(traces) for cause, traces in export.lost.items()})
        else:
            self._deliver(batch)
        self.pushed.spans += len(batch)

    def _count(self, batch: list[Restored]) -> None:
        for span in batch:
            self.pushed.traces.add(span.record.trace_id)
            for said in span.record.attributes.get(a.OMISSIONS) or ():
                self.pushed.omitted[_reason(str(said))] += 1

    def _would_send(self, request: bytes, _: int) -> ExportResponse:
        self.pushed.bytes += len(request)
        return ExportResponse(verdict="taken")

    def _deliver(self, batch: list[Restored]) -> None:
        """Offer the spans until none of them is left."""
        left: list[Any] = list(batch)
        pause, until = PAUSE, monotonic() + self.patience
        while left:
            try:
                self.transport.export(left)
                return
            except PartialExport as refused:
                self._take(refused, len(left))
                if len(refused.kept) < len(left):
                    pause, until = PAUSE, monotonic() + self.patience
                left = list(refused.kept)
                if left:
                    self._wait(max(pause, refused.retry_after or 0.0), until, str(refused))
                    pause = min(2 * pause, LONGEST_PAUSE)

    def _take(self, refused: PartialExport, offered: int) -> None:
        """Count what was turned down; all of the first request means that the rest would be, too."""
        for rejection in refused.rejections:
            self.pushed.lost[rejection.cause] += rejection.spans
            self.pushed.message = self.pushed.message or str(refused)
        none_yet = self.pushed.spans == self.pushed.resumed
        turned_down = sum(rejection.spans for rejection in refused.rejections)
        if none_yet and turned_down == offered and refused.rejections[0].cause != "too_large":
            raise TransportError(f"nothing was taken: {refused}")

    def _wait(self, seconds: float, until: float, why: str) -> None:
        if monotonic() + seconds > until:
            asked = f"; it asks to wait {seconds:,.0f} seconds" if seconds > LONGEST_PAUSE else ""
            raise TransportError(
                f"{why}{asked}; it was tried for {self.patience:g} seconds, --patience N tries for longer; "
                f"{self.pushed.spans:,} spans are done with, and the same command goes on from there"
            )
        if why != self._told:
            self.on_trouble(f"{why}; trying again")
            self._told = why
        sleep(seconds)


def _with(record: SpanRecord, kept: Kept) -> SpanRecord:
    """The span with what may be delivered of it."""
    count = len(record.events)
    return replace(
        record,
        attributes=kept.values,
        status_message=kept.status,
        events=list(map(_marked, record.events, kept.marks[:count])),
        links=list(map(_marked, record.links, kept.marks[count:])),
    )


def _marked(mark: _Mark, attributes: Mapping[str, Any]) -> _Mark:
    return replace(mark, attributes=attributes)


def _reason(said: str) -> tuple[str, str]:
    """The attribute and, without the figures of the one span, why it was left out."""
    key, _, why = said.partition(": ")
    return key, "".join("#" if character.isdigit() else character for character in why)


def _batches(spans: Iterator[Restored], count: int) -> Iterator[list[Restored]]:
    batch: list[Restored] = []
    taken = 0
    for span in spans:
        batch.append(span)
        taken += wire_bytes(span.record.attributes)
        if len(batch) >= count or taken >= BATCH_BYTES:
            yield batch
            batch, taken = [], 0
    if batch:
        yield batch


def latest(records: Iterable[SpanRecord]) -> int:
    """When the last of the spans ended, in nanoseconds since the Unix epoch; 0 of none."""
    return max((max(record.start_time, record.end_time) for record in records), default=0)


def shifted(record: SpanRecord, by: int) -> SpanRecord:
    """The span with all of its times later by so many nanoseconds."""
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
    """What an interrupted push left behind, so that the next one goes on."""

    path: Path
    """The file that says it."""
    about: Mapping[str, Any]
    """Which push: from where, to where, and of what."""

    def load(self, *, restart: bool = False) -> Mapping[str, Any]:
        """
        What was noted, nothing of it where the push begins anew.

        Raises ConfigureError if the state is of another push, or the file is no state of a push.
        """
        try:
            found = json.loads(regular_files.read(self.path, _MAX_STATE))
            about, so_far = found["about"], dict(found["so_far"])
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ConfigureError(f"{self.path} can't be read: {error.strerror or error}") from error
        except (ValueError, TypeError, KeyError) as error:
            raise ConfigureError(
                f"{self.path} is no state of a push; remove it, or name another file with --state"
            ) from error
        if restart:
            return {}
        if about != json.loads(json.dumps(self.about)):
            raise ConfigureError(
                f"{self.path} is of a push of something else, or what is pushed has changed since; "
                "--restart begins anew"
            )
        return so_far

    def save(self, **so_far: Any) -> None:
        """Note how far it has come, in a file that is whole at every moment; raises ConfigureError."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        try:
            partial.write_text(json.dumps({"about": self.about, "so_far": so_far}))
            partial.replace(self.path)
        except OSError as error:
            raise ConfigureError(
                f"how far the push has come can't be noted in {self.path}: {error.strerror}; "
                "--state FILE notes it elsewhere"
            ) from error

    def remove(self) -> None:
        """Forget it: there is nothing left to do."""
        self.path.unlink(missing_ok=True)
