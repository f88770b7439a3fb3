"""The recorder of one process of a run: its run span, start markers and queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.trace import Link, SpanContext, SpanKind

from mttp.codec import episodes, runs
from mttp.codec.plain import Faults, text
from mttp.codec.redaction import ContentRule
from mttp.model import clock, ids
from mttp.model.clock import Clock
from mttp.model.counters import given, numbers
from mttp.model.log import log
from mttp.otlp.encoding import encoder
from mttp.otlp.frames import Frame
from mttp.otlp.spans import Ended, RecordingSpan, SpanOrigin, SpanSink, Trace
from mttp.recording import provenance
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.open_group import OpenGroup
from mttp.recording.trajectory import StepBuffer
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.transports.export_target import ExportTarget
from mttp.transports.pipeline import Pipeline
from mttp.transports.pipeline.losses import Loss
from mttp.transports.sampling import Sampling
from mttp.transports.stats import Stats

__all__ = ["RunConfig", "RunRecorder"]

_NAMED_FAULTS = frozenset({"component_invalid", "reward_invalid", "metric_invalid"})
"""Faults whose detail starts with the name of a component, grader or metric."""

_DETECTION_SECONDS = 10.0
_FORK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """The settings of a session, which a forked child shares."""

    targets: Sequence[ExportTarget]
    """Where the spans go."""
    origin: SpanOrigin
    run_id: str
    facts: Mapping[str, Any]
    """Facts about the run that are known at the start, as `mttp.model.Run` names them."""
    config: Mapping[str, Any]
    """The run's configuration, as attributes."""
    faults: tuple[str, ...]
    """Faults of the configuration."""
    directory: str | None
    """The working directory at the start; None if the surroundings are not recorded."""
    omissions: tuple[str, ...] = ()
    """What was left out of the configuration and the resource, `attribute: reason` each."""
    sampling: Sampling | None = None
    """Selects the episodes that collectors get; None for all."""
    steps: str = "auto"
    """How steps are written unless an episode states it: spans, packed or auto."""
    logged: ContentRule = field(default_factory=ContentRule)
    """Redacts faults for the log, because their details may quote recorded content."""


class RunRecorder:
    """
    The part of a session that handles and pipelines use.

    A forked child has a recorder of its own. Episodes that were open at the fork keep the parent's recorder,
    which drops their spans in the child, because the parent ends these episodes.
    """

    def __init__(self, config: RunConfig, *, forked: bool = False) -> None:
        self.run_id = config.run_id
        self.origin = config.origin
        self.steps = config.steps
        self._run_name = text(config.facts.get("name") or "", [])
        self.stats = Stats((target.address, target.name) for target in config.targets)
        self.pipelines = [
            Pipeline(target, stats, self, self.stats, config.sampling)
            for target, stats in zip(config.targets, self.stats.transports.values(), strict=True)
        ]
        self.next_step_id = self.stats.stepped.__next__
        """Returns the next step's span id."""
        self.take: Callable[[Ended], None] = self.ended
        """Takes an ended span."""
        if len(self.pipelines) == 1:
            self.take = self.pipelines[0].take
        self._config = config
        self._forked = forked
        self._child: RunRecorder | None = None
        self._clock = Clock()
        self._started = self._clock.now()
        self._ended: int | None = None
        self._status = "completed"
        self._without_marker: dict[int, OpenEpisode] = {}
        self._buffers: dict[int, StepBuffer] = {}
        self.open_groups: dict[int, OpenGroup] | None = None
        """Groups that are open, by the ids of their handles; None before the first one."""
        self._marker_lock = threading.Lock()
        self._marker_thread = 0
        self._run_lock = threading.RLock()
        self._has_ended = False
        self._detection: provenance.Detection | None = None
        self._run: RecordingSpan | None = None
        self._is_detected = self._has_new_facts = False
        self._added_facts: dict[str, Any] = {}
        self._faults: Faults = []
        self._finished = numbers()
        self._parts = 0
        self._documents: dict[str, None] = {}
        self._counted_losses = encoder.losses()

    @property
    def closed(self) -> bool:
        """Whether the session has been closed."""
        return self._ended is not None

    def flush(self, timeout: float, index: int | None = None) -> bool:
        """
        Write all ended spans; returns whether every transport took them within `timeout` seconds.

        `index` selects one transport.
        """
        pipelines = self.pipelines if index is None else [self.pipelines[index]]
        deadline = clock.seconds() + timeout
        requests = [pipeline.ask() for pipeline in pipelines]
        written = [
            pipeline.answer(request, max(deadline - clock.seconds(), 0.0))
            for pipeline, request in zip(pipelines, requests, strict=True)
        ]
        return all(written)

    def close(self, status: str, timeout: float | None) -> bool:
        """
        End the run; returns whether everything was written in time.

        `timeout` is in seconds, by default each transport's own.
        A second caller, such as a signal handler, waits for the first.
        """
        if self._ended is None:
            self._ended, self._status = self._clock.now(), status
        for pipeline in self.pipelines:
            pipeline.begin_close(timeout)
        written = [pipeline.close() for pipeline in self.pipelines]
        if not written and self.origin.observers is not None:
            self.ending()  # without transports, span processors still get the run span
        return all(written)

    def describe(self, facts: Mapping[str, Any], faults: Faults) -> None:
        """Add facts about the run, as attributes; facts that were stated earlier are not changed."""
        with self._run_lock:
            self._added_facts = dict(facts) | self._added_facts
            self._faults += faults
            self._has_new_facts = True
        self.wake()

    # Called by handles.

    def ended(self, span: Ended) -> None:
        """Take an ended span."""
        if self._child is None:
            self.put(span.frame())
        else:
            self._child.fault("episode_of_parent", f"{span.name!r} belongs to the parent process")

    def put(self, frame: Frame) -> None:
        """Pass an ended span to all pipelines."""
        last = self._marker_thread != 0 and self._marker_thread == threading.get_ident()
        full = [pipeline for pipeline in self.pipelines if not pipeline.put(frame, last=last)]
        if full:
            since = clock.seconds()
            for pipeline in full:  # after each has the span: none waits for another's space
                pipeline.hold_up(frame, since)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind for each grader, component or metric."""
        if self._child is not None:
            self._child.fault(kind, detail)
        elif self.stats.fault(kind, _named_in(kind, detail)):
            shown, _ = self._config.logged.fault(f"{kind}: {detail}" if detail else kind)
            log.warning("mttp: %s (counted in session.stats.faults; not logged again)", shown)

    def episode_started(self, episode: OpenEpisode) -> int:
        """Register an episode that started, and return its index."""
        self._without_marker[id(episode)] = episode
        for pipeline in self.pipelines:
            if not pipeline.easy:
                pipeline.wake()
        return next(self.stats.begun)

    def name_root(self, attributes: Mapping[str, Any]) -> str:
        """Return the span name of an episode's root from its attributes."""
        return episodes.span_name(attributes, self._run_name)

    def samples(self, trace_id: int, group: str | None) -> bool:
        """Return whether sampling selects a new episode."""
        sampling = self._config.sampling
        return sampling is None or sampling.chooses(trace_id, run_id=self.run_id, group=group)

    def wake(self) -> None:
        """Wake the background threads."""
        for pipeline in self.pipelines:
            pipeline.wake()

    def episode_ended(self, episode: OpenEpisode) -> None:
        """Register the end of an episode."""
        self._without_marker.pop(id(episode), None)
        next(self._finished)

    def episode_failed(self, episode: OpenEpisode) -> None:
        """Tell the open groups about an episode that ended by an error or was aborted."""
        for group in list((self.open_groups or {}).values()):
            group._add_failed(episode)

    def part_started(self, part: OpenEpisode) -> None:
        """Register a part of another process's episode."""
        with self.stats.lock:
            self._parts += 1
        self._without_marker[id(part)] = part
        self.wake()

    def part_ended(self, part: OpenEpisode) -> None:
        """Register the end of that part."""
        self._without_marker.pop(id(part), None)
        with self.stats.lock:
            self._parts -= 1

    def keep_spec_document(self, document: str) -> None:
        """Keep the document of a reward spec, which the run span records once."""
        if document not in self._documents:
            self._documents[document] = None
            self._has_new_facts = True
            self.wake()

    def add_buffer(self, steps: StepBuffer) -> None:
        """Register a buffer of steps, which the background thread writes."""
        key = id(steps)
        self._buffers[key] = steps  # one bytecode, because a writer may replace the mapping at any time
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

        `start` is in nanoseconds since the Unix epoch, by default the start of this recorder.
        """
        trace_id = ids.trace_id() if parent is None else parent.trace_id
        values.pop(a.SPAN_TYPE, None)  # a marker repeats another span's attributes, but not its type
        return RecordingSpan(
            name,
            values,
            Trace(trace_id, self.origin, sink or self, clock=self._clock),
            parent,
            start_time=self._started if start is None else start,
            links=links,
            kind=kind,
        )

    # Called by the pipelines, on the thread that writes.

    def mark(self) -> None:
        """Record start markers of the run and of open episodes, and write buffered steps."""
        if self._has_ended:
            return
        self._mark_open()
        if self._ended is None and self._run_lock.acquire(timeout=_FORK_SECONDS):
            try:
                self._update_run_marker()
            finally:
                self._run_lock.release()

    def _mark_open(self) -> None:
        if self._marker_lock.acquire(timeout=_FORK_SECONDS):
            self._marker_thread = threading.get_ident()
            try:
                for key, episode in list(self._without_marker.items()):
                    self._mark(key, episode)
                buffers, self._buffers = self._buffers, {}
                for steps in buffers.values():
                    steps.write(wait=False)
            finally:
                self._marker_thread = 0
                self._marker_lock.release()

    def _update_run_marker(self) -> None:
        """Record a run marker at the first write, and again after detection or new facts."""
        if self._detection is None:
            self._detection = provenance.Detection(self._config.directory, self.wake)
            self._mark_run()
        elif not self._is_detected and self._detection.done:
            self._add_detected()
            self._mark_run()
        elif self._has_new_facts:
            self._mark_run()

    def _mark_run(self) -> None:
        """Record a run marker with the run's current attributes; the last marker is the most complete."""
        root = self._run_span()
        self._has_new_facts = False
        self._set_documents(root)
        values, sink = dict(root.values), _PipelineTargets(self, self.pipelines)
        self.span(names.RUN_START, parent=root.identity, values=values, sink=sink).end_at_once()

    def _mark(self, key: int, episode: OpenEpisode) -> None:
        """Record an episode's marker, unless it is being created or another thread holds its lock."""
        if episode and episode._lock.acquire(blocking=False):
            try:
                self._without_marker.pop(key, None)
                episode._write_marker()
            finally:
                episode._lock.release()

    def wrote(self) -> None:
        """Count the worker processes that were lost since the last call; the encoder logs them."""
        with self.stats.lock:
            before, self._counted_losses = self._counted_losses, encoder.losses()
            for _ in range(self._counted_losses - before):
                self.stats.fault("helper_lost")

    def gap(self, loss: Loss, pipeline: Pipeline) -> None:
        """Record into one pipeline that it lost spans."""
        counts = {a.GAP_EPISODES: loss.episodes, a.GAP_SPANS: loss.spans, a.GAP_REASON: loss.cause}
        values = {a.RUN_ID: self.run_id, a.TRANSPORT_NAME: pipeline.name, **counts}
        gap = self.span(names.GAP, values=values, start=loss.since, sink=_PipelineTargets(self, [pipeline]))
        gap.end(max(loss.since, self._clock.now()))

    def ending(self) -> None:
        """End the run span, once; a forked child that recorded nothing has none."""
        with self._run_lock:
            if self._has_ended or (self._forked and not self.stats.spans):
                return
            self._mark_open()
            self._has_ended = True
            for _ in range(self.stats.episodes - given(self._finished)):
                self.fault("episode_never_ended", "an episode was still open when its session closed")
            for _ in range(self._parts):
                self.fault("part_never_ended", "a part of an episode was still open when its session closed")
            root = self._add_detected()
            faults: Faults = []
            libraries = [provenance.imported] if self._detection is not None and self._detection.done else []
            facts = provenance.detect(self._config.directory, faults, libraries) if libraries else {}
            self._set_documents(root)
            root.values |= runs.encode(
                faults, status=self._status, episode_count=self.stats.episodes, **facts
            )
            root.note(faults)
            root.end(self._ended)

    def _set_documents(self, root: RecordingSpan) -> None:
        """Set the documents of the reward specs that have been used so far."""
        if self._documents:
            faults: Faults = []
            root.values |= runs.encode(faults, spec_documents=list(self._documents))
            root.note(faults)

    # The run's own spans.

    def _run_span(self) -> RecordingSpan:
        if self._run is None:
            config = self._config
            faults = [*config.faults]
            values = runs.encode(faults, id=self.run_id, **config.facts) | dict(config.config)
            title = f"{names.RUN} {self._run_name}" if self._run_name else names.RUN
            self._run = self.span(title, values=values, sink=_PipelineTargets(self, self.pipelines))
            self._run.note(faults)
            self._run.omissions.extend(config.omissions)
        root = self._run
        new = {key: value for key, value in self._added_facts.items() if key not in root.values}
        root.omissions.extend(self._added_facts.get(a.OMISSIONS, ()))
        root.values |= new
        root.note(self._faults)
        self._faults = []
        return root

    def _add_detected(self) -> RecordingSpan:
        """Return the run span with the detected facts; stated facts are not changed."""
        root = self._run_span()
        if not self._is_detected:
            self._is_detected = True
            if self._detection is None:
                self._detection = provenance.Detection(self._config.directory, self.wake)
            detected, missing = self._detection.result(_DETECTION_SECONDS)
            faults = [*missing]
            root.values |= runs.encode(faults, **detected | dict(self._config.facts))
            root.note(faults)
        return root

    # A fork.

    def hold(self) -> bool:
        """Before a fork: wait until no thread records markers, because the child could not finish them."""
        if not self._marker_lock.acquire(timeout=_FORK_SECONDS):
            return False
        if provenance.hold(_DETECTION_SECONDS):
            return True
        self._marker_lock.release()
        return False

    def release(self) -> None:
        """After a fork, in the parent."""
        provenance.release()
        self._marker_lock.release()

    def fork(self) -> RunRecorder:
        """After a fork, in the child: return its recorder; the parent's drops what it gets here."""
        provenance.replace_lock()
        self.stats, self._marker_lock, self._without_marker, self._buffers = Stats(), threading.Lock(), {}, {}
        self.take, self.next_step_id = self.ended, self.stats.stepped.__next__
        self._child = RunRecorder(self._config, forked=True)
        return self._child


def _named_in(kind: str, detail: str) -> str:
    """Return the name from a fault's detail of the form `NAME is VALUE`; empty for other details."""
    name, is_named, _ = detail.partition(" is ")
    return name[:80] if is_named and kind in _NAMED_FAULTS else ""


class _PipelineTargets:
    """Takes spans into these pipelines, even while they close."""

    def __init__(self, recorder: RunRecorder, pipelines: Sequence[Pipeline]) -> None:
        self._recorder = recorder
        self._pipelines = pipelines

    def ended(self, span: Ended) -> None:
        """Take an ended span."""
        frame = span.frame()
        for pipeline in self._pipelines:
            pipeline.put(frame, last=True)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self._recorder.fault(kind, detail)
