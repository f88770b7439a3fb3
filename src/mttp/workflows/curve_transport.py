"""Curves of training, written to the tools that draw them while the training runs."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from mttp.codec import episodes, kinds, updates
from mttp.codec.profiles import full
from mttp.model.counting import LEFT_OUT, counting
from mttp.model.curves import episode_curves, update_curves
from mttp.model.episodes import Episode
from mttp.model.interrupts import raise_interrupt
from mttp.model.printable import visible
from mttp.model.spans import SpanRecord
from mttp.otlp.frames import Frame
from mttp.otlp.spans.span_records import record
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.export_target import taking_frames
from mttp.transports.partial_export import PartialExport, RejectedSpans

__all__ = ["CurveTransport", "CurveWriter"]

_MOST_OPEN = 10_000
"""The largest number of episodes whose scorings are kept until their end."""
_IGNORED = frozenset({names.STEP, names.STEPS})


class CurveWriter(Protocol):
    """Writes points of curves for a tool; its methods may raise."""

    def write(
        self, run: str, run_id: str, points: Mapping[str, float], *, axis: str, number: int, time: int
    ) -> None:
        """
        Write a point of each curve of a run.

        `axis` is episode or update, `number` the place on it, and `time` nanoseconds since the Unix epoch.
        """

    def flush(self) -> None:
        """Make written points visible to readers."""

    def close(self) -> None:
        """Release resources."""

    def after_fork(self) -> None:
        """In a forked child: forget what belongs to the parent."""


class CurveTransport(SpanExporter):
    """
    Writes the curves of ended episodes and updates, in the background thread of a session.

    Episodes of a run are counted in the order in which they are written, without those that the end of the
    training cut off or that evaluate the policy meanwhile. It never makes the caller wait.
    Points that can't be written are lost; they are counted and logged as spans that were rejected.
    """

    takes_columns = True
    max_block_seconds = 0.0

    def __init__(self, name: str, address: str, writer: CurveWriter) -> None:
        self.name = name
        """Its name in counters."""
        self.address = address
        self._writer = writer
        self._forget()

    def _forget(self) -> None:
        self.training: set[str] = set()
        """Ids of the runs that train, as far as they are known, see `mttp.model.counting`."""
        self._names: dict[str, str] = {}
        self._numbers: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._scorings: OrderedDict[str, list[SpanRecord]] = OrderedDict()
        self._unnamed: defaultdict[str, list[Callable[[str], None]]] = defaultdict(list)
        """Writes by run id, each called with the run's name once that is known."""

    def __repr__(self) -> str:
        return self.address

    @taking_frames
    def export(self, spans: Sequence[ReadableSpan | Frame]) -> SpanExportResult:
        """Write the curves of episodes and updates among the spans; raises PartialExport if that fails."""
        failed: list[Exception] = []
        for span in spans:
            try:
                self._add(record(span, full))
            except Exception as error:
                raise_interrupt(error)
                failed.append(error)
        try:
            self.flush()
        except Exception as error:
            raise_interrupt(error)
            failed.append(error)
        if failed:
            lost = min(len(failed), len(spans))
            raise PartialExport(
                f"points were not written: {failed[0]!r}",
                rejections=[RejectedSpans("write_failed", lost, lost)],
            )
        return SpanExportResult.SUCCESS

    def _add(self, span: SpanRecord) -> None:
        if span.scope.name != "mttp" or span.name in _IGNORED:
            return
        attributes = span.attributes
        kind = kinds.of(span.name, attributes, is_root=not span.parent_id)
        if kind in (names.RUN_START, names.RUN):
            run_id = str(attributes[a.RUN_ID])
            if attributes.get(a.RUN_KIND) == "train":
                self.training.add(run_id)
            self.name_run(run_id, attributes.get(a.RUN_NAME))
        elif kind == names.REWARD and a.STEP_INDEX not in attributes:
            self._scorings.setdefault(span.trace_id, []).append(span)
            if len(self._scorings) > _MOST_OPEN:
                self._scorings.popitem(last=False)
        elif kind == names.EPISODE:
            scorings = self._scorings.pop(span.trace_id, [])
            self._add_episode(episodes.decode([*scorings, span]))
        elif kind == names.UPDATE:
            update = updates.decode(span)
            self.training.add(update.run_id)
            time = update.end_time or update.start_time or 0
            self.add_points(
                update.run_id, update_curves(update), axis="update", index=update.index, time=time
            )

    def name_run(self, run_id: str, name: object) -> None:
        """Set the name of a run, by default its id, and write its points so far."""
        self._names[run_id] = visible(name or run_id)
        for write in self._unnamed.pop(run_id, ()):
            write(self._names[run_id])

    def _add_episode(self, episode: Episode) -> None:
        """Write the points of an episode, unless it is no part of the learning curve."""

        def is_left_out() -> bool:
            reason = counting(
                status=episode.status,
                stop_reason=episode.stop_reason,
                is_training=episode.run_id in self.training,
                task=episode.task,
                split=episode.split,
            )
            return reason in LEFT_OUT

        time = episode.end_time or episode.start_time or 0
        self.add_points(
            episode.run_id, episode_curves(episode), axis="episode", time=time, is_left_out=is_left_out
        )

    def add_points(
        self,
        run_id: str,
        points: Mapping[str, float],
        *,
        axis: str,
        time: int,
        index: int | None = None,
        is_left_out: Callable[[], bool] = bool,
    ) -> None:
        """
        Write points, or keep them until the run's start marker names the run and its kind.

        `index` is their place on the axis, by default the next one.
        """
        visibly = {visible(name): point for name, point in points.items()}

        def write(name: str) -> None:
            if is_left_out():
                return
            self._numbers[run_id, axis] += 1
            number = self._numbers[run_id, axis] - (axis == "update") if index is None else index
            self._writer.write(name, run_id=run_id, points=visibly, axis=axis, number=number, time=time)

        if run_id in self._names:
            write(self._names[run_id])
            return
        self._unnamed[run_id].append(write)
        if len(self._unnamed[run_id]) > _MOST_OPEN:
            self.name_run(run_id, None)

    def flush(self) -> None:
        """Make written points visible to readers."""
        self._writer.flush()

    def shutdown(self) -> None:
        """Write what is left, and close the writer."""
        try:
            for run_id in [*self._unnamed]:
                self.name_run(run_id, None)
        finally:
            self._writer.close()

    def force_flush(self, timeout_millis: int = 30000) -> bool:  # noqa: ARG002 - the SDK's signature
        """Return True: `export` writes synchronously."""
        return True

    def after_fork(self) -> None:
        """In a forked child: start anew."""
        self._forget()
        self._writer.after_fork()
