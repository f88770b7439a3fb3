"""An episode while it happens."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from opentelemetry.trace import Link, Span, SpanContext

from mttp.codec import content
from mttp.codec import episodes as codec
from mttp.codec.generators import GeneratorState
from mttp.codec.plain import Faults, scalar_text, text
from mttp.model import ids
from mttp.otlp.spans import STEP_MODES, RecordingSpan
from mttp.otlp.spans.guarding import quiet, quiet_but
from mttp.recording.handle import SPAN_KEY, Host, current
from mttp.recording.known import KnownEpisode
from mttp.recording.open_agent import OpenAgent
from mttp.recording.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["OpenEpisode", "Template", "inert", "template"]


class Template(NamedTuple):
    """What all episodes of one environment state, put in attributes once."""

    attributes: Mapping[str, Any]
    faults: Sequence[str]
    """What was wrong with that, which each of them says."""


_NO_TEMPLATE = Template({}, ())


def _no_agent(*_: object, **__: object) -> OpenAgent:
    return OpenAgent(inert(), "")


class OpenEpisode(KnownEpisode):
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
        template: Template | None = None,
    ) -> None:
        """
        Start now, or at `start_time`; `facts` are under the names that `mttp.Episode` has.

        `template` has what it states as others of its environment do.
        """
        if host is None:
            KnownEpisode.__init__(self, None)
            return
        known, noted = template or _NO_TEMPLATE
        faults: Faults = [*noted]
        own_id = text(episode_id, faults) if episode_id else ""
        mode = host.steps if steps is None else self._mode(steps, host, faults)
        segment = Segment(host, trace_id or ids.trace_id(), own_id, steps=mode)
        KnownEpisode.__init__(self, segment)
        index = host.opened(self)
        generator = None if facts is None else facts.get("env_rng_sha256")
        if type(generator) is GeneratorState:
            facts = {**cast("dict[str, Any]", facts), "env_rng_sha256": None}
        self._identity = _stated(segment, index, facts or {}, known, faults)
        segment.of_environment = template is not None
        segment.group = self._identity.get(a.GROUP_ID)
        ambient = cast("Span | None", current().get(SPAN_KEY))
        self._span = RecordingSpan(
            host.name_root(self._identity),
            dict(self._identity),
            segment,
            start_time=start_time,
            links=_links(ambient),
        )
        if type(generator) is GeneratorState:
            self._span.leave(a.ENV_RNG_SHA256, generator.parts)
        if faults:
            self._span.note(faults)
        if metadata is not None or metrics is not None:
            self._describe(metadata, metrics)

    @staticmethod
    def _mode(steps: str, host: Host, faults: Faults) -> str:
        """How its steps are written: as stated, else as the session does it."""
        if steps in STEP_MODES:
            return steps
        faults.append(f"steps_invalid: {scalar_text(steps):.80}")
        return host.steps

    @property
    def _episode(self) -> OpenEpisode:
        """Itself: an agent answers with the episode that it plays in."""
        return self

    @property
    def _root(self) -> SpanContext:
        """The episode's root, in whatever process that is."""
        return self._span_context

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
            key = cast(RecordingSpan, self._span).checked(text, id)
            if key not in self._agents and not self._closing:
                self._agents = {**self._agents, key: OpenAgent(self, key, start_time=start_time)}
            return self._agents.get(key)

    @quiet
    def final_observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """What the environment shows after the last action."""
        if self._takes("final_observation"):
            span = cast(RecordingSpan, self._span)
            faults: Faults = []
            omissions: list[str] = []
            span.encoded.update(
                content.encode(content.FINAL_OBSERVATION, value, faults, omissions, max_bytes=max_bytes)
            )
            if omissions:
                span.omissions.extend(omissions)
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
        policy_version_end: object = None,
        discount: float | None = None,
        advantage: float | None = None,
        final_value: float | None = None,
        cost_usd: float | None = None,
        error_type: str | None = None,
        error_message: str = "",
        end_time: int | None = None,
    ) -> None:
        """
        End the episode; steps that are still open end with it.

        `outcome` is success, failure or unknown; `status` is completed, aborted or error.
        `final_value` is the critic's value of the final observation, `cost_usd` is in US dollars.
        `end_time` is in nanoseconds since the Unix epoch, by default now.
        """
        if self._takes("end"):
            self._finish(
                terminated=terminated,
                truncated=truncated,
                outcome=outcome,
                status=status,
                stop_reason=stop_reason,
                length=length,
                policy_version_end=policy_version_end,
                discount=discount,
                advantage=advantage,
                final_value=final_value,
                cost_usd=cost_usd,
                error_type=error_type,
                error_message=error_message,
                end_time=end_time,
            )

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
        span, segment = self._span, self._segment
        assert span is not None
        if length is None:
            length = self._next_index
            for agent in self._agents.values():
                length = max(length, agent._next_index)
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
            span.encoded.update(self._encode_ending(segment, faults))
        if faults:
            span.note(faults)
        span.end(end_time)

    def _encode_ending(self, segment: Segment, faults: Faults) -> dict[str, Any]:
        steps = self._steps
        for agent in self._agents.values():
            steps += agent._steps
        facts = {**self._ending, **self._stated}
        facts["return_"], facts["step_reward_sum"], basis = self._ledger.totals()
        return codec.ending(facts, faults, return_basis=basis, step_count=steps, span_count=segment.spans + 1)

    def _write_marker(self) -> None:
        """
        Record the span that keeps an open episode's identity, unless that was done or the episode has ended.

        Called before each write, on any thread.
        """
        with self._lock:
            if self._marked or self._span is None or self.ended or self._closing:
                return
            self._marked = True
            start = self._span.started
            marker = self._segment.span(names.EPISODE_START, self._span_context, start_time=start, place={})
            stated = self._span.encoded.copy()
            stated.pop(a.SPAN_TYPE, None)  # the root's is not the marker's
            marker.encoded.update(stated)
            marker.pending = self._span.pending and {**self._span.pending}
            marker.end(start)


def _links(ambient: Span | None) -> list[Link]:
    """A link to the current span: the episode has no parent, so that no sampling decision swallows it."""
    context = None if ambient is None else ambient.get_span_context()
    return [Link(context)] if context is not None and context.is_valid else []


def template(host: Host, facts: Mapping[str, Any], faults: Faults) -> Template:
    """A template of these facts, which have the names that `mttp.Episode` gives them."""
    said = codec.identity({}, faults, facts)
    _hide_secrets(host, said)
    return Template(said, faults)


def _stated(
    segment: Segment, index: int, facts: Mapping[str, Any], known: Mapping[str, Any], faults: Faults
) -> dict[str, Any]:
    """The attributes of what is stated of an episode; its index is by default that in the session."""
    said = {**known, **segment.identity, a.EPISODE_INDEX: index, a.EPISODE_TIMING: "live"}
    if facts:
        said = codec.identity(said, faults, facts)
        if facts.get("env_kwargs") is not None:
            _hide_secrets(segment.host, said)
    return said


def _hide_secrets(host: Host, said: dict[str, Any]) -> None:
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
