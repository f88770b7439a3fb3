"""The figures of episodes, groups, updates and annotations as values, as `summarize` has them of spans."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from mttp.codec import outline
from mttp.episodes import Annotation, Episode, Group, Update
from mttp.gradings import Grading, gradings, label
from mttp.reading.aggregate import Aggregate, Row

__all__ = ["counted"]


def counted(
    episodes: Iterable[Episode],
    *,
    groups: Sequence[Group] = (),
    updates: Sequence[Update] = (),
    annotations: Sequence[Annotation] = (),
) -> Aggregate:
    """The figures of these values."""
    aggregate = Aggregate()
    for episode in episodes:
        _add(aggregate, episode)
    for group in groups:
        aggregate.of(group.run_id).groups += 1
        _add_faults(aggregate, group.run_id, group.faults)
    for update in updates:
        order = update.start_time or 0, update.span_id
        aggregate.of(update.run_id).update(
            outline.Updated(order, loss=update.loss, kl=update.kl, entropy=update.entropy)
        )
        _add_faults(aggregate, update.run_id, update.faults)
    for annotation in annotations:
        run = aggregate.of(annotation.run_id)
        run.annotations += 1
        _add_faults(aggregate, annotation.run_id, annotation.faults)
        if annotation.reward is not None:
            run.grade(gradings(annotation.reward, scope="late"))
    return aggregate


def _add_faults(aggregate: Aggregate, run: str, faults: Iterable[str]) -> None:
    kinds = Counter(outline.fault_kind(fault) for fault in faults)
    aggregate.of(run).counts.merge((0, 0), (0, 0), kinds.items())


def _add(aggregate: Aggregate, episode: Episode) -> None:
    run = aggregate.of(episode.run_id)
    reward = episode.rewards and episode.reward
    aggregate.add(
        Row(
            run=episode.run_id,
            trace_id=episode.trace_id,
            start_time=episode.start_time or 0,
            duration=math.nan if episode.duration is None else episode.duration,
            return_=math.nan if episode.return_ is None else episode.return_,
            length=episode.length,
            status=episode.status,
            outcome=episode.outcome,
            env=episode.env,
            spec=label(reward) if reward and reward.spec is not None and episode.end_time else "",
            task=episode.task or "",
        )
    )
    if episode.end_time is not None:
        run.pay(episode.cost_usd)
    run.grade(_gradings(episode))
    tokens = [step.tokens for step in episode.steps if step.tokens is not None]
    calls = [call for step in episode.steps for call in step.calls]
    run.counts.merge(
        (sum(block.prompt_count or 0 for block in tokens), sum(block.count or 0 for block in tokens)),
        (sum(call.input_tokens or 0 for call in calls), sum(call.output_tokens or 0 for call in calls)),
        (),
    )
    stated = [
        episode.faults,
        *(agent.faults for agent in episode.agents),
        *(step.faults for step in episode.steps),
    ]
    for faults in stated:
        _add_faults(aggregate, episode.run_id, faults)
    left_out = [
        episode.omissions,
        *(agent.omissions for agent in episode.agents),
        *(step.omissions for step in episode.steps),
    ]
    names = Counter(outline.omitted_name(said) for omissions in left_out for said in omissions)
    run.counts.merge((0, 0), (0, 0), (), names.items())


def _gradings(episode: Episode) -> Iterator[Grading]:
    """Those of the last scoring of the episode, of each agent and of each step."""
    if episode.rewards:
        yield from gradings(episode.reward)
    for agent in episode.agents:
        if agent.rewards:
            yield from gradings(agent.reward, scope="agent")
    for step in episode.steps:
        if step.rewards:
            yield from gradings(step.rewards[-1], scope="step")
