"""A session: one process's part in one run, from `configure` to `close`."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from typing_extensions import Self

from mttp import __version__, bulk, ids, provenance
from mttp.clock import Clock
from mttp.codec import runs
from mttp.codec.plain import Faults
from mttp.episodes import Episode
from mttp.livespan import LiveSpan, Origin
from mttp.pipeline import Pipeline, Transport
from mttp.recorder import OpenEpisode, inert_episode
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.spans import SpanRecord
from mttp.stats import Stats

__all__ = ["RUN_ID_VARIABLE", "Session"]

_log = logging.getLogger("mttp")

RUN_ID_VARIABLE = "MTTP_RUN_ID"
"""Names the run, across the processes of it."""


class Session:
    """
    Records the episodes of one run; made by `mttp.configure`.

    It is a context manager, sync and async; leaving it closes it.
    """

    def __init__(
        self,
        transport: Transport | None,
        *,
        run_id: str,
        facts: Mapping[str, Any],
        config: object = None,
    ) -> None:
        self.run_id = run_id
        self.stats = Stats()
        self.transport = transport
        self.origin = Origin(_resource(run_id), _scope())
        self._facts = dict(facts)
        self._config = config
        self._directory = str(Path.cwd())
        self._clock = Clock()
        self._started = self._clock.now()
        self._status = "completed"
        self._closed = transport is None
        self._lock = threading.Lock()
        self._open: dict[int, OpenEpisode] = {}
        self._run: LiveSpan | None = None
        self._marked = False
        self._pipeline = (
            None if transport is None else Pipeline(transport, self.stats, before=self._mark, gap=self._gap)
        )

    # What users call.

    @property
    def closed(self) -> bool:
        """Whether nothing is recorded any more."""
        return self._closed

    def episode(
        self,
        *,
        env: str | None = None,
        task: object = None,
        group: object = None,
        seed: int | str | None = None,
        policy: object = None,
        slices: Sequence[str] = (),
        inputs: object = None,
        metadata: Mapping[str, object] | None = None,
        id: str | None = None,
        index: int | None = None,
        attempt: int | None = None,
        split: str | None = None,
        policy_version: object = None,
        policy_update_index: int | None = None,
        env_version: str | None = None,
        env_index: int | None = None,
        env_kwargs: Mapping[str, object] | None = None,
        env_spaces: Mapping[str, object] | None = None,
        env_wrappers: Sequence[str] = (),
        env_rng_sha256: str | None = None,
        timing: str = "live",
        start_time: int | None = None,
    ) -> OpenEpisode:
        """
        Start an episode.

        `start_time` in nanoseconds since the Unix epoch, by default now.
        """
        if self._closed:
            return inert_episode()
        facts: dict[str, Any] = {
            "env": env,
            "task": task,
            "group": group,
            "policy": policy,
            "index": index,
            "attempt": attempt,
            "split": split,
            "policy_version_start": policy_version,
            "policy_update_index": policy_update_index,
            "env_version": env_version,
            "env_index": env_index,
            "env_kwargs": env_kwargs,
            "env_spaces": env_spaces,
            "env_wrappers": env_wrappers,
            "env_rng_sha256": env_rng_sha256,
            "timing": timing,
        }
        try:
            return OpenEpisode(
                self,
                episode_id=id,
                start_time=start_time,
                slices=slices,
                seed=seed,
                inputs=inputs,
                metadata=metadata,
                **{name: value for name, value in facts.items() if value is not None},
            )
        except Exception as error:
            self.fault("internal_error", f"episode: {error!r}")
            return inert_episode()

    def record(
        self,
        episode: Episode,
        *,
        start_time: int | None = None,
        end_time: int | None = None,
        timing: str | None = None,
    ) -> OpenEpisode:
        """
        Record a finished episode, as a value; the handle that comes back has ended.

        Times are nanoseconds since the Unix epoch, by default the value's own, else now.
        `timing` is "live", or "batch" where the times are those of a whole batch.
        """
        if self._closed:
            return inert_episode()
        try:
            return bulk.record(self, episode, start_time=start_time, end_time=end_time, timing=timing)
        except Exception as error:
            self.fault("internal_error", f"record: {error!r}")
            return inert_episode()

    def flush(self, timeout: float = 30.0) -> bool:
        """Write everything that has ended; whether the transport took all of it within `timeout` seconds."""
        return self._pipeline is None or self._pipeline.flush(timeout)

    def close(self, timeout: float = 30.0) -> bool:
        """End the run, write everything, and release the transport; afterwards every call does nothing."""
        with self._lock:
            if self._closed:
                return True
            self._closed = True
        if self._pipeline is None:
            return True
        with contextlib.suppress(Exception):
            self._end_run()
        written = self._pipeline.close(timeout)
        if os.environ.get(RUN_ID_VARIABLE) == self.run_id and self._facts.get("minted"):
            del os.environ[RUN_ID_VARIABLE]
        return written

    def records(self) -> Iterator[SpanRecord]:
        """The spans that a memory transport keeps; what has ended is there."""
        self.flush()
        kept = getattr(self.transport, "records", None)
        if kept is None:
            raise TypeError(f"a session on {self.transport!r} keeps no records; read its files instead")
        return iter(kept())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._status = "error" if isinstance(error, Exception) else "aborted"
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<mttp.Session {self.run_id} on {self.transport!r}, {state}>"

    # What the recorder calls.

    def ended(self, span: LiveSpan) -> None:
        """Take an ended span."""
        self.stats.add(spans=1)
        if self._pipeline is None or (self._closed and span is not self._run):
            self.stats.lose("session_closed", spans=1)
            return
        self._pipeline.put(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""
        if self.stats.fault(kind):
            _log.warning("mttp: %s: %s (counted in session.stats.faults; not logged again)", kind, detail)

    def opened(self, episode: OpenEpisode) -> int:
        """Take note of an episode that started; its index."""
        with self._lock:
            self._open[id(episode)] = episode
            index = self.stats.episodes
            self.stats.episodes += 1
        if self._pipeline is not None:
            self._pipeline.wake()
        return index

    def finished(self, episode: OpenEpisode) -> None:
        """Take note of an episode's end."""
        self._open.pop(id(episode), None)

    def stepped(self) -> None:
        """Take note of a step that started."""
        self.stats.add(steps=1)

    def after_fork(self) -> None:
        """In a forked child: a part of the run of its own; what was open or queued is the parent's."""
        self._lock = threading.Lock()
        self._open = {}
        self._run = None
        self._marked = False
        self.stats = Stats()
        self._clock = Clock()
        self._started = self._clock.now()
        if self._pipeline is not None:
            forked = getattr(self.transport, "after_fork", None)
            if forked is not None:
                forked()
            self._pipeline.after_fork(self.stats)

    # The run's own span.

    def _mark(self) -> None:
        """Ahead of a segment: what is open keeps its identity, should the process die."""
        if not self._marked and not self._closed:
            self._marked = True
            root = self._run_span()
            marker = self._span(names.RUN_START, parent=root.identity, values=dict(root.values))
            marker.end(root.started)
        for episode in list(self._open.values()):
            episode.mark()

    def _run_span(self) -> LiveSpan:
        if self._run is None:
            faults: Faults = []
            facts = self._facts | provenance.detect(self._directory, faults)
            values = runs.encode(faults, id=self.run_id, **facts)
            if self._config is not None:
                values |= runs.config(self._config, faults)
            name = facts.get("name")
            self._run = self._span(f"{names.RUN} {name}" if name else names.RUN, parent=None, values=values)
            self._run.note(faults)
        return self._run

    def _end_run(self) -> None:
        root = self._run_span()
        root.values |= runs.encode(root.faults, status=self._status, packages=provenance.packages())
        root.end()

    def _span(self, name: str, *, parent: SpanContext | None, values: dict[str, Any]) -> LiveSpan:
        trace_id = ids.trace_id() if parent is None else parent.trace_id
        return LiveSpan(
            name,
            context=SpanContext(
                trace_id, ids.span_id(), is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)
            ),
            parent=parent,
            clock=self._clock,
            origin=self.origin,
            sink=self,
            values=values,
            start_time=self._started,
        )

    def _gap(self, episodes: int, spans: int, reason: str) -> LiveSpan:
        values = {a.RUN_ID: self.run_id, a.GAP_EPISODES: episodes, a.GAP_SPANS: spans, a.GAP_REASON: reason}
        return self._span(names.GAP, parent=None, values=values)


def _resource(run_id: str) -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or a.SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    service = {} if named else {a.SERVICE_NAME: "mttp"}
    return Resource.create({**service, a.RUN_ID: run_id})


def _scope() -> InstrumentationScope:
    return InstrumentationScope("mttp", __version__, SCHEMA_URL)


def tell(message: str) -> None:
    """Say something to the person at the terminal, once."""
    with contextlib.suppress(Exception):
        print(message, file=sys.stderr)
