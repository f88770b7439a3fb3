"""Episodes that are values as spans, from which the table `episodes` is computed as from those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mttp.codec import components, fields, rewards, templates
from mttp.codec import episodes as episode_codec
from mttp.codec.plain import plain, text
from mttp.model.declarations import keys
from mttp.model.episodes import Call, Episode, Reward, Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.values import SpanType

__all__ = ["EpisodeSpans", "trace_of"]


def trace_of(place: int) -> str:
    """Return the trace id of the episode at a place: those of values need not be distinct."""
    return f"{place + 1:032x}"


@dataclass(frozen=True)
class EpisodeSpans:
    """
    A source of the spans of episodes, with what the table `episodes` needs of them.

    Later facts are part of the values already. A value may lack the times that a span has.
    """

    episodes: Sequence[Episode]

    def records(self) -> Iterator[SpanRecord]:
        """Yield the spans of each episode."""
        for place, episode in enumerate(self.episodes):
            yield from _spans(episode, trace_of(place))


def _spans(episode: Episode, trace_id: str) -> Iterator[SpanRecord]:
    ours = {a.RUN_ID: text(episode.run_id, []), a.EPISODE_ID: trace_id}
    number = 0

    def span(
        name: str, attributes: dict[str, Any], *, parent: str = "", of: Call | None = None
    ) -> SpanRecord:
        nonlocal number
        number += 1
        start, end = (episode.start_time or 0,) * 2 if of is None else (of.start_time, of.end_time)
        return SpanRecord(
            trace_id=trace_id,
            span_id=f"{number:016x}",
            parent_id=parent,
            name=name,
            start_time=start or 0,
            end_time=end or 0,
            attributes=attributes | ours,
        )

    root = span(names.EPISODE, _root(episode))
    yield root
    if episode.reward != Reward():
        yield span(names.REWARD, _scoring(episode.reward), parent=root.span_id)
    for index, step in enumerate(episode.steps):
        calls = [call for call in step.calls if call.start_time is not None and call.end_time is not None]
        if not (step.tokens or step.rewards or calls):
            continue
        played = span(names.STEP, _step(step, index), parent=root.span_id)
        yield played
        for reward in step.rewards[-1:]:
            yield span(names.REWARD, _scoring(reward), parent=played.span_id)
        for call in calls:
            yield span(SpanType.CALL, _call(call), parent=played.span_id, of=call)


def _root(episode: Episode) -> dict[str, Any]:
    facts = {name: getattr(episode, name) for name in keys(Episode)}
    return {
        **episode_codec.identity({}, [], facts),
        **templates.encode(a.METADATA, {name: plain(value, []) for name, value in episode.metadata.items()}),
        **templates.encode(a.METRIC, {name: plain(value, []) for name, value in episode.metrics.items()}),
    }


def _step(step: Step, index: int) -> dict[str, Any]:
    if step.tokens is None:
        return {a.STEP_INDEX: index}
    counts = {a.TOKEN_PROMPT_COUNT: step.tokens.prompt_count or 0, a.TOKEN_COUNT: step.tokens.count or 0}
    return {a.STEP_INDEX: index} | counts


def _scoring(reward: Reward) -> dict[str, Any]:
    """Return the attributes of a scoring, with all of its components, since it has no grades beside it."""
    return {
        a.REWARD_STATUS: text(reward.status, []),
        **fields.encode_value(reward, []),
        **rewards.encode_spec(reward.spec, []),
        **components.encode(a.REWARD_SCORE, reward.components),
        **components.encode(a.REWARD_SCORE_STATUS, reward.component_statuses),
        **components.names([*reward.components, *reward.component_statuses]),
    }


def _call(call: Call) -> dict[str, Any]:
    first = (
        {}
        if call.time_to_first_chunk is None
        else {a.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: call.time_to_first_chunk}
    )
    return {a.GEN_AI_OPERATION_NAME: text(call.operation, [])} | first
