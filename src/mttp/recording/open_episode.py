"""`OpenEpisode`, the handle of an open episode."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from opentelemetry.trace import Link, Span, SpanContext
from typing_extensions import Unpack

from mttp.codec import content, evals
from mttp.codec import episodes as codec
from mttp.codec.fields import integer, mapping, optional_text
from mttp.codec.generators import GeneratorState
from mttp.codec.plain import Faults, scalar_text, text
from mttp.model import ids
from mttp.model.nesting import from_json
from mttp.otlp.spans import STEP_MODES, RecordingSpan
from mttp.otlp.spans.guarding import quiet, quiet_but
from mttp.recording.arguments import EPISODE_ENDING, EpisodeEnding, check_names
from mttp.recording.handle import POLICY_KEY, SPAN_KEY, Handle, current
from mttp.recording.open_agent import OpenAgent
from mttp.recording.segment import Segment
from mttp.recording.trajectory import Trajectory
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

if TYPE_CHECKING:
    from mttp.recording.run_recorder import RunRecorder

__all__ = ["OpenEpisode", "Template", "inert", "template"]


class Template(NamedTuple):
    """The attributes that all episodes of one environment share, encoded once."""

    attributes: Mapping[str, Any]
    faults: Sequence[str]
    """Faults of the attributes, which each episode records."""


_NO_TEMPLATE = Template({}, ())


def _no_agent(*_: object, **__: object) -> OpenAgent:
    return OpenAgent(inert(), "")


class OpenEpisode(Trajectory):
    """An open episode; its properties are those of `mttp.Episode` that are known so far."""

    _agents: Mapping[str, OpenAgent] = MappingProxyType({})
    _marked = False
    _identity: Mapping[str, Any] = MappingProxyType({})
    """The attributes that were known at the start."""
    _ending: Mapping[str, Any] = MappingProxyType({})

    def __init__(
        self,
        host: RunRecorder | None,
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
        Start an episode now, or at `start_time`, with facts as `mttp.Episode` names them.

        `template` has the attributes that all episodes of its environment share.
        """
        if host is None:
            Trajectory.__init__(self, None)
            return
        shared, shared_faults = template or _NO_TEMPLATE
        faults: Faults = [*shared_faults]
        own_id = "" if episode_id is None else optional_text("id", episode_id, faults)
        mode = host.steps if steps is None else self._mode(steps, host, faults)
        segment = Segment(host, trace_id or ids.trace_id(), own_id, steps=mode)
        Trajectory.__init__(self, segment)
        index = host.episode_started(self)
        generator = None if facts is None else facts.get("env_rng_sha256")
        if type(generator) is GeneratorState:
            facts = {**cast("dict[str, Any]", facts), "env_rng_sha256": None}
        self._identity = _identity(segment, index, facts or {}, shared, faults)
        segment.of_environment = template is not None
        segment.group = self._identity.get(a.GROUP_ID)
        ambient = cast("Span | None", current().get(SPAN_KEY))
        self._span = RecordingSpan(
            host.name_root(self._identity),
            dict(self._identity),
            segment,
            start_time=start_time,
            links=_links(ambient, facts and facts.get("group"), segment.group),
        )
        if type(generator) is GeneratorState:
            self._span.set_pending(a.ENV_RNG_SHA256, generator.document)
        if faults:
            self._span.note(faults)
        if metadata is not None or metrics is not None:
            self._describe(metadata, metrics)

    @staticmethod
    def _mode(steps: str, host: RunRecorder, faults: Faults) -> str:
        """Return how steps are written: as stated, by default as in the session."""
        if type(steps) is str and steps in STEP_MODES:
            return steps
        faults.append(f"steps_invalid: {scalar_text(steps):.80}")
        return host.steps

    @property
    def _episode(self) -> OpenEpisode:
        """The episode itself."""
        return self

    @property
    def _root(self) -> SpanContext:
        """The context of the episode's root span."""
        return self._span_context

    @property
    def trace_id(self) -> str:
        """The episode's trace id, 32 hex digits; empty for an inert handle."""
        return f"{self._span.trace_id:032x}" if self._span else ""

    @property
    def id(self) -> str:
        """The episode's id."""
        return str(self._identity.get(a.EPISODE_ID, ""))

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self._identity.get(a.RUN_ID, ""))

    @property
    def env(self) -> str:
        """The environment's id."""
        return str(self._identity.get(a.ENV_ID, ""))

    @property
    def task(self) -> str | None:
        """The task's id."""
        return self._identity.get(a.TASK_ID)

    @property
    def group(self) -> str | None:
        """The group's id."""
        return self._identity.get(a.GROUP_ID)

    @property
    def seed(self) -> int | str | None:
        """The environment's seed."""
        return codec.seed(self._identity.get(a.ENV_SEED))

    @property
    def policy(self) -> str | None:
        """The policy's id."""
        return self._identity.get(a.POLICY_ID)

    @property
    def policy_update_index(self) -> int | None:
        """The index of the update that produced the policy."""
        return self._identity.get(a.POLICY_UPDATE_INDEX)

    @property
    def slices(self) -> list[str]:
        """Named subsets that the task belongs to."""
        return list(self._identity.get(a.TASK_SLICES, ()))

    @property
    def inputs(self) -> Any:
        """What a reward needs besides the steps, as a read-only copy; `set_inputs` adds to it."""
        document = self._identity.get(a.INPUTS_JSON)
        return None if document is None else read_only(from_json(document))

    @property
    def status(self) -> str:
        """completed, aborted or error; unfinished until it ends."""
        return str(self._ending.get("status", "unfinished"))

    @property
    def outcome(self) -> str:
        """success, failure or unknown."""
        return str(self._ending.get("outcome", "unknown"))

    @property
    def length(self) -> int:
        """The number of steps so far."""
        return int(self._ending.get("length", self._updated()._next_index))

    @property
    def agents(self) -> list[OpenAgent]:
        """The agents so far, in the order in which `agent` was first called for them."""
        return list(self._agents.values())

    # Called by the training loop.

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
        Return the handle of one of several agents; the first call with an id starts the agent.

        An agent has its own steps, reward and end; it ends with the episode at the latest.
        `start_time` is in nanoseconds since the Unix epoch, by default now.
        """
        opened = self._find_agent(id, start_time) or OpenAgent(inert(), "")
        opened._introduce(metadata, policy=policy, policy_version_start=policy_version, name=name)
        return opened

    def _find_agent(self, id: object, start_time: int | None) -> OpenAgent | None:
        if not self._accepts("agent"):
            return None
        with self._lock:
            key = cast(RecordingSpan, self._span).checked(text, id)
            if key not in self._agents and not self._closing:
                self._agents = {**self._agents, key: OpenAgent(self, key, start_time=start_time)}
            return self._agents.get(key)

    @quiet
    def final_observation(self, value: object, *, max_bytes: int | None = None) -> None:
        """
        Record the observation after the last action, of a type as for `OpenStep.observation`.

        Of a value of more than `max_bytes` only dtype and shape are kept.
        """
        if self._accepts("final_observation"):
            self._keep_content(content.FINAL_OBSERVATION, value, max_bytes)

    @quiet
    def set_inputs(self, /, inputs: object = None, **facts: object) -> None:
        """
        Record inputs that are known only now, such as the final answer; of a name the last value counts.

        `inputs` is a mapping, or any value if the episode has no inputs so far.
        """
        if not self._accepts("set_inputs"):
            return
        span, faults = cast(RecordingSpan, self._span), list[str]()
        with self._lock:
            known = self.inputs
            if known is None and not facts:
                known = inputs
            elif known is None or isinstance(known, dict):
                known = {**(known or {}), **mapping("inputs", inputs, faults), **facts}
            else:
                faults.append(f"inputs_invalid: {scalar_text(known):.80} is not a mapping, so none are added")
            encoded = codec.identity({}, faults, {"inputs": known})
            self._identity = {**self._identity, **encoded}
            span.encoded.update(encoded)
        span.note(faults)

    @quiet
    def end(self, **ending: Unpack[EpisodeEnding]) -> None:
        """End the episode, and its open steps and agents; `EpisodeEnding` lists the arguments."""
        check_names("end", ending, EPISODE_ENDING)
        if self._accepts("end"):
            if (inputs := ending.pop("inputs", None)) is not None:
                self.set_inputs(inputs)
            self._finish(**ending)

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
        if self._agents:
            self._end_children((agent for agent in self.agents if not agent.ended), end_time=end_time)
        self._finish_steps(terminated=terminated, truncated=truncated, end_time=end_time)
        span, segment = self._span, self._segment
        assert span is not None
        faults: Faults = []
        if length is not None:
            length = integer("length", length, faults)
        if length is None:
            length = self._next_index
            for agent in self._agents.values():
                length = max(length, agent._next_index)
        closing = {
            "status": codec.status(status, faults),
            "outcome": codec.outcome(outcome, faults),
            "length": length,
            **facts,
        }
        if error_type is not None:
            span.fail(error_type, error_message)
        with self._lock:
            self._closing = True
            self._ending = closing
            segment.host.episode_ended(self)
            span.encoded.update(self._encode_ending(segment, faults))
        if faults:
            span.note(faults)
        self._end_span(end_time)
        if closing["status"] != "completed":  # without the lock, since groups ask for rewards
            segment.host.episode_failed(self)

    def _encode_ending(self, segment: Segment, faults: Faults) -> dict[str, Any]:
        steps = self._steps
        for agent in self._agents.values():
            steps += agent._steps
        facts = {**self._ending, **self._end_flags}
        facts["return_"], facts["step_reward_sum"], basis = self._returns()
        return codec.ending(facts, faults, return_basis=basis, step_count=steps, span_count=segment.spans + 1)

    def _write_marker(self) -> None:
        """
        Record the start marker, unless it is recorded or the episode has ended.

        Called before each write, on any thread.
        """
        with self._lock:
            if not (self._marked or self._span is None or self.ended or self._closing):
                self._marked = True
                self._marker(self._span).end_at_once()

    def _marker(self, span: RecordingSpan) -> RecordingSpan:
        """Return a span with what is known of the episode, whose span is this one."""
        name = self._segment.host.name_root(self._identity).replace(names.EPISODE, names.EPISODE_START, 1)
        marker = self._segment.span(name, self._span_context, start_time=span.started, place={})
        attributes = span.encoded.copy()
        attributes.pop(a.SPAN_TYPE, None)  # a marker has a type of its own
        marker.encoded.update(attributes)
        return marker


def _links(ambient: Span | None, group: object, group_id: str | None) -> list[Link]:
    """
    Return links to the current span, and to the group if its handle was given: only that knows its ids.

    The current span is no parent, which could be unsampled, and the episode with it.
    """
    context = None if ambient is None else ambient.get_span_context()
    links = [Link(context)] if context is not None and context.is_valid else []
    span = group._span if group_id and isinstance(group, Handle) else None
    if span is not None and span.name == names.GROUP:
        links.append(Link(span.identity, {a.GROUP_ID: group_id}))
    return links


def template(host: RunRecorder, facts: Mapping[str, Any], faults: Faults) -> Template:
    """Return a template of these facts, as `mttp.Episode` names them."""
    attributes = codec.identity({}, faults, facts)
    _hide_secrets(host, attributes)
    return Template(attributes, faults)


def _identity(
    segment: Segment, index: int, facts: Mapping[str, Any], shared: Mapping[str, Any], faults: Faults
) -> dict[str, Any]:
    """Return the attributes of an episode's facts; `index` is its number in the session, the default."""
    attributes = {**shared, **segment.identity, a.EPISODE_INDEX: index, a.EPISODE_TIMING: "live"}
    if facts:
        attributes = codec.identity(attributes, faults, facts)
        if facts.get("env_kwargs") is not None:
            _hide_secrets(segment.host, attributes)
    policy = current().get(POLICY_KEY)
    if policy is not None:
        attributes |= evals.missing_policy(attributes, cast("dict[str, Any]", policy))
    return attributes


def _hide_secrets(host: RunRecorder, attributes: dict[str, Any]) -> None:
    """Redact secrets in an environment's arguments, and name them in the omissions."""
    document, omissions = attributes.get(a.ENV_KWARGS), list[str]()
    if document is not None:
        attributes[a.ENV_KWARGS] = host.origin.secrets.document(a.ENV_KWARGS, document, omissions)
    if omissions:
        attributes[a.OMISSIONS] = omissions


@functools.cache
def inert() -> OpenEpisode:
    """Return the inert episode, which records nothing."""
    return OpenEpisode(None)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise TypeError("the inputs of an open episode are read-only; set_inputs(name=value) records one")


class _ReadOnlyDict(dict[str, Any]):
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, ({**self},)  # copies may change


class _ReadOnlyList(list[Any]):
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([*self],)


def read_only(value: Any) -> Any:
    """Return decoded JSON whose mappings and lists, at any depth, raise TypeError at a change."""
    if isinstance(value, dict):
        return _ReadOnlyDict((name, read_only(member)) for name, member in value.items())
    return _ReadOnlyList(map(read_only, value)) if isinstance(value, list) else value
