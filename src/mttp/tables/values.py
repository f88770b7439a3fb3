"""Episodes that are values as spans, from which tables are computed as from those of a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from mttp.codec import components, content, fields, grades, groups, rewards, steps, templates, tokens, updates
from mttp.codec import episodes as episode_codec
from mttp.codec.plain import plain, text
from mttp.model.declarations import keys
from mttp.model.episodes import Call, Episode, Reward, Step
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.semconv.values import SpanType

if TYPE_CHECKING:
    from mttp.reading import Recording

__all__ = ["EpisodeSpans", "RecordingSpans", "trace_of"]


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


@dataclass(frozen=True)
class RecordingSpans:
    """
    A source of the spans of a recording that was made by hand, with what a diagnosis needs of them.

    Its episodes have distinct trace ids, by which its groups and updates name them.
    """

    recording: Recording

    def records(self) -> Iterator[SpanRecord]:
        """Yield the spans of its runs, episodes with late scores and results, groups and updates."""
        others = count(1 << 127)

        def span(name: str, value: Any, attributes: Mapping[str, Any]) -> SpanRecord:
            return SpanRecord(
                trace_id=f"{next(others):032x}",
                span_id=f"{1:016x}",
                name=name,
                start_time=value.start_time or 0,
                end_time=value.end_time or value.start_time or 0,
                attributes={a.RUN_ID: "", **attributes},
            )

        for run in self.recording.runs:
            yield span(names.RUN, run, fields.encode_value(run, []))
        for episode in self.recording.episodes:
            yield from _spans(episode, episode.trace_id, is_whole=True)
            about = {a.ANNOTATION_TARGET_TRACE_ID: episode.trace_id}
            for late in episode.annotations:
                if late.reward is not None and not late.on_step:
                    stated = {a.ANNOTATION_KIND: "score", a.ANNOTATION_REVISION: late.revision}
                    yield span(names.ANNOTATE, late, {**_scoring(late.reward), **stated, **about})
            for result in episode.results:
                yield span(names.EVAL_RESULT, result, fields.encode_value(result, []))
        for group in self.recording.groups:
            yield span(names.GROUP, group, groups.encode(group, []))
        for update in self.recording.updates:
            root = span(names.UPDATE, update, updates.encode(update, []))
            yield root
            for place, links in enumerate(updates.markers(update), 2):
                yield replace(
                    root,
                    span_id=f"{place:016x}",
                    parent_id=root.span_id,
                    name=names.UPDATE_LINKS,
                    attributes=links,
                )


def _spans(episode: Episode, trace_id: str, *, is_whole: bool = False) -> Iterator[SpanRecord]:
    """Yield the spans of an episode: with `is_whole` also content, tokens, grades and all of its scores."""
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
    earlier = [reward for reward in episode.rewards if reward != episode.reward] if is_whole else []
    for reward in [*earlier, *([] if episode.reward == Reward() else [episode.reward])]:
        scoring = span(names.REWARD, _scoring(reward), parent=root.span_id)
        yield scoring
        for grade in reward.grades if is_whole else ():
            yield span(names.GRADE, grades.encode(grade, []), parent=scoring.span_id)
    for agent in episode.agents if is_whole else ():
        yield span(names.AGENT, fields.encode_value(agent, []) | {a.AGENT_ID: agent.id}, parent=root.span_id)
    for index, step in enumerate(episode.steps):
        calls = [call for call in step.calls if call.start_time is not None and call.end_time is not None]
        if not (is_whole or step.tokens or step.rewards or calls):
            continue
        played = span(
            names.STEP, _step(step, index) | (_content(step) if is_whole else {}), parent=root.span_id
        )
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


def _content(step: Step) -> dict[str, Any]:
    """Return the attributes of observation, action, reward, tokens and metrics of a step."""
    attributes = {} if step.tokens is None else tokens.encode(step.tokens, [])
    attributes |= content.encode(content.OBSERVATION, step.observation, [], [])
    attributes |= content.encode(content.ACTION, step.action, [], [])
    attributes |= steps.reward(step.reward, step.reward_status, step.reward_raw)
    attributes |= {} if step.agent is None else {a.AGENT_ID: step.agent}
    return attributes | templates.encode(a.METRIC, step.metrics)


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
