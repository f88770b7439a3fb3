"""An episode while it happens."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Any, cast

from opentelemetry.trace import Span, SpanContext

from mttp import ids
from mttp.codec import content
from mttp.codec import episodes as codec
from mttp.codec.plain import Faults, scalar_text, text, unknown_arguments
from mttp.guarding import quiet, quiet_but
from mttp.livespan import LiveSpan
from mttp.recorder.handle import SPAN_KEY, Host, current, detach
from mttp.recorder.known import Known
from mttp.recorder.live_root import LiveRoot
from mttp.recorder.open_agent import OpenAgent
from mttp.recorder.packing import MODES
from mttp.recorder.segment import Segment
from mttp.recorder.trajectory import UNSTATED
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["OpenEpisode", "inert"]

_AT_THE_END = frozenset(
    {"policy_version_end", "discount", "advantage", "final_value", "cost_usd", "error_type", "error_message"}
)
"""What else a caller may state at the end."""
_COMPLETED: Mapping[str, Any] = MappingProxyType({"status": "completed", "outcome": "unknown"})


def _no_agent(*_: object, **__: object) -> OpenAgent:
    return OpenAgent(inert(), "")


class OpenEpisode(Known):
    """An episode while it happens. Its properties are those of `mttp.Episode`, as far as they are known."""

    _agents: Mapping[str, OpenAgent] = MappingProxyType({})
    _marked = False

    def __init__(
        self,
        host: Host | None,
        facts: dict[str, Any] | None = None,
        *,
        trace_id: int = 0,
        episode_id: str | None = None,
        start_time: int | None = None,
        metadata: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        steps: str | None = None,
        begun: int | None = None,
    ) -> None:
        """
        Start now, or at `start_time`; `facts` are under the names that `mttp.Episode` has.

        `begun` is the index of an episode that began without a handle, and with nothing else going on.
        """
        if host is None:
            Known.__init__(self, None)
            return
        faults: Faults = []
        own_id = text(episode_id, faults) if episode_id else ""
        segment = Segment(host, trace_id or ids.trace_id(), own_id)
        Known.__init__(self, segment, steps=host.steps if steps is None else self._mode(steps, host, faults))
        ambient = None
        if begun is None:
            begun, ambient = host.opened(self), cast("Span | None", current().get(SPAN_KEY))
        stated = _stated(segment, begun, facts, faults) if facts else None
        self._span = LiveRoot(segment, begun, stated, ambient, start_time)
        if faults:
            self._span.note(faults)
        if metadata is not None or metrics is not None:
            self._describe(metadata, metrics)

    @staticmethod
    def _mode(steps: str, host: Host, faults: Faults) -> str:
        """How its steps are written: as stated, else as the session does it."""
        if steps in MODES:
            return steps
        faults.append(f"steps_invalid: {scalar_text(steps):.80}")
        return host.steps

    @property
    def episode(self) -> OpenEpisode:
        """Itself: an agent answers with the episode that it plays in."""
        return self

    @property
    def root(self) -> SpanContext:
        """The episode's root, in whatever process that is."""
        return self.at

    @property
    def agents(self) -> list[OpenAgent]:
        """The agents that were asked for so far, in that order."""
        return list(self._agents.values())

    # What a training loop says.

    @quiet_but(_no_agent)
    def agent(
        self,
        id: object,
        *,
        policy: object = None,
        policy_version: object = None,
        name: object = None,
        metadata: Mapping[str, object] | None = None,
        start_time: int | None = None,
    ) -> OpenAgent:
        """
        One of several agents that play the episode; the same id is the same agent, from its first mention on.

        Its steps, its reward and its end are its own; it ends with the episode at the latest.
        `start_time` in nanoseconds since the Unix epoch, by default now.
        """
        opened = self._find_agent(id, start_time) or OpenAgent(inert(), "")
        opened._introduce(metadata, policy=policy, policy_version_start=policy_version, name=name)
        return opened

    def _find_agent(self, id: object, start_time: int | None) -> OpenAgent | None:
        if not self._takes("agent"):
            return None
        with self._lock:
            key = cast(LiveSpan, self._span).checked(text, id)
            if key not in self._agents and not self._closing:
                self._agents = {**self._agents, key: OpenAgent(self, key, start_time=start_time)}
            return self._agents.get(key)

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
            unknown = [name for name in facts if name not in _AT_THE_END]
            cast(LiveSpan, self._span).note(unknown_arguments("end", unknown))
            facts = {name: fact for name, fact in facts.items() if name in _AT_THE_END}
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

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        root, attached = self._span, self._attached
        if (
            error is not None
            or attached is None
            or type(root) is not LiveRoot
            or not root._is_light  # more was said of it, or there is more to end
            or self.open_steps
            or self._stated is not UNSTATED
            or self._packing is not None
            or self._agents
        ):
            super().__exit__(kind, error, trace)
            return
        self.inside = None
        token, self._attached = attached
        detach(token)
        segment, lock = self.segment, self._lock
        lock.acquire()  # what `_finish` does, of an episode about which there is nothing unusual
        try:  # in half the time that `with` takes
            if self._closing:
                return
            self._close()
            self._ending = _COMPLETED
            spans = segment.spans + 1
        finally:
            lock.release()
        segment.host.finished(self)
        root.conclude_lightly(self._book, self.step_rewards, self._following, self._begun, spans)

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
        for agent in self.agents if self._agents else ():
            if not agent.ended:
                agent._finish(end_time=end_time)
        self._settle(terminated=terminated, truncated=truncated, end_time=end_time)
        span, segment = self._span, self.segment
        assert span is not None
        if length is None:
            length = max([self._next_index, *(agent._next_index for agent in self._agents.values())])
        faults: Faults = []
        closing = {"status": status, "outcome": codec.outcome(outcome, faults), "length": length}
        for name, value in facts.items():
            if value is not None:
                closing[name] = value
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._close()
            self._ending = closing
            segment.host.finished(self)
            span.values.update(self._encode_ending(segment, faults))
        if faults:
            span.note(faults)
        span.end(end_time)

    def _encode_ending(self, segment: Segment, faults: Faults) -> dict[str, Any]:
        steps = self._steps + sum([agent._steps for agent in self._agents.values()])
        facts = {**self._ending, **self._stated}
        facts["return_"], facts["step_reward_sum"], basis = self._ledger.totals()
        return codec.ending(facts, faults, return_basis=basis, step_count=steps, span_count=segment.spans + 1)

    def mark(self) -> None:
        """
        Record the span that keeps an open episode's identity, unless that was done or the episode has ended.

        Called by whoever flushes, on any thread.
        """
        with self._lock:
            if self._marked or self._span is None or self.ended or self._closing:
                return
            self._marked = True
            start = self._span.started
            marker = self.segment.span(names.EPISODE_START, self.at, start_time=start, place={})
            stated = self._span.scalars.copy()
            stated.pop(a.SPAN_TYPE, None)  # the root's is not the marker's
            marker.values |= stated
            marker.end(start)


def _stated(segment: Segment, index: int, facts: Mapping[str, Any], faults: Faults) -> dict[str, Any]:
    """The attributes of what is stated of an episode; its index is by default that in the session."""
    if facts.get("index") is None:
        facts = {**facts, "index": index}
    said = codec.identity(segment.host.run_id, segment.episode_id, faults, facts)
    hide_secrets(segment.host, said)
    return said


def hide_secrets(host: Host, said: dict[str, Any]) -> None:
    """Take what looks like a secret out of an environment's arguments, and name it."""
    written, omissions = said.get(a.ENV_KWARGS), list[str]()
    if written is not None:
        said[a.ENV_KWARGS] = host.origin.secrets.document(a.ENV_KWARGS, written, omissions)
    if omissions:
        said[a.OMISSIONS] = omissions


@functools.cache
def inert() -> OpenEpisode:
    """An episode that records nothing."""
    return OpenEpisode(None)
