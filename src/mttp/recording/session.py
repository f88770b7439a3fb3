"""A session: the recording of one run, from `configure` to `close`."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span
from typing_extensions import Self, Unpack

from mttp.codec import runs
from mttp.codec.plain import Faults
from mttp.codec.redaction import ContentRule
from mttp.codec.secrets import USUAL, Secrets
from mttp.codec.withholding import Withholding
from mttp.errors import ReadError
from mttp.model.episodes import Episode
from mttp.model.hooks import watch_with
from mttp.model.spans import SpanRecord
from mttp.model.version import __version__
from mttp.otlp.spans import EndedSpan, ForeignSpan, SpanOrigin
from mttp.otlp.spans.guarding import MisuseError, failed, quiet_but
from mttp.recording import record_value
from mttp.recording.arguments import check_names
from mttp.recording.current import inert_episode
from mttp.recording.episode_context import EpisodeContext
from mttp.recording.episode_facts import EPISODE_FACTS, EpisodeFacts
from mttp.recording.observers import Observers
from mttp.recording.open_episode import OpenEpisode, Template, template
from mttp.recording.remote_episode import RemoteEpisode
from mttp.recording.run_recorder import RunConfig, RunRecorder
from mttp.recording.scoring import watch
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.transports.export_target import ExportTarget, Transport
from mttp.transports.pipeline import Pipeline
from mttp.transports.pipeline.content_filter import ContentFilter
from mttp.transports.sampling import Sampling
from mttp.transports.stats import Stats

__all__ = ["Session"]

FLUSH_SECONDS = 30.0
"""How long what has ended may take to be written."""
PART_SECONDS = 1.0
"""How long a part of another process's episode waits at its end to be written, where that was asked for."""
PROCESSOR_SECONDS = 10.0
"""How long the user's own span processors may take to finish."""


class Session:
    """
    Records the episodes of one run; made by `mttp.configure`.

    It is a context manager, sync and async; leaving it closes it.
    """

    def __init__(
        self,
        lanes: Sequence[ExportTarget],
        *,
        run_id: str,
        facts: Mapping[str, Any],
        config: object = None,
        processors: Sequence[SpanProcessor] = (),
        sampling: Sampling | None = None,
        steps: str = "auto",
        withholding: Withholding = Withholding(),  # noqa: B008 - it is frozen
        secrets: Secrets | None = None,
    ) -> None:
        """
        `withholding` says what the span processors are not shown of a span that has ended.

        `secrets` says what is not recorded by anybody, for the name that it has.
        """
        secrets = USUAL if secrets is None else secrets
        omissions: list[str] = []
        resource = _resource(run_id, secrets, omissions)
        self.run_id = run_id
        self.run_name: str | None = facts.get("name")
        self.transports = [lane.transport for lane in lanes if lane.owned]
        self._closed = not lanes and not processors
        self._status = "completed"
        self._lock = threading.RLock()
        self._ending = ExitStack()
        self._leaving = ExitStack()
        self._close_seconds = max((lane.close_timeout for lane in lanes), default=PROCESSOR_SECONDS)
        faults: Faults = []
        self._observers = Observers(processors, self._fault, _view(withholding, secrets, self._fault))
        watch_with(watch)
        observers = self._observers if processors else None
        self._recorder = RunRecorder(
            RunConfig(
                lanes=lanes,
                origin=SpanOrigin(resource, _scope(), observers, secrets),
                run_id=run_id,
                facts=facts,
                config=_config(config, faults, secrets),
                omissions=tuple(omissions),
                faults=tuple(faults),
                directory=_directory(),
                sampling=sampling,
                steps=steps,
                logged=_logged([lane.withholding for lane in lanes] or [withholding]),
            )
        )

    @property
    def stats(self) -> Stats:
        """What this process recorded, delivered and lost, counted."""
        return self._recorder.stats

    @property
    def _pipeline(self) -> Pipeline:
        return self._recorder.pipelines[0]

    @property
    def transport(self) -> Transport | None:
        """The transport, or the first of several; None where nothing is recorded."""
        return self.transports[0] if self.transports else None

    @property
    def _steps(self) -> str:
        """How steps are written, where an episode does not say: spans, packed or auto."""
        return self._recorder.steps

    # What users call.

    @property
    def closed(self) -> bool:
        """Whether nothing is recorded any more."""
        return self._closed

    def episode(self, **facts: Unpack[EpisodeFacts]) -> OpenEpisode:
        """Start an episode; `EpisodeFacts` has what can be stated of it."""
        try:
            if not facts.keys() <= EPISODE_FACTS:
                check_names("episode", facts, EPISODE_FACTS)
            if self._closed:
                return inert_episode()
            return OpenEpisode(self._recorder) if not facts else _opened(self._recorder, facts)
        except MisuseError:
            raise
        except Exception as error:
            self._failed("Session.episode", error)
            return inert_episode()

    @quiet_but(lambda *_, **__: inert_episode())
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
        return record_value.record(
            self._recorder, episode, start_time=start_time, end_time=end_time, timing=timing
        )

    @quiet_but(lambda *_, **__: None)
    def describe(
        self,
        *,
        config: object = None,
        algorithm: str | None = None,
        trainer: str | None = None,
        trainer_version: str | None = None,
        seed: int | str | None = None,
        policy_architecture: str | None = None,
        policy_parameters: int | None = None,
        optimizer: str | None = None,
    ) -> None:
        """
        State facts about the run that are known only now; what was stated of it before stays.

        `config` is anything that JSON can say, `policy_parameters` the number of trainable ones.
        """
        if self._closed:
            return
        facts = {
            "algorithm": algorithm,
            "trainer": trainer,
            "trainer_version": trainer_version,
            "seed": seed,
            "policy_architecture": policy_architecture,
            "policy_parameters": policy_parameters,
            "optimizer": optimizer,
        }
        faults: Faults = []
        secrets = self._recorder.origin.secrets
        self._recorder.describe(runs.encode(faults, **facts) | _config(config, faults, secrets), faults)

    @quiet_but(lambda *_, **__: False)
    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """
        Have everything written that has ended, and span processors flushed, within `timeout` seconds.

        Return whether every transport delivered all that was recorded since the flush before: False where a
        receiver turned something down, or a full buffer lost something.
        """
        deadline = time.monotonic() + timeout
        written = self._recorder.flush(timeout)
        return self._observers.flush(max(deadline - time.monotonic(), 0.0)) and written

    @quiet_but(lambda *_, **__: False)
    def close(self, timeout: float | None = None) -> bool:
        """
        End the run, write everything, and release the transports; afterwards every call does nothing.

        What is not written within `timeout` seconds is lost, and counted.
        Return whether everything that the session recorded was delivered.
        By default a file may take 30 seconds, and a collector 10.
        """
        with self._lock:
            again = self._closed
            if not again:
                self._finish()
            self._closed = True
        if again:
            return self._recorder.close(self._status, timeout)
        deadline = time.monotonic() + (self._close_seconds if timeout is None else timeout)
        try:
            return self._recorder.close(self._status, timeout)
        finally:
            self._observers.close(min(max(deadline - time.monotonic(), 0.0), PROCESSOR_SECONDS))
            self._leaving.close()

    def _finish(self) -> None:
        try:
            self._ending.pop_all().close()
        except Exception as error:
            self._failed("Session.close", error)

    @quiet_but(lambda *_, **__: False)
    def abort(self) -> bool:
        """Close a run that is cut off."""
        self._status = "aborted"
        return self.close()

    def _fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""
        self._recorder.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        failed(self._recorder, what, error)

    @property
    def location(self) -> Path | None:
        """Where this session writes files; None where it does not."""
        return next((path for _, path in self._files()), None)

    def _written(self) -> Path | None:
        """The same, once what has ended is there."""
        for place, path in self._files():
            self._recorder.flush_one(place, FLUSH_SECONDS)
            return path
        return None

    def _files(self) -> Iterator[tuple[int, Path]]:
        for place, transport in enumerate(self.transports):
            path = getattr(transport, "path", None)
            if isinstance(path, Path):
                yield place, path

    def records(self) -> Iterator[SpanRecord]:
        """The spans that a memory transport keeps; raises ReadError for any other transport."""
        for place, transport in enumerate(self.transports):
            kept = getattr(transport, "records", None)
            if kept is not None:
                self._recorder.flush_one(place, FLUSH_SECONDS)
                return iter(kept())
        raise ReadError(f"a session on {self._where()} keeps no episodes that could be read")

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
        return f"<mttp.Session {self.run_id} on {self._where()}, {state}>"

    def _where(self) -> str:
        return ", ".join(map(repr, self.transports)) or "nothing"

    # What the rooms above call.

    def _records_for(self, recorder: object) -> bool:
        """Whether what that recorder started goes on: not in a closed session, nor in a forked child."""
        return not self._closed and self._recorder is recorder

    def _template(self, facts: Mapping[str, Any], faults: Faults) -> Template:
        """What all episodes of one environment state, under the names that `mttp.Episode` has."""
        return template(self._recorder, facts, faults)

    @quiet_but(lambda *_, **__: inert_episode())
    def _episode_like(self, template: Template, facts: Mapping[str, Any]) -> OpenEpisode:
        """Start an episode that states these `EpisodeFacts`, and what the template does."""
        return inert_episode() if self._closed else _opened(self._recorder, facts, template)

    @quiet_but(lambda *_, **__: RemoteEpisode(None))
    def _join(self, where: EpisodeContext, *, flush: bool = False) -> RemoteEpisode:
        """Go on with another process's episode; with `flush` the end of that waits until it is written."""
        if self._closed:
            return RemoteEpisode(None)
        return RemoteEpisode(
            self._recorder, where, at_end=partial(self.flush, PART_SECONDS) if flush else None
        )

    def _before_close(self, callback: Callable[..., object], *args: object) -> None:
        """Have something called while the session still records, right before it closes."""
        self._ending.callback(callback, *args)

    def _at_close(self, callback: Callable[..., object], *args: object) -> None:
        """Have something called once the session is closed."""
        self._leaving.callback(callback, *args)

    def _before_fork(self) -> bool:
        """Ahead of a fork; whether `after_fork_in_parent` is due."""
        return self._recorder.hold()

    def _after_fork_in_parent(self) -> None:
        """After a fork that `before_fork` preceded."""
        self._recorder.release()

    def _after_fork_in_child(self) -> None:
        """Record a part of the run of its own: what was open or queued is the parent's."""
        self._lock = threading.RLock()
        self._recorder = self._recorder.fork()
        self._observers.after_fork_in_child()
        for transport in self.transports:
            forked = getattr(transport, "after_fork", None)
            if forked is not None:
                forked()

    def _observe(self, processor: SpanProcessor) -> None:
        """Have one more span processor look on from here on."""
        self._observers.add(processor)
        self._recorder.origin.observers = self._observers

    def _guest_started(self, span: Span, context: Context | None) -> None:
        """Show a span of another library's that has started to the user's processors."""
        self._observers.started(span, context)

    def _guest_ending(self, span: Span) -> None:
        """Show a span of another library's that is about to have ended to the user's processors."""
        self._observers.ending(span)

    @property
    def _processors(self) -> tuple[SpanProcessor, ...]:
        """The user's span processors that look on."""
        return self._observers.processors

    def _samples(self, trace_id: int) -> bool:
        """Whether collectors get a trace that is no episode."""
        return self._recorder.samples(trace_id, None)

    @property
    def _resource(self) -> Resource:
        """Who records: what OpenTelemetry's variables say of the service, and the run."""
        return self._recorder.origin.resource

    def _guest(self, span: ReadableSpan) -> None:
        """Take an ended span of another library's."""
        self._observers.ended(span)
        faults: Faults = []
        guest = ForeignSpan(span, faults, self._recorder.origin.secrets)
        for fault in faults:
            kind, _, detail = fault.partition(": ")
            self._fault(kind, detail)
        self._recorder.ended(guest)


_OF_THE_HANDLE = {"id": "episode_id", "start_time": "start_time", "metadata": "metadata", "steps": "steps"}
_OF_THE_EPISODE = {name: name for name in EpisodeFacts.__annotations__ if name not in _OF_THE_HANDLE}
_OF_THE_EPISODE["policy_version"] = "policy_version_start"


def _opened(share: RunRecorder, given: Mapping[str, Any], template: Template | None = None) -> OpenEpisode:
    """An episode of which something is stated."""
    facts: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in _OF_THE_EPISODE:
            facts[_OF_THE_EPISODE[name]] = value
        else:
            options[_OF_THE_HANDLE[name]] = value
    return OpenEpisode(share, facts, **options, template=template)


def _view(
    withholding: Withholding, secrets: Secrets, fault: Callable[[str, str], None]
) -> Callable[[ReadableSpan], ReadableSpan] | None:
    """A span as span processors may see it; None where they may see all of it."""
    if withholding == Withholding():
        return None
    veil = ContentFilter(withholding, fault)
    return lambda span: veil(span if isinstance(span, EndedSpan) else ForeignSpan(span, [], secrets))


def _logged(withholdings: Sequence[Withholding]) -> ContentRule:
    """What the log may have: no more than the transport that is given most."""
    rules = [withholding.rule for withholding in withholdings]
    return max(rules, key=lambda rule: (rule.content, rule.redact is None))


def _config(config: object, faults: Faults, secrets: Secrets) -> dict[str, Any]:
    """The configuration as it is now, whatever becomes of the object."""
    try:
        return {} if config is None else runs.config(config, faults, secrets)
    except Exception as error:
        faults.append(f"config_invalid: {error!r}")
        return {}


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return "."


def _resource(run_id: str, secrets: Secrets, omissions: list[str]) -> Resource:
    """Who records, without what looks like a secret in OpenTelemetry's variables."""
    found = _detected(run_id)
    kept = secrets.mapping(found.attributes, omissions)
    return Resource(kept, found.schema_url) if omissions else found


def _detected(run_id: str) -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or a.SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    service = {} if named else {a.SERVICE_NAME: "mttp"}
    known = {**service, a.RUN_ID: run_id}
    try:
        return Resource.create(known)
    except RuntimeError:  # it needs a thread, and at the interpreter's end there is none to be had
        return Resource(known)


def _scope() -> InstrumentationScope:
    return InstrumentationScope("mttp", __version__, SCHEMA_URL)
