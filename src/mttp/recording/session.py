"""A session: the recording of one run in one process, from `configure` to `close`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from typing_extensions import Self, Unpack

from mttp.codec import runs
from mttp.codec.plain import Faults
from mttp.codec.profiles import full
from mttp.codec.redaction import ContentRule
from mttp.codec.secrets import USUAL, Secrets
from mttp.codec.withholding import Withholding
from mttp.errors import ReadError
from mttp.model import clock
from mttp.model.episodes import Episode
from mttp.model.hooks import watch_with
from mttp.model.interrupts import raise_interrupt
from mttp.model.live import Live
from mttp.model.log import log
from mttp.model.spans import SpanRecord
from mttp.model.version import __version__
from mttp.otlp.spans import RecordingSpan, SpanOrigin
from mttp.otlp.spans.guarding import failed, quiet_but
from mttp.otlp.spans.span_records import EndedSpan, foreign, record
from mttp.recording import record_value
from mttp.recording.arguments import EPISODE_FACTS, EpisodeFacts, check_names
from mttp.recording.current import inert_episode
from mttp.recording.observers import Observers
from mttp.recording.open_episode import OpenEpisode, Template, template
from mttp.recording.remote_episode import EpisodeContext, RemoteEpisode
from mttp.recording.run_recorder import RunConfig, RunRecorder
from mttp.recording.scoring import watch
from mttp.semconv import SCHEMA_URL
from mttp.semconv import attributes as a
from mttp.transports.export_target import ExportTarget, Transport
from mttp.transports.pipeline import Pipeline
from mttp.transports.pipeline.content_filter import ContentFilter
from mttp.transports.sampling import Sampling
from mttp.transports.stats import Stats

__all__ = ["Session", "start_episode"]


FLUSH_SECONDS = 30.0
"""The default time limit of `flush`."""
PART_SECONDS = 1.0
"""How long the end of a remote episode waits for its spans, with `extract(flush=True)`."""
PROCESSOR_SECONDS = 10.0
"""The time limit for shutting down the user's span processors."""


class Session(Live):
    """
    Records the episodes of one run; `mttp.configure` creates it.

    It is a context manager, sync and async, which closes it at the end of its block.
    """

    def __init__(
        self,
        targets: Sequence[ExportTarget],
        *,
        run_id: str,
        facts: Mapping[str, Any],
        config: object = None,
        processors: Sequence[SpanProcessor] = (),
        sampling: Sampling | None = None,
        steps: str = "auto",
        withholding: Withholding = Withholding(),  # noqa: B008 - it is frozen
        secrets: Secrets | None = None,
        provenance: bool = True,
    ) -> None:
        """
        Start a session that writes to `targets`.

        `withholding` is applied to the ended spans that span processors get.
        `secrets` finds the values that are never recorded.
        `provenance` is whether code revision, packages, interpreter, host and accelerators are recorded.
        """
        secrets = USUAL if secrets is None else secrets
        omissions: list[str] = []
        run = {a.RUN_ID: run_id, a.RUN_KIND: str(facts["kind"])}
        resource = _resource(run, secrets, omissions)
        self.run_id = run_id
        self.run_name: str | None = facts.get("name")
        self.transports = [target.transport for target in targets if target.owned]
        self._closed = not targets and not processors
        self._status = "completed"
        self._lock = threading.RLock()
        self._before_close_callbacks = ExitStack()
        self._after_close_callbacks = ExitStack()
        self._close_seconds = max((target.close_timeout for target in targets), default=PROCESSOR_SECONDS)
        faults: Faults = []
        origin = SpanOrigin(resource, InstrumentationScope("mttp", __version__, SCHEMA_URL), secrets=secrets)
        self._observers = Observers(processors, self._fault, _redactor(withholding, origin, self._fault))
        watch_with(watch)
        if processors:
            origin.observers = self._observers
        self._recorder = RunRecorder(
            RunConfig(
                targets=targets,
                origin=origin,
                run_id=run_id,
                facts=facts,
                config=_config(config, faults, secrets),
                omissions=tuple(omissions),
                faults=tuple(faults),
                directory=_directory() if provenance else None,
                sampling=sampling,
                steps=steps,
                logged=_log_rule([target.withholding for target in targets] or [withholding]),
            )
        )

    @property
    def stats(self) -> Stats:
        """Counts of what this process recorded, delivered and lost."""
        return self._recorder.stats

    @property
    def _pipeline(self) -> Pipeline:
        return self._recorder.pipelines[0]

    @property
    def transport(self) -> Transport | None:
        """The transport, or the first of several; None if the session records nothing."""
        return self.transports[0] if self.transports else None

    # Public methods.

    @property
    def closed(self) -> bool:
        """Whether the session is closed, so that it records nothing more."""
        return self._closed

    @quiet_but(lambda *_, **__: inert_episode())
    def episode(self, **facts: Unpack[EpisodeFacts]) -> OpenEpisode:
        """Start an episode; `EpisodeFacts` lists the arguments."""
        check_names("episode", facts, EPISODE_FACTS)
        return inert_episode() if self._closed else start_episode(self._recorder, facts)

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
        Record a finished episode from its value, and return a handle that has ended.

        Times are in nanoseconds since the Unix epoch, by default the value's own, else now.
        `timing` is "live", or "batch" if the times are those of a whole batch.
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
        Add facts about the run; facts that were stated earlier are not changed.

        `config` is any value that JSON can represent, `policy_parameters` the number of trainable parameters.
        """
        facts = {name: value for name, value in locals().items() if name not in ("self", "config")}
        if self._closed:
            return
        faults: Faults = []
        secrets = self._recorder.origin.secrets
        self._recorder.describe(runs.encode(faults, **facts) | _config(config, faults, secrets), faults)

    @quiet_but(lambda *_, **__: False)
    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """
        Write all ended spans and flush span processors, within `timeout` seconds.

        Return whether every transport delivered everything that was recorded since the previous flush. The
        result is False if a receiver rejected spans, a full queue lost some, or the time was not enough.
        """
        deadline = clock.seconds() + timeout
        written = self._recorder.flush(timeout)
        return self._observers.flush(max(deadline - clock.seconds(), 0.0)) and written

    @quiet_but(lambda *_, **__: False)
    def close(self, timeout: float | None = None) -> bool:
        """
        End the run, write all spans, and shut down the transports; later calls do nothing.

        Spans that are not written within `timeout` seconds are lost, and counted; by default the timeout is
        30 seconds for a file and 10 for a collector. If anything was lost, one line of the log summarizes it.
        Return whether everything that the session recorded was delivered.
        """
        with self._lock:
            was_closed = self._closed
            if not was_closed:
                self._run_before_close()
            self._closed = True
        if was_closed:
            return self._recorder.close(self._status, timeout)
        deadline = clock.seconds() + (self._close_seconds if timeout is None else timeout)
        try:
            return self._recorder.close(self._status, timeout)
        finally:
            self._observers.close(min(max(deadline - clock.seconds(), 0.0), PROCESSOR_SECONDS))
            self._after_close_callbacks.close()
            self._log_losses()

    def _log_losses(self) -> None:
        """Log once what the session lost."""
        if line := loss_summary(self.run_id, self.stats.as_dict()):
            log.warning("%s", line)

    def _run_before_close(self) -> None:
        try:
            self._before_close_callbacks.pop_all().close()
        except Exception as error:
            raise_interrupt(error)
            self._failed("Session.close", error)

    @quiet_but(lambda *_, **__: False)
    def abort(self) -> bool:
        """Close the session with the run's status "aborted"; returns what `close` returns."""
        self._status = "aborted"
        return self.close()

    def _fault(self, kind: str, detail: str = "") -> None:
        """Count a fault, and log the first of its kind."""
        self._recorder.fault(kind, detail)

    def _failed(self, what: str, error: Exception) -> None:
        failed(self._recorder, what, error)

    @property
    def location(self) -> Path | None:
        """The file or directory that this session writes; None if it writes no files."""
        return next((path for _, path in self._files()), None)

    def _written(self) -> Path | None:
        """Flush the first file transport and return its path; None without one."""
        for place, path in self._files():
            self._recorder.flush(FLUSH_SECONDS, place)
            return path
        return None

    def _files(self) -> Iterator[tuple[int, Path]]:
        for place, transport in enumerate(self.transports):
            path = getattr(transport, "path", None)
            if isinstance(path, Path):
                yield place, path

    def records(self) -> Iterator[SpanRecord]:
        """Flush and return the spans of the memory transport; raises ReadError without a memory transport."""
        for place, transport in enumerate(self.transports):
            records = getattr(transport, "records", None)
            if records is not None:
                self._recorder.flush(FLUSH_SECONDS, place)
                return iter(records())
        raise ReadError(f"a session on {self._addresses()} has no memory transport to read episodes from")

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
        return f"<mttp.Session {self.run_id} on {self._addresses()}, {state}>"

    def _addresses(self) -> str:
        return ", ".join(map(repr, self.transports)) or "nothing"

    # For other packages of mttp.

    def _records_for(self, recorder: object) -> bool:
        """Return whether the session is open and still records with this recorder, which a fork replaces."""
        return not self._closed and self._recorder is recorder

    def _template(self, facts: Mapping[str, Any], faults: Faults) -> Template:
        """Return a template of facts, as `mttp.Episode` names them, that an environment's episodes share."""
        return template(self._recorder, facts, faults)

    @quiet_but(lambda *_, **__: inert_episode())
    def _episode_from_template(self, template: Template, facts: Mapping[str, Any]) -> OpenEpisode:
        """Start an episode with these `EpisodeFacts` and the attributes of the template."""
        return inert_episode() if self._closed else start_episode(self._recorder, facts, template)

    @quiet_but(lambda *_, **__: RemoteEpisode(None))
    def _continue_episode(self, context: EpisodeContext, *, flush: bool = False) -> RemoteEpisode:
        """Continue another process's episode; with `flush` its end waits until its spans are written."""
        if self._closed:
            return RemoteEpisode(None)
        return RemoteEpisode(
            self._recorder, context, at_end=partial(self.flush, PART_SECONDS) if flush else None
        )

    def _before_close(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` when the session is about to close, while it still records."""
        self._before_close_callbacks.callback(callback, *args)

    def _after_close(self, callback: Callable[..., object], *args: object) -> None:
        """Call `callback` after the session has closed."""
        self._after_close_callbacks.callback(callback, *args)

    def _after_fork_in_child(self) -> None:
        """Use a new recorder in a forked child; open episodes and queued spans stay with the parent."""
        self._lock = threading.RLock()
        self._recorder = self._recorder.fork()
        self._observers.after_fork_in_child()
        for transport in self.transports:
            forked = getattr(transport, "after_fork", None)
            if forked is not None:
                forked()

    def _add_processor(self, processor: SpanProcessor) -> None:
        """Add a span processor."""
        self._observers.add(processor)
        self._recorder.origin.observers = self._observers

    def _foreign_span_ended(self, span: ReadableSpan) -> None:
        """Record an ended span of another library."""
        self._observers.ended(span)
        faults: Faults = []
        frame = foreign(span, faults, self._recorder.origin)
        for fault in faults:
            kind, _, detail = fault.partition(": ")
            self._fault(kind, detail)
        self._recorder.put(frame)


_HANDLE_OPTIONS = {"id": "episode_id", "start_time": "start_time", "metadata": "metadata", "steps": "steps"}
"""The `EpisodeFacts` that are no fields of an episode, and the handle's arguments for them."""
_FIELDS = {"policy_version": "policy_version_start"}
"""The fields of an episode with other names than in `EpisodeFacts`."""


def start_episode(
    recorder: RunRecorder, given: Mapping[str, Any], template: Template | None = None
) -> OpenEpisode:
    """Start an episode with these `EpisodeFacts`."""
    options = {option: given[name] for name, option in _HANDLE_OPTIONS.items() if name in given}
    facts = {_FIELDS.get(name, name): fact for name, fact in given.items() if name not in _HANDLE_OPTIONS}
    return OpenEpisode(recorder, facts, **options, template=template)


def _redactor(
    withholding: Withholding, origin: SpanOrigin, fault: Callable[[str, str], None]
) -> Callable[[ReadableSpan], ReadableSpan] | None:
    """Return the function that redacts a span for span processors; None if nothing is withheld."""
    if withholding == Withholding():
        return None
    redacted = ContentFilter(withholding, fault)

    def view(span: ReadableSpan) -> ReadableSpan:
        frame = span.frame() if isinstance(span, RecordingSpan) else foreign(span, [], origin)
        shown = EndedSpan(record(redacted(frame), full), is_sampled=frame.is_sampled)
        shown.is_timed = getattr(span, "is_timed", True)
        return shown

    return view


def _log_rule(withholdings: Sequence[Withholding]) -> ContentRule:
    """Return the least strict of the transports' rules, which applies to the log."""
    rules = [withholding.rule for withholding in withholdings]
    return max(rules, key=lambda rule: (rule.content, rule.redact is None))


def _config(config: object, faults: Faults, secrets: Secrets) -> dict[str, Any]:
    """Return attributes with a copy of the configuration."""
    try:
        return {} if config is None else runs.config(config, faults, secrets)
    except Exception as error:
        raise_interrupt(error)
        faults.append(f"config_invalid: {error!r}")
        return {}


def _directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it was deleted
        return "."


def _resource(run: Mapping[str, str], secrets: Secrets, omissions: list[str]) -> Resource:
    """Return the resource without secrets from OpenTelemetry's variables."""
    resource = _detected(run)
    attributes = secrets.mapping(resource.attributes, omissions)
    return Resource(attributes, resource.schema_url) if omissions else resource


def _detected(run: Mapping[str, str]) -> Resource:
    named = "OTEL_SERVICE_NAME" in os.environ or a.SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    service = {} if named else {a.SERVICE_NAME: "mttp"}
    known = {**service, **run}
    try:
        return Resource.create(known)
    except RuntimeError:  # detectors need a thread, and none starts while the interpreter shuts down
        return Resource(known)


def loss_summary(run_id: str, counters: Mapping[str, Any]) -> str:
    """
    Return what a session lost, from `Stats.as_dict()`, in one line; spans count once for each transport.

    The line is empty if nothing was lost, nothing waits on disk and no fault occurred.
    """
    lost, faults, spooled = dict(counters["lost"]), counters["faults"], counters["spooled"]
    if counters["pending"] > spooled:
        lost["not_written"] = counters["pending"] - spooled
    if not any(lost.values()) and not faults and not spooled:
        return ""
    parts = [f"{counters['recorded']:,} spans recorded, {counters['delivered']:,} delivered"]
    if spooled:
        parts.append(f"{spooled:,} wait in the spool, which `mttp push` sends")
    if any(lost.values()) or not spooled:
        parts.append(f"{sum(lost.values()):,} lost{_by_cause(lost)}")
    if faults:
        total = sum(faults.values())
        parts.append(f"{total:,} fault{'s' * (total != 1)}{_by_cause(faults)}")
    return f"mttp: run {run_id}: {', '.join(parts)}; `mttp doctor` checks the set-up"


def _by_cause(counts: Mapping[str, int]) -> str:
    """Return the counts by cause in parentheses, the largest first; empty without any."""
    ordered = sorted(((count, cause) for cause, count in counts.items() if count), key=lambda pair: -pair[0])
    named = ", ".join(f"{cause} {count:,}" for count, cause in ordered)
    return f" ({named})" if named else ""
