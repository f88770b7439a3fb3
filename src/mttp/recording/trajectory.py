"""`Trajectory`: steps in order, and their rewards; the base of episodes and agents."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType, TracebackType
from typing import Any, cast

from opentelemetry.context import Context
from typing_extensions import Self, Unpack

from mttp.codec import blocks, calls, rewards
from mttp.codec.fields import flag, integer
from mttp.codec.plain import Faults, scalar_text
from mttp.codec.segments import states_total, total
from mttp.codec.transitions import Row, RowSchema
from mttp.model.counters import take
from mttp.model.episodes import Reward
from mttp.model.interrupts import raise_interrupt
from mttp.otlp.spans import SPANS, RecordingSpan
from mttp.otlp.spans.guarding import quiet, quiet_but
from mttp.otlp.step_batch import StepBatch
from mttp.recording.arguments import SCORE_FACTS, RewardValue, ScoreFacts, check_names
from mttp.recording.conversation import Conversation
from mttp.recording.handle import (
    SPAN_KEY,
    STEP_KEY,
    TRAJECTORY_KEY,
    ScoredHandle,
    current,
    document_of,
    settled,
)
from mttp.recording.open_call import OpenCall, no_call
from mttp.recording.open_step import OpenStep
from mttp.recording.segment import Segment
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["NO_END_FLAGS", "StepBuffer", "Trajectory"]

NO_END_FLAGS: Mapping[str, bool | None] = MappingProxyType({"terminated": None, "truncated": None})
"""The flags of the end before any is stated."""

_MAX_SCORE_KEYS = 64
"""The maximum number of columns for reward components, since their names may change at each step."""


class StepBuffer:
    """
    Collects the steps of one trajectory that have no handles; append a row to `rows` when a step ends.

    The first step starts at `start_time`, each other one when the previous one ends.
    After the first row call `schedule`, after many rows `write`.
    One thread may append while another writes.
    """

    __slots__ = ("_owner", "_writing", "rows", "schema", "start_time")

    def __init__(self, owner: Trajectory, schema: RowSchema, start_time: int) -> None:
        self._owner: Trajectory | None = owner
        self._writing = threading.Lock()
        self.schema = schema
        self.rows: list[Row] = []
        self.start_time = start_time

    def schedule(self) -> None:
        """Have the background thread write the rows."""
        if self._owner is not None:
            self._owner._segment.host.add_buffer(self)

    def write(self, *, wait: bool = True) -> None:
        """Write the rows so far; without `wait`, return at once if another thread is writing."""
        owner = self._owner
        if owner is None or not self.rows or not self._writing.acquire(blocking=wait):
            return
        try:
            while rows := self.rows[: blocks.MAX_STEPS]:
                start = self.start_time
                batch = StepBatch(owner._segment, owner._span_context, owner._place, rows, self.schema, start)
                rewards = batch.rewards()
                # Not before, so that an exception of a signal handler leaves the rows for the next write.
                del self.rows[: len(rows)]
                self.start_time = rows[-1][-1]
                flags = {"terminated": bool(rows[-1][3]), "truncated": bool(rows[-1][4])}
                batch.first_index = owner._add_steps(len(rows), *rewards, flags)
                owner._segment.ended(batch)
        except Exception as error:
            raise_interrupt(error)
            del self.rows[: blocks.MAX_STEPS]
            owner._segment.fault("internal_error", f"steps: {error!r}")
        finally:
            self._writing.release()
        if self.rows:  # appended meanwhile
            self.schedule()

    def close(self) -> None:
        """Write the remaining rows and drop the owner, which must not wait for the garbage collector."""
        self.write()
        self._owner = None


class Trajectory(ScoredHandle):
    """A sequence of steps with a reward of its own, and with the sum of the rewards so far."""

    # Rare attributes have defaults on the class, because episodes are created in the training loop.
    _step_attributes: dict[str, Any] | None = None
    _step_buffer: StepBuffer | None = None
    _score_keys: frozenset[str] = frozenset()
    """The attributes of reward components that its steps have."""
    _total: Reward | None = None
    """The scoring that states its total reward."""
    _stated_return: float | None = None
    """The total that an earlier recording states."""
    _invalid_steps = 0
    """The number of steps with an invalid reward."""
    _is_step_not_ok = False
    """Whether a step has a numeric reward with a status other than ok."""
    _lazy_conversation: Conversation | None = None
    _late_calls: Sequence[OpenCall] = ()
    """Calls within steps that had ended."""
    _end_flags = NO_END_FLAGS
    _block_context: Context | None = None
    """The context of its block, until the block ends."""
    _place: Mapping[str, Any] = MappingProxyType({})
    """Attributes of its spans besides the episode's identity: the agent's id."""

    def __init__(
        self,
        segment: Segment | None,
        span: RecordingSpan | None = None,
        *,
        place: Mapping[str, Any] | None = None,
    ) -> None:
        self._host = None if segment is None else segment.host
        self._span = span
        self._attached = None
        self._segment: Segment = segment  # type: ignore[assignment]  # an inert handle has none
        if place is not None:
            self._place = place
        self._lock = threading.RLock()
        self._open_steps: set[OpenStep] = set()
        self._step_rewards: list[float] = []
        self._next_index = self._steps = 0
        self._closing = False

    @property
    def _episode(self) -> Trajectory:
        """The episode; for an agent, the episode that it is part of."""
        raise NotImplementedError

    @property
    def _outer_current(self) -> object:
        """What is current in its place once it has ended."""
        return self._outer

    def _as_context(self) -> Context:
        outer = settled(current())
        self._remember_outer(outer.get(TRAJECTORY_KEY))
        context: Any = outer.copy()
        context[SPAN_KEY], context[TRAJECTORY_KEY], context[STEP_KEY] = self._span, self, None
        self._block_context = context
        return context  # type: ignore[no-any-return]  # OpenTelemetry only reads it

    @quiet
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._block_context = None  # no reference cycle: an episode must not wait for the garbage collector
        super().__exit__(kind, error, trace)

    @property
    def _conversation(self) -> Conversation:
        """The messages that its model calls have recorded."""
        with self._lock:
            if self._lazy_conversation is None:
                self._lazy_conversation = Conversation()
            return self._lazy_conversation

    # Properties that are known so far.

    def _updated(self) -> Self:
        """Add buffered steps and steps whose spans have ended, and return self."""
        for step in tuple(self._open_steps):
            if step.ended:
                step._finish()
        if self._step_buffer is not None:
            self._step_buffer.write()
        return self

    @property
    def terminated(self) -> bool | None:
        """Whether the task itself ended; None if that is not stated."""
        return self._updated()._end_flags["terminated"]

    @property
    def truncated(self) -> bool | None:
        """Whether a limit ended it; None if that is not stated."""
        return self._updated()._end_flags["truncated"]

    @property
    def length(self) -> int:
        """The number of steps so far."""
        return self._updated()._next_index

    @property
    def step_reward_sum(self) -> float | None:
        """The sum of the step rewards that are numbers; None if no ended step has one."""
        return self._updated()._returns()[1]

    @property
    def _is_valid(self) -> bool:
        """Whether the total, or else each step reward, has the status ok; False for a floor reward."""
        self._updated()
        return not self._is_step_not_ok if self._total is None else self._total.status == "ok"

    @property
    def return_basis(self) -> str | None:
        """episode if a total was stated, steps if only step rewards were, None without rewards."""
        return self._updated()._returns()[2]

    @property
    def return_(self) -> float | None:
        """The return so far; None if it is not known."""
        return self._updated()._returns()[0]

    def _returns(self) -> tuple[float | None, float | None, str | None]:
        """Return the return, the sum of the step rewards, and the return's basis."""
        of_steps = total(self._step_rewards)
        if self._stated_return is not None:
            return self._stated_return, of_steps, "episode"
        if self._total is not None:
            return self._total.value, of_steps, "episode"
        is_rewarded = bool(self._step_rewards or self._invalid_steps)
        return None if self._invalid_steps else of_steps, of_steps, "steps" if is_rewarded else None

    # Called by the training loop.

    def step(self, *, start_time: int | None = None, index: int | None = None) -> OpenStep:
        """
        Start the next step.

        `start_time` is in nanoseconds since the Unix epoch, by default now.
        `index` is a whole number from 0 to 2**63 - 1, by default one more than the last; any other value is
        the fault index_invalid, and the default is used.
        """
        try:
            step = self._next(start_time, index) if self._accepts("step") else None
            if step is not None:
                self._open_steps.add(step)
                if self._closing and step in self._open_steps:  # another thread has closed it meanwhile
                    step._finish()
                return step
        except Exception as error:
            raise_interrupt(error)
            self._failed("step", error)
        return OpenStep(self, self._host, None)

    def _next(self, start_time: int | None, index: int | None) -> OpenStep | None:
        """Start the next step; returns None once no more steps are accepted."""
        if self._step_buffer is not None:
            self._step_buffer.write()
        requested_index = None if index is None else _index(index)
        with self._lock:
            if self._closing:
                return None
            position = self._next_index if requested_index is None else requested_index
            # No call in between, so that a signal handler sees both or neither.
            self._next_index = position + 1 if position >= self._next_index else self._next_index
            self._steps += 1
        step = self._begin(position, start_time)
        if requested_index is None and index is not None:
            detail = f"{scalar_text(index):.80}; the step's index is {position}"
            cast(RecordingSpan, step._span).fault("index_invalid", detail)
        return step

    def _begin(self, index: int, start_time: int | None) -> OpenStep:
        segment = self._segment
        if self._step_attributes is None:
            self._step_attributes = {**segment.identity, **self._place}
        next_id = segment.host.next_step_id  # a local first: Python calls an instance attribute more slowly
        attributes = self._step_attributes.copy()
        attributes[a.STEP_INDEX] = index
        span = RecordingSpan(
            names.STEP,
            attributes,
            segment,
            self._own_context or self._span_context,
            span_id=next_id(),
            start_time=start_time,
            above=self._span,
        )
        return OpenStep(self, segment.host, span, index)

    @quiet_but(no_call)
    def tool_call(self, name: str, *, arguments: object = None, id: str | None = None) -> OpenCall:
        """
        Start a call of a tool, as `OpenStep.tool_call` does, in the step of the last model request.

        In the open step, if there is one; without any request, in a step of its own.
        """
        if not self._accepts("tool_call"):
            return no_call()
        step = self._turn()
        if not step.ended:
            return step.tool_call(name, arguments=arguments, id=id)
        facts = {"name": name, "arguments": arguments, "id": id}
        late = OpenCall._open(self._host, step._call_span, calls.EXECUTE_TOOL, facts)
        self._late_calls = [*self._late_calls, late]
        return late

    def _turn(self) -> OpenStep:
        """Return the step to which a tool call belongs."""
        here = current().get(STEP_KEY)
        if isinstance(here, OpenStep) and here._owner is self and not here.ended:
            return here
        step = max(self._open_steps, key=lambda step: step.index, default=self._conversation.step)
        if step is None:
            step = self._conversation.step = self.step()
            step.end()
        return step

    @quiet
    def reward(self, value: RewardValue = rewards.COMPUTED, **scoring: Unpack[ScoreFacts]) -> None:
        """
        Record the reward of the whole trajectory, and its components; `ScoreFacts` lists the other arguments.

        `value` is a number; None means that it is not known (status missing, or `status`). A value that is
        not a finite number has the status error, is kept as text, and is never zero.
        Without `value` the total is the weighted sum of the components, with weight 1 each without weights.
        It is missing if a component has no valid value, or no weight while others have one.
        The result of a reward spec, or an `mttp.Reward`, is a whole scoring.
        A value that differs from its components' weighted sum is recorded unchanged, with a fault.
        """
        check_names("reward", scoring, SCORE_FACTS)
        if not self._accepts("reward"):
            return
        faults: Faults = []
        reward = rewards.make(value, faults, **scoring)
        self._score(self._as_latest(reward), faults, document_of(value))

    def _score(self, reward: Reward, faults: Faults, document: str = "") -> None:
        """
        Set the reward, and record its scoring unless it was recorded when a reward spec computed it.

        A missing or abstained one states no total.
        """
        self._total = reward if states_total(reward) else None
        span = cast(RecordingSpan, self._span)
        if reward.span_id and reward.span_id == self._scoring:
            self._repeat_reward(rewards.encode(reward, []))
        else:
            scoring = self._segment.score(span, self._span_context, reward, faults, place=self._place)
            self._remember_scoring(scoring, reward, document)
            self._repeat_reward(scoring.encoded)

    def _repeat_reward(self, scoring: Mapping[str, Any]) -> None:
        """Repeat a scoring's scalars on its own span, where samplers and trace queries look for them."""
        if self._is_remote:
            return
        span = cast(RecordingSpan, self._span)
        span.forget(rewards.KEYS)
        span.encoded.update({key: value for key, value in scoring.items() if key in rewards.KEYS})

    def _step_ended(self, step: OpenStep) -> bool:
        """Add the reward and flags of an ended step; returns False if another thread has done so."""
        try:
            self._open_steps.remove(step)
        except KeyError:
            return False
        if step._reward is not None:
            self._step_rewards.append(step._reward)
            self._is_step_not_ok |= step._invalid
        else:
            self._invalid_steps += step._invalid
        if step._flags:
            with self._lock:
                self._end_flags = {**self._end_flags, **step._flags}
        return True

    def _scores(self, value: object, components: Mapping[str, float]) -> Mapping[str, Any] | None:
        """Return the attributes of a step's reward components; None if they need a scoring's span."""
        scores = rewards.scores(value, components)
        if scores is not None and not scores.keys() <= self._score_keys:
            keys = self._score_keys | scores.keys()
            if len(keys) > _MAX_SCORE_KEYS:
                return None
            self._score_keys = keys
        return scores

    def _open_buffer(self, schema: RowSchema, start_time: int) -> StepBuffer | None:
        """
        Return a buffer for steps without handles, of which the first started at `start_time`.

        Returns None if each step must be a span, or if there are span processors.
        """
        segment = self._segment
        if segment.steps == SPANS or segment.origin.observers is not None:
            return None
        self._updated()
        self._step_buffer = StepBuffer(self, schema, start_time)
        return self._step_buffer

    def _add_steps(
        self, count: int, step_rewards: Sequence[float], invalid: int, flags: Mapping[str, bool]
    ) -> int:
        """Add steps that had no handles, and return the index of the first."""
        with self._lock:
            first = self._next_index
            self._next_index += count
            self._steps += count
            self._step_rewards.extend(step_rewards)
            self._invalid_steps += invalid
            self._end_flags = {**self._end_flags, **flags}
        take(count, self._segment.host.stats.packed)
        return first

    def _finish_steps(
        self, *, terminated: bool | None = None, truncated: bool | None = None, end_time: int | None = None
    ) -> None:
        """End the open steps and write the buffered ones, and set the flags of the end."""
        if self._lazy_conversation is not None:
            self._lazy_conversation.step = None  # no reference cycle
            self._end_children(call for call in self._late_calls if not call.ended)
        if self._open_steps:
            steps: list[OpenStep] = sorted(self._open_steps, key=lambda step: step.index)
            self._end_children(steps, end_time=end_time)
        if self._step_buffer is not None:
            self._attempt(self._step_buffer.close)
        for name, argument in (("terminated", terminated), ("truncated", truncated)):
            if argument is not None:
                is_flag = type(argument) is bool
                value = argument if is_flag else cast(RecordingSpan, self._span).checked(flag, name, argument)
                self._end_flags = self._end_flags if value is None else {**self._end_flags, name: value}


def _index(value: object) -> int | None:
    """Return a stated index; None if it is no whole number from 0."""
    index = integer("index", value, [])
    return index if index is not None and index >= 0 else None
