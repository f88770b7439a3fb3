"""Recorded spans to an OTLP receiver: as it keeps them, at a pace, and from where an earlier push stopped."""

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

from mttp.codec import blocks
from mttp.codec.profiles import unpacked
from mttp.codec.withholding import Withholding
from mttp.errors import ConfigureError, TransportError
from mttp.readable import Restored
from mttp.refusal import Refused
from mttp.semconv import attributes as a
from mttp.spans import SpanRecord
from mttp.transports.otlp import OtlpTransport
from mttp.transports.otlp.answers import Answer
from mttp.transports.otlp.batches import Export

__all__ = ["Push", "Pushed", "State", "latest", "shifted"]

BATCH_SPANS = 512
"""Spans that are handed over at once, at most."""
BATCH_BYTES = 2 * 2**20
"""What they take, roughly."""
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
    """Told once why the receiver takes nothing, when it is tried again."""
    on_progress: Callable[[Pushed], None] | None = None
    """Told after each batch."""
    pushed: Pushed = field(default_factory=Pushed)
    """What came of it so far."""

    def run(self, records: Iterable[SpanRecord], *, done: int = 0) -> Pushed:
        """
        Send the spans but for the first `done`, which an earlier push sent.

        Raises TransportError where the receiver takes nothing, or would turn down everything.
        """
        self.pushed.spans = self.pushed.resumed = done
        began = monotonic()
        for batch in _batches(islice(self._prepared(records), done, None)):
            self._send(batch)
            if self.on_progress is not None:
                self.on_progress(self.pushed)
            if self.rate is not None and not self.dry:
                due = began + (self.pushed.spans - done) / self.rate
                sleep(max(due - monotonic(), 0.0))
        return self.pushed

    def _prepared(self, records: Iterable[SpanRecord]) -> Iterator[Restored]:
        """The spans as they are sent: arrays as arrays, later, without what the receiver does not keep."""
        spent: dict[str, int] = {}
        for record in records:
            values = unpacked(record.attributes)
            kept = self.withholding.keep(values, spent=spent.get(record.trace_id, 0))
            spent[record.trace_id] = kept.spent
            yield Restored(shifted(replace(record, attributes=kept.values), self.shift))

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

    def _would_send(self, request: bytes, _: int) -> Answer:
        self.pushed.bytes += len(request)
        return Answer(verdict="taken")

    def _deliver(self, batch: list[Restored]) -> None:
        """Offer the spans until none of them is left."""
        left: list[Any] = list(batch)
        pause, until = 0.5, monotonic() + self.patience
        while left:
            try:
                self.transport.export(left)
                return
            except Refused as refused:
                self._take(refused, len(left))
                if len(refused.kept) < len(left):
                    pause, until = 0.5, monotonic() + self.patience
                left = list(refused.kept)
                if left:
                    wait = pause if refused.retry_after is None else refused.retry_after
                    self._wait(wait, until, str(refused))
                    pause = min(2 * pause, 8.0)

    def _take(self, refused: Refused, offered: int) -> None:
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
            raise TransportError(
                f"{why}; {self.pushed.spans:,} spans are done with, and the same command goes on from there"
            )
        self.on_trouble(f"{why}; trying again")
        sleep(seconds)


def _reason(said: str) -> tuple[str, str]:
    """The attribute and, without the figures of the one span, why it was left out."""
    key, _, why = said.partition(": ")
    return key, "".join("#" if character.isdigit() else character for character in why)


def _batches(spans: Iterator[Restored]) -> Iterator[list[Restored]]:
    batch: list[Restored] = []
    taken = 0
    for span in spans:
        batch.append(span)
        taken += sum(getattr(value, "nbytes", 64) for value in span.record.attributes.values())
        if len(batch) >= BATCH_SPANS or taken >= BATCH_BYTES:
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
class State:
    """What an interrupted push left behind, so that the next one goes on."""

    path: Path
    """The file that says it."""
    about: Mapping[str, Any]
    """Which push: from where, to where, and of what."""

    def load(self) -> Mapping[str, Any]:
        """What was noted, if anything was; raises ConfigureError where it is of another push."""
        try:
            found = json.loads(self.path.read_text())
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ConfigureError(
                f"{self.path} is no state of a push: {error}; --restart replaces it"
            ) from error
        if found.get("about") != json.loads(json.dumps(self.about)):
            raise ConfigureError(
                f"{self.path} is of a push of something else, or what is pushed has changed since; "
                "--restart begins anew"
            )
        return dict(found["so_far"])

    def save(self, **so_far: Any) -> None:
        """Note how far it has come; the file is whole at every moment."""
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps({"about": self.about, "so_far": so_far}))
        partial.replace(self.path)

    def remove(self) -> None:
        """Forget it: there is nothing left to do."""
        self.path.unlink(missing_ok=True)
