"""Aggregation of values: the figures that `summarize` and studies compute from spans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mttp.codec import summary_fields
from mttp.codec.calls import EXECUTE_TOOL
from mttp.codec.plain import to_json
from mttp.model.counting import is_return_counted
from mttp.model.episodes import Agent, Annotation, Episode, Group, Step, Update
from mttp.model.gradings import Grading, gradings, label
from mttp.reading.aggregate import Aggregate
from mttp.reading.episode_figures import (
    SummaryFigures,
    known,
    labels,
    mean_known,
    reward_figures,
    summed_scores,
)
from mttp.reading.episode_summary import Counts, EpisodeRow, EpisodeSummary

__all__ = ["aggregate_values", "episode_figures"]


def aggregate_values(
    episodes: Iterable[Episode],
    *,
    groups: Sequence[Group] = (),
    updates: Sequence[Update] = (),
    annotations: Sequence[Annotation] = (),
) -> Aggregate:
    """The figures of these values, equal to those of their spans."""
    aggregate = Aggregate()
    for episode in episodes:
        aggregate.add(_episode_summary(episode))
    for group in groups:
        aggregate.of(group.run_id).groups += 1
        _add_faults(aggregate, group.run_id, group.faults)
    for update in updates:
        order = update.start_time or 0, update.span_id
        aggregate.of(update.run_id).add_update(
            summary_fields.Updated(order, loss=update.loss, kl=update.kl, entropy=update.entropy)
        )
        _add_faults(aggregate, update.run_id, update.faults)
    for annotation in annotations:
        run = aggregate.of(annotation.run_id)
        run.annotations += 1
        run.add_verdict(annotation)
        _add_faults(aggregate, annotation.run_id, annotation.faults)
        if annotation.reward is not None:
            run.add_gradings(gradings(annotation.reward, scope="late", episode=annotation.episode))
    return aggregate


def episode_figures(episode: Episode) -> SummaryFigures:
    """The figures of an episode for a study, equal to those of its spans."""
    blocks = [step.tokens for step in episode.steps if step.tokens is not None]
    calls = [
        call
        for step in episode.steps
        for call in step.calls
        if call.operation != EXECUTE_TOOL and call.start_time is not None and call.end_time is not None
    ]
    durations = [call.end_time - call.start_time for call in calls]  # type: ignore[operator]  # not None
    return SummaryFigures(
        trace_id=episode.trace_id,
        run=episode.run_id,
        start_time=episode.start_time or 0,
        env=episode.env,
        task=episode.task,
        seed=None if episode.seed is None else str(episode.seed),
        split=episode.split,
        slices=tuple(episode.slices),
        group=episode.group,
        policy_version=episode.policy_version_start,
        status=episode.status,
        outcome=episode.outcome,
        stop_reason=episode.stop_reason,
        truncated=episode.truncated,
        return_=known(episode.return_),
        **reward_figures(episode.reward),
        step_scores=summed_scores([step.rewards[-1] for step in episode.steps if step.rewards]),
        metrics=episode.metrics,
        metadata=labels(episode.metadata),
        length=episode.length,
        prompt_tokens=sum(block.prompt_count or 0 for block in blocks) if blocks else None,
        completion_tokens=sum(block.count or 0 for block in blocks) if blocks else None,
        call_count=len(durations),
        call_nanoseconds=sum(durations),
        duration=episode.duration,
        cost=known(episode.cost_usd),
        inputs_json=None if episode.inputs is None else to_json(episode.inputs, []),
        env_version=episode.env_version,
        env_kwargs=to_json(episode.env_kwargs, []) if episode.env_kwargs else None,
        env_spaces=to_json(episode.env_spaces, []) if episode.env_spaces else None,
        env_wrappers=tuple(episode.env_wrappers),
        time_to_first_token=mean_known(call.time_to_first_chunk for call in calls),
        share=episode.sampling_share,
    )


def _add_faults(aggregate: Aggregate, run: str, faults: Iterable[str]) -> None:
    aggregate.of(run).counts.merge(Counts(faults=Counter(map(summary_fields.fault_kind, faults))))


def _episode_summary(episode: Episode) -> EpisodeSummary:
    reward = episode.rewards and episode.reward
    is_finished = episode.end_time is not None
    return EpisodeSummary(
        row=EpisodeRow(
            run=episode.run_id,
            trace_id=episode.trace_id,
            start_time=episode.start_time or 0,
            duration=math.nan if episode.duration is None else episode.duration,
            return_=math.nan if episode.return_ is None else episode.return_,
            length=episode.length,
            status=episode.status,
            outcome=episode.outcome,
            env=episode.env,
            spec=label(reward) if reward and reward.spec is not None and is_finished else "",
            task=episode.task or "",
            split=episode.split or "",
            stop_reason=episode.stop_reason or "",
            is_return_counted=not reward or is_return_counted(episode.return_, reward.value, reward.status),
            advantage=math.nan if episode.advantage is None else episode.advantage,
            share=math.nan if episode.sampling_share is None else episode.sampling_share,
        ),
        counts=_counts(episode),
        gradings=tuple(_gradings(episode)),
        undecided=None,
        cost_usd=episode.cost_usd if is_finished else None,
        invalid_step_rewards=sum(_is_invalid(step) for step in episode.steps),
    )


def _is_invalid(step: Step) -> bool:
    return step.reward is None and step.reward_status == "error" and not step.rewards


def _counts(episode: Episode) -> Counts:
    tokens = [step.tokens for step in episode.steps if step.tokens is not None]
    calls = [call for step in episode.steps for call in step.calls]
    values: tuple[Episode | Agent | Step, ...] = (episode, *episode.agents, *episode.steps)
    return Counts(
        [sum(block.prompt_count or 0 for block in tokens), sum(block.count or 0 for block in tokens)],
        [sum(call.input_tokens or 0 for call in calls), sum(call.output_tokens or 0 for call in calls)],
        Counter(summary_fields.fault_kind(fault) for value in values for fault in value.faults),
        Counter(summary_fields.omitted_name(omission) for value in values for omission in value.omissions),
    )


def _gradings(episode: Episode) -> Iterator[Grading]:
    """The gradings of the last scoring of the episode, of each agent and of each step."""
    if episode.rewards:
        yield from gradings(episode.reward, episode=episode.trace_id)
    for agent in episode.agents:
        if agent.rewards:
            yield from gradings(agent.reward, scope="agent", episode=episode.trace_id)
    for step in episode.steps:
        if step.rewards:
            yield from gradings(step.rewards[-1], scope="step", episode=episode.trace_id)
