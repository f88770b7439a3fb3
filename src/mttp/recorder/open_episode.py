"""An episode while it happens."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, cast

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

from mttp import ids
from mttp.clock import Clock
from mttp.codec import content, rewards
from mttp.codec import episodes as episode_codec
from mttp.codec.plain import Faults, text
from mttp.episodes import Reward, Spec
from mttp.livespan import LiveSpan
from mttp.recorder.handle import EPISODE_KEY, STEP_KEY, Host, quiet
from mttp.recorder.known import Known
from mttp.recorder.open_step import OpenStep
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["OpenEpisode"]

_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


class OpenEpisode(Known):
    """An episode while it happens. Its properties are those of `mttp.Episode`, as far as they are known."""

    def __init__(
        self,
        host: Host | None,
        *,
        trace_id: int = 0,
        episode_id: str | None = None,
        start_time: int | None = None,
        slices: Sequence[str] | str = (),
        seed: int | str | None = None,
        inputs: object = None,
        metadata: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        **identity: Any,
    ) -> None:
        super().__init__(host)
        self._lock = threading.RLock()
        self._open_steps: dict[int, OpenStep] = {}
        self._marked = False
        if host is None:
            return
        self._children = _Counted(host)
        self._clock = Clock()
        faults: Faults = []
        trace_id = trace_id or ids.trace_id()
        self._episode_id = text(str(episode_id), faults) if episode_id else f"{trace_id:032x}"
        facts = {**identity, "slices": slices, "seed": seed, "inputs": inputs}
        facts.setdefault("index", host.opened(self))
        values = episode_codec.identity(
            run_id=host.run_id, episode_id=self._episode_id, faults=faults, **facts
        )
        self._identity = values
        self._span = self._root(trace_id, values, start_time)
        self._span.note(faults)
        self._describe(metadata, metrics)

    @quiet
    def _describe(self, metadata: Mapping[str, object] | None, metrics: Mapping[str, float] | None) -> None:
        for name, fact in (metadata or {}).items():
            self.set_metadata(name, fact)
        for name, metric in (metrics or {}).items():
            self.metric(name, metric)

    def _root(self, trace_id: int, values: dict[str, Any], start_time: int | None) -> LiveSpan:
        """The root: parentless, so that nobody's sampling swallows it, but linked to what is current."""
        assert self._host is not None
        ambient = trace.get_current_span().get_span_context()
        return LiveSpan(
            f"{names.EPISODE} {values[a.ENV_ID]}" if a.ENV_ID in values else names.EPISODE,
            context=_context(trace_id),
            parent=None,
            clock=self._clock,
            origin=self._host.origin,
            sink=self._host,
            values=dict(values),
            start_time=self._clock.now() if start_time is None else start_time,
            links=[Link(ambient)] if ambient.is_valid else (),
        )

    def _as_context(self, span: LiveSpan) -> Context:
        self._outer = otel_context.get_value(EPISODE_KEY)
        context = otel_context.set_value(STEP_KEY, None, super()._as_context(span))
        return otel_context.set_value(EPISODE_KEY, self, context)

    @property
    def host(self) -> Host | None:
        """The session that records; None for an inert handle."""
        return self._host

    # What a training loop says.

    def step(self, *, start_time: int | None = None, index: int | None = None) -> OpenStep:
        """
        Start the next step.

        `start_time` is in nanoseconds since the Unix epoch, by default now.
        `index` is by default one after the last.
        """
        return self._open_step(start_time, index) or OpenStep(self, None)

    @quiet
    def _open_step(self, start_time: int | None, index: int | None) -> OpenStep | None:
        if not self._takes("step"):
            return None
        assert self._host is not None
        with self._lock:
            if "status" in self._ending:
                return None
            position = self._next_index if index is None else int(index)
            self._next_index = max(self._next_index, position + 1)
            span = self.child(names.STEP, cast(LiveSpan, self._span), SpanKind.INTERNAL, start_time)
            span.values[a.STEP_INDEX] = position
            step = OpenStep(self, span, position)
            self._open_steps[id(step)] = step
        self._host.stepped()
        return step

    def child(
        self, name: str, parent: LiveSpan, kind: SpanKind = SpanKind.INTERNAL, start_time: int | None = None
    ) -> LiveSpan:
        """A new span under `parent`, counted as one of the episode."""
        assert self._host is not None
        return LiveSpan(
            name,
            context=_context(parent.identity.trace_id),
            parent=parent.identity,
            clock=self._clock,
            origin=self._host.origin,
            sink=self._children,
            values={a.RUN_ID: self._host.run_id, a.EPISODE_ID: self._episode_id},
            start_time=start_time,
            kind=kind,
        )

    @quiet
    def reward(
        self,
        value: object,
        *,
        components: Mapping[str, object] | None = None,
        weights: Mapping[str, object] | None = None,
        status: str | None = None,
        error: object = None,
        spec: Spec | None = None,
        range: tuple[float, float] | None = None,
        verdict: str | None = None,
        failed_checks: Sequence[str] = (),
        grader: str | None = None,
        grader_kind: str | None = None,
        grader_version: str | None = None,
        relative: bool | None = None,
        label: str | None = None,
        explanation: str | None = None,
        **unknown: object,
    ) -> None:
        """
        State what the whole episode is paid, and what that was made of.

        `value` is a number; None means that none is known (status missing, or what `status` says).
        Whatever is not a finite number is an error, kept as text, and never a zero.
        A value that differs from its components' weighted sum is recorded as given, and flagged.
        """
        if not self._takes("reward"):
            return
        for name in unknown:
            cast(LiveSpan, self._span).fault("argument_unknown", f"reward has no {name}")
        made = self.score(
            cast(LiveSpan, self._span),
            value,
            components=components,
            weights=weights,
            status=status,
            error=error,
            spec=spec,
            range=range,
            verdict=verdict,
            failed_checks=failed_checks,
            grader=grader,
            grader_kind=grader_kind,
            grader_version=grader_version,
            relative=relative,
            label=label,
            explanation=explanation,
        )
        self._set_total(made)

    def score(self, parent: LiveSpan, value: object, **scoring: Any) -> Reward:
        """Record one scoring under `parent`, as a value made from what the caller stated."""
        faults: Faults = []
        return self.scored(parent, rewards.make(value, faults, **scoring), faults)

    def scored(self, parent: LiveSpan, made: Reward, faults: Faults) -> Reward:
        """Record a scoring, its components beyond what one span should hold as children."""
        span = self.child(rewards.span_name(made), parent, start_time=made.start_time)
        span.note(faults)
        parent.faults.extend(faults)
        span.values |= span.checked(rewards.encode, made)
        for grade in rewards.grades(made):
            child = self.child(f"{names.GRADE} {grade.grader}", span, start_time=made.start_time)
            child.values |= child.checked(rewards.encode, grade)
            child.end(made.end_time)
        span.end(made.end_time)
        return made

    def _set_total(self, made: Reward) -> None:
        """
        Take a scoring as the episode's total, where it states one.

        Its scalars stand on the root too, where samplers and trace queries look.
        """
        self._ledger.total(made)
        span = cast(LiveSpan, self._span)
        span.forget(rewards.KEYS)
        span.values |= {key: value for key, value in rewards.encode(made, []).items() if key in rewards.KEYS}

    @quiet
    def final_observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """What the environment shows after the last action."""
        if self._takes("final_observation"):
            span = cast(LiveSpan, self._span)
            faults: Faults = []
            span.values |= content.encode(
                content.FINAL_OBSERVATION, value, faults, span.omissions, max_bytes=max_bytes
            )
            span.note(faults)

    @quiet
    def end(
        self,
        *,
        terminated: bool | None = None,
        truncated: bool | None = None,
        outcome: str | None = None,
        status: str = "completed",
        stop_reason: str | None = None,
        length: int | None = None,
        end_time: int | None = None,
        **facts: Any,
    ) -> None:
        """
        End the episode; steps that are still open end with it.

        `facts` may state `policy_version_end`, `discount`, `advantage`, `final_value` and `cost_usd`.
        """
        if self._takes("end"):
            self._finish(
                terminated=terminated,
                truncated=truncated,
                outcome=outcome,
                status=status,
                stop_reason=stop_reason,
                length=length,
                end_time=end_time,
                **facts,
            )

    def step_ended(self, step: OpenStep) -> None:
        """Enter what an ended step paid, and what it said of the end."""
        with self._lock:
            self._open_steps.pop(id(step), None)
            self._ledger.step(step._reward, invalid=step._invalid)
            self._stated |= step._flags

    def _finish(
        self,
        *,
        status: str = "completed",
        outcome: str | None = None,
        terminated: bool | None = None,
        truncated: bool | None = None,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
        length: int | None = None,
        **facts: Any,
    ) -> None:
        assert self._host is not None
        for step in list(self._open_steps.values()):
            step._finish(end_time=end_time)
        flags = {"terminated": terminated, "truncated": truncated}
        self._stated |= {name: bool(flag) for name, flag in flags.items() if flag is not None}
        span = cast(LiveSpan, self._span)
        closing = {
            "status": status,
            "outcome": outcome or "unknown",
            "length": self._next_index if length is None else length,
            **{name: value for name, value in facts.items() if value is not None},
        }
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._ending |= closing
            self._host.finished(self)
            span.values |= span.checked(self._encode_ending)
        span.end(end_time)

    def _encode_ending(self, faults: Faults) -> dict[str, Any]:
        facts = {
            **self._ending,
            **self._stated,
            "return_": self.return_,
            "step_reward_sum": self.step_reward_sum,
        }
        return episode_codec.ending(
            faults=faults,
            return_basis=self.return_basis,
            step_count=self._next_index,
            span_count=self._children.spans + 1,
            **facts,
        )

    def mark(self) -> None:
        """
        Record the span that keeps an open episode's identity, unless that was done or the episode has ended.

        Called by whoever flushes, on any thread.
        """
        with self._lock:
            if self._marked or self._span is None or self.ended or "status" in self._ending:
                return
            self._marked = True
            start = self._span.started
            marker = self.child(names.EPISODE_START, self._span, start_time=start)
            marker.values |= self._span.values.copy()
            marker.end(start)


class _Counted:
    """Where an episode's children go: counted, so that a reader can prove that none is missing."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.spans = 0

    def ended(self, span: LiveSpan) -> None:
        """Take an ended span."""
        self.spans += 1
        self._host.ended(span)

    def fault(self, kind: str, detail: str = "") -> None:
        """Count a fault."""
        self._host.fault(kind, detail)


def _context(trace_id: int) -> SpanContext:
    return SpanContext(trace_id, ids.span_id(), is_remote=False, trace_flags=_SAMPLED)
