"""One process's share of a run: its run span, and what its episodes record into."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from opentelemetry.trace import Link, SpanContext, SpanKind

from mttp.codec import episodes, runs
from mttp.codec.plain import Faults, text
from mttp.codec.redaction import ContentRule
from mttp.model import ids
from mttp.model.clock import Clock
from mttp.model.counters import given, numbers, take
from mttp.otlp.encoding import encoder
from mttp.otlp.spans import EndedSpan, RecordingSpan, SpanOrigin, SpanSink, Trace
from mttp.recording import provenance
from mttp.recording.handle import BuffersSteps, HasStartMarker
from mttp.recording.open_episode import OpenEpisode
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline import Pipeline
from mttp.transports.pipeline.losses import Loss
from mttp.transports.sampling import Sampling
from mttp.transports.stats import Stats

__all__ = ["RunConfig", "RunRecorder"]

_log = logging.getLogger("mttp")
_OF_PLACES = frozenset({"component_invalid", "reward_invalid", "metric_invalid"})
"""Faults whose detail begins with what they are about."""

_DETECTION_SECONDS = 10.0
_FORK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """What all processes of a session agree on."""

    lanes: Sequence[ExportTarget]
    """Where the spans go."""
    origin: SpanOrigin
    run_id: str
    facts: Mapping[str, Any]
    """What is known of the run beforehand, under the names that `mttp.model.Run` has."""
    config: Mapping[str, Any]
    """Its configuration, as attributes."""
    faults: tuple[str, ...]
    """What is wrong with that."""
    directory: str
    """Where it started."""
    omissions: tuple[str, ...] = ()
    """What was left out of what it says of itself."""
    sampling: Sampling | None = None
    """Which episodes collectors get; None for all."""
    steps: str = "auto"
    """How steps are written, where an episode does not say: spans, packed or auto."""
    logged: ContentRule = field(default_factory=ContentRule)
    """What the log may have of a fault, which may quote what was recorded."""


class RunRecorder:
    """
    What the recorder and the pipeline know of a session.

    A forked child has a share of its own.
    Episodes that were open at the fork keep the parent's, which takes nothing there: the parent ends them.
    """

    def __init__(self, plan: RunConfig, *, forked: bool = False) -> None:
        self.run_id = plan.run_id
        self.origin = plan.origin
        self.steps = plan.steps
        self._run_name = text(plan.facts.get("name") or "", [])
        self.stats = Stats((lane.address, lane.name) for lane in plan.lanes)
        self.pipelines = [
            Pipeline(lane, stats, self, self.stats, plan.sampling)
            for lane, stats in zip(plan.lanes, self.stats.transports.values(), strict=True)
        ]
        self.stepped = self.stats.stepped.__next__
        """Returns the next step's span id."""
        self.take: Callable[[EndedSpan], None] = self.ended
        """Takes an ended span."""
        if len(self.pipelines) == 1:
            self.take = self.pipelines[0].take
        self._plan = plan
        self._forked = forked
        self._heir: RunRecorder | None = None
        self._clock = Clock()
        self._started = self._clock.now()
        self._ended: int | None = None
        self._status = "completed"
        self._unmarked: dict[int, HasStartMarker] = {}
        self._gathering: dict[int, BuffersSteps] = {}
        self._marking = threading.Lock()
        self._marker = 0
        self._looking = threading.RLock()
        self._is_over = False
        self._detection: provenance.Detection | None = None
        self._run: RecordingSpan | None = None
        self._is_known = self._is_news = False
        self._described: dict[str, Any] = {}
        self._faults: Faults = []
        self._finished = numbers()
        self._parts = 0
        self._documents: dict[str, None] = {}
        self._helpers_lost = encoder.losses()

    @property
    def closed(self) -> bool:
        """Whether the session has been closed."""
        return self._ended is not None

    def flush(self, timeout: float) -> bool:
        """Have everything written that has ended; whether all was taken within `timeout` seconds."""
        return _flush(self.pipelines, timeout)

    def flush_one(self, place: int, timeout: float) -> bool:
        """Flush one transport, by its place."""
        return _flush(self.pipelines[place : place + 1], timeout)

    def close(self, status: str, timeout: float | None) -> bool:
        """
        End the run; whether everything was written in time: `timeout` seconds, or each transport's own.

        A second caller, such as a signal handler, waits for the first.
        """
        if self._ended is None:
            self._ended, self._status = self._clock.now(), status
        for pipeline in self.pipelines:
            pipeline.begin_close(timeout)
        written = [pipeline.close() for pipeline in self.pipelines]
        if not written and self.origin.observers is not None:
            self.ending()  # no transport, but span processors that see it
        return all(written)

    def describe(self, facts: Mapping[str, Any], faults: Faults) -> None:
        """Take facts about the run that became known, as attributes; what was stated before stays."""
        with self._looking:
            self._described = dict(facts) | self._described
            self._faults += faults
            self._is_news = True
        self.wake()

    # What the recorder calls.

    def ended(self, span: EndedSpan) -> None:
        """Take an ended span."""
        if self._heir is None:
            last = self._marker != 0 and self._marker == threading.get_ident()
            full = None
            for pipeline in self.pipelines:
                if not pipeline.put(span, last=last):
                    full = [*(full or ()), pipeline]
            if full is not None:
                since = time.monotonic()
                for pipeline in full:  # once each has the span: none waits for another's space
                    pipeline.hold_up(span, since)
        else:
            self._heir.fault(
                "episode_of_parent", f"{span.name!r} belongs to the process that forked this one"
            )

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind at each place: a grader, a component, a metric."""
        if self._heir is not None:
            self._heir.fault(kind, detail)
        elif self.stats.fault(kind, _place(kind, detail)):
            shown, _ = self._plan.logged.fault(f"{kind}: {detail}" if detail else kind)
            _log.warning("mttp: %s (counted in session.stats.faults; not logged again)", shown)

    def opened(self, episode: HasStartMarker) -> int:
        """Take note of an episode that started; its index."""
        self._unmarked[id(episode)] = episode
        for pipeline in self.pipelines:
            if not pipeline.easy:
                pipeline.wake()
        return next(self.stats.begun)

    def name_root(self, stated: Mapping[str, Any]) -> str:
        """The name of an episode's root of which this was stated."""
        return episodes.span_name(stated, self._run_name)

    def samples(self, trace_id: int, group: str | None) -> bool:
        """Whether a new episode is among those that collectors get."""
        sampling = self._plan.sampling
        return sampling is None or sampling.chooses(trace_id, run_id=self.run_id, group=group)

    def wake(self) -> None:
        """Have what there is written soon."""
        for pipeline in self.pipelines:
            pipeline.wake()

    def finished(self, episode: HasStartMarker) -> None:
        """Take note of an episode's end."""
        self._unmarked.pop(id(episode), None)
        next(self._finished)

    def joined(self, part: HasStartMarker) -> None:
        """Take note that another process's episode goes on here."""
        with self.stats.lock:
            self._parts += 1
        self._unmarked[id(part)] = part
        self.wake()

    def left(self, part: HasStartMarker) -> None:
        """Take note of the end of that part."""
        self._unmarked.pop(id(part), None)
        with self.stats.lock:
            self._parts -= 1

    def packed(self, steps: int) -> None:
        """Take note of so many steps that were no handles of their own."""
        take(steps, self.stats.packed)

    def paid_by(self, document: str) -> None:
        """Take note of a reward spec whose rewards are recorded: the run keeps its document once."""
        if document not in self._documents:
            self._documents[document] = None
            self._is_news = True
            self.wake()

    def gathers(self, steps: BuffersSteps) -> None:
        """Take note that steps gather, which are to be written soon."""
        key = id(steps)
        self._gathering[key] = steps  # one bytecode: a writer may take the whole mapping at any time
        self.wake()

    def span(
        self,
        name: str,
        *,
        values: dict[str, Any],
        parent: SpanContext | None = None,
        start: int | None = None,
        links: Sequence[Link] = (),
        sink: SpanSink | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> RecordingSpan:
        """
        Start a span that belongs to no episode: the root of its own trace, unless it has a parent.

        `start` in nanoseconds since the Unix epoch, by default when this process's part of the run began.
        """
        trace_id = ids.trace_id() if parent is None else parent.trace_id
        values.pop(a.SPAN_TYPE, None)  # markers repeat what another span says, whose type is not theirs
        return RecordingSpan(
            name,
            values,
            Trace(trace_id, self.origin, sink or self, clock=self._clock),
            parent,
            start_time=self._started if start is None else start,
            links=links,
            kind=kind,
        )

    # What the pipeline calls, on whichever thread writes.

    def mark(self) -> None:
        """Give what is open a marker, once: its identity survives, should the process die."""
        if self._is_over:
            return
        self._mark_open()
        if self._ended is None and self._looking.acquire(timeout=_FORK_SECONDS):  # for all transports
            try:
                self._look()
            finally:
                self._looking.release()

    def _mark_open(self) -> None:
        if self._marking.acquire(timeout=_FORK_SECONDS):
            self._marker = threading.get_ident()
            try:
                for key, episode in list(self._unmarked.items()):
                    self._mark(key, cast(OpenEpisode, episode))
                gathering, self._gathering = self._gathering, {}
                for steps in gathering.values():
                    steps.write(wait=False)
            finally:
                self._marker = 0
                self._marking.release()

    def _look(self) -> None:
        """Mark the run at the first write, and again once it is known what it runs on."""
        if self._detection is None:
            self._detection = provenance.Detection(self._plan.directory, self.wake)
            self._mark_run()
        elif not self._is_known and self._detection.over:
            self._learn()
            self._mark_run()
        elif self._is_news:
            self._mark_run()

    def _mark_run(self) -> None:
        """Keep what is known of the run so far; of several markers the last says most."""
        root = self._run_span()
        self._is_news = False
        self._tell_documents(root)
        values, sink = dict(root.values), _PipelineTargets(self, self.pipelines)
        self.span(names.RUN_START, parent=root.identity, values=values, sink=sink).end(root.started)

    def _mark(self, key: int, episode: OpenEpisode) -> None:
        """Mark an episode, unless it is being made or a thread works in it that may wait for this one."""
        if episode and episode._lock.acquire(blocking=False):
            try:
                self._unmarked.pop(key, None)
                episode._write_marker()
            finally:
                episode._lock.release()

    def wrote(self) -> None:
        """Count the helpers that this process lost meanwhile; the encoder has logged it."""
        with self.stats.lock:
            before, self._helpers_lost = self._helpers_lost, encoder.losses()
            for _ in range(self._helpers_lost - before):
                self.stats.fault("helper_lost")

    def gap(self, loss: Loss, pipeline: Pipeline) -> None:
        """Record into one pipeline that it lost something."""
        counts = {a.GAP_EPISODES: loss.episodes, a.GAP_SPANS: loss.spans, a.GAP_REASON: loss.cause}
        values = {a.RUN_ID: self.run_id, a.TRANSPORT_NAME: pipeline.name, **counts}
        gap = self.span(names.GAP, values=values, start=loss.since, sink=_PipelineTargets(self, [pipeline]))
        gap.end(max(loss.since, self._clock.now()))

    def ending(self) -> None:
        """End the run, once; a forked child that recorded nothing had no part in it."""
        with self._looking:
            if self._is_over or (self._forked and not self.stats.spans):
                return
            self._mark_open()
            self._is_over = True
            for _ in range(self.stats.episodes - given(self._finished)):
                self.fault("episode_never_ended", "an episode was still open when its session closed")
            for _ in range(self._parts):
                self.fault("part_never_ended", "a part of an episode was still open when its session closed")
            root = self._learn()
            faults: Faults = []
            late = [provenance.imported] if self._detection is not None and self._detection.over else []
            facts = provenance.detect(self._plan.directory, faults, late) if late else {}
            self._tell_documents(root)
            begun = self.stats.episodes if self._plan.sampling is None else None
            root.values |= runs.encode(faults, status=self._status, episode_count=begun, **facts)
            root.note(faults)
            root.end(self._ended)

    def _tell_documents(self, root: RecordingSpan) -> None:
        """Have the run say which reward specs have paid so far."""
        if self._documents:
            root.values |= root.checked(_documents, list(self._documents))

    # The run's own spans.

    def _run_span(self) -> RecordingSpan:
        if self._run is None:
            plan = self._plan
            faults = [*plan.faults]
            values = runs.encode(faults, id=self.run_id, **plan.facts) | dict(plan.config)
            title = f"{names.RUN} {self._run_name}" if self._run_name else names.RUN
            self._run = self.span(title, values=values, sink=_PipelineTargets(self, self.pipelines))
            self._run.note(faults)
            self._run.omissions.extend(plan.omissions)
        root = self._run
        new = {key: said for key, said in self._described.items() if key not in root.values}
        root.omissions.extend(self._described.get(a.OMISSIONS, ()))
        root.values |= new
        root.note(self._faults)
        self._faults = []
        return root

    def _learn(self) -> RecordingSpan:
        """The run's span with what was found out about its surroundings; what was stated stays."""
        root = self._run_span()
        if not self._is_known:
            self._is_known = True
            plan = self._plan
            if self._detection is None:
                self._detection = provenance.Detection(plan.directory, self.wake)
            found, missing = self._detection.result(_DETECTION_SECONDS)
            faults = [*missing]
            root.values |= runs.encode(faults, **found | dict(plan.facts))
            root.note(faults)
        return root

    # A fork.

    def hold(self) -> bool:
        """Before a fork: wait until no thread of ours is writing, since the copy could not finish it."""
        if not self._marking.acquire(timeout=_FORK_SECONDS):
            return False
        if provenance.hold(_DETECTION_SECONDS):
            return True
        self._marking.release()
        return False

    def release(self) -> None:
        """After a fork, in the parent."""
        provenance.release()
        self._marking.release()

    def fork(self) -> RunRecorder:
        """After a fork, in the child: its share of the run; the parent's takes nothing here any more."""
        provenance.renew()
        self.stats, self._marking, self._unmarked, self._gathering = Stats(), threading.Lock(), {}, {}
        self.take, self.stepped = self.ended, self.stats.stepped.__next__
        self._heir = RunRecorder(self._plan, forked=True)
        return self._heir


def _place(kind: str, detail: str) -> str:
    """What a fault is about, where its detail is `NAME is VALUE`; empty otherwise."""
    name, is_named, _ = detail.partition(" is ")
    return name[:80] if is_named and kind in _OF_PLACES else ""


def _documents(documents: Sequence[str], faults: Faults) -> dict[str, Any]:
    return runs.encode(faults, spec_documents=documents)


def _flush(pipelines: Sequence[Pipeline], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    tickets = [pipeline.ask() for pipeline in pipelines]
    taken = [
        pipeline.answer(ticket, max(deadline - time.monotonic(), 0.0))
        for pipeline, ticket in zip(pipelines, tickets, strict=True)
    ]
    return all(taken)


class _PipelineTargets:
    """Where the last words go: into these pipelines, even while they close."""

    def __init__(self, share: RunRecorder, pipelines: Sequence[Pipeline]) -> None:
        self._recorder = share
        self._pipelines = pipelines

    def ended(self, span: RecordingSpan) -> None:
        """Take an ended span."""
        for pipeline in self._pipelines:
            pipeline.put(span, last=True)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self._recorder.fault(kind, detail)
