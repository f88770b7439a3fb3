"""One episode: its conversation first, then what graded it, its group, its course and its facts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from mttp.model.chat import messages, text_of
from mttp.model.episodes import Agent, Episode, Group
from mttp.model.evaluations import TaskResult
from mttp.pages.blocks import Block, column, fact, facts, note, section, table
from mttp.pages.conversation import Transcript
from mttp.pages.course import course, timeline
from mttp.pages.messages import contents
from mttp.pages.recorded_facts import annotation_words, identity, recorded_facts, troubles
from mttp.pages.rewards import reward_block
from mttp.pages.tokens import Pieces
from mttp.pages.words import count, duration, moment, number

__all__ = ["page", "title"]

_BAD: Final = ("error", "aborted", "failure", "unfinished")


def title(episode: Episode) -> str:
    """Return environment, task, status and outcome."""
    what = " ".join(filter(None, (episode.env, episode.task))) or "episode"
    return f"{what}: {episode.status}, {episode.outcome}"


def page(
    episode: Episode,
    *,
    group: Group | None = None,
    problems: Sequence[str] = (),
    pieces: Pieces | None = None,
    limit: int | None = None,
) -> Iterator[Block | None]:
    """
    Yield an episode: the first `limit` steps, then rewards, group, curves, facts and annotations.

    `group` is the episode's group, `problems` are those of its trace, `pieces` gives the texts of token ids.
    Of an episode without texts, the curves come first.
    """
    yield facts(_headline(episode))
    yield from (
        note(text, state)
        for state, text in (*_warnings(episode), *(("bad", problem) for problem in problems))
    )
    is_read = any(text_of(step.action) or messages(step.observation) for step in episode.steps)
    over_steps = section("course", "Over the steps", course(episode))
    yield None if is_read else over_steps
    yield section("steps", "Conversation" if is_read else "Steps", _steps(episode, pieces, limit))
    late = [episode.reward] if episode.reward.status != "missing" else []
    yield section("reward", "Reward", map(reward_block, episode.rewards or late))
    for agent in episode.agents:
        yield section(f"agent-{agent.id}", f"Agent {agent.id}", _agent(agent))
    yield None if group is None else section("group", f"Group {group.id}", _group(group, episode))
    yield over_steps if is_read else None
    yield section("facts", "Facts", [facts(_facts(episode)), *contents("inputs", episode.inputs)])
    notes = [annotation_words(annotation, episode) for annotation in episode.annotations]
    yield section("annotations", "Annotations", map(note, (*notes, *map(_result, episode.results))))
    yield section("timeline", "Timeline", [timeline(episode)])


def _headline(episode: Episode) -> list[Block]:
    ends = ", ".join(name for name in ("terminated", "truncated") if getattr(episode, name))
    outcome = {"success": "good", "failure": "bad"}.get(episode.outcome, "plain")
    reward = episode.reward
    rewarded = {} if reward.status == "ok" else {"detail": reward.status, "state": "warn"}
    rewarded |= {"state": "bad"} if reward.status == "error" else {}
    return [
        fact("return", episode.return_),
        *([fact("reward", reward.value, **rewarded)] if reward.status != "missing" else []),
        fact("outcome", episode.outcome, state=outcome),
        fact("status", episode.status, detail=ends, state="bad" if episode.status in _BAD else "plain"),
        fact("steps", episode.length),
        fact("duration", duration(episode.duration)),
    ]


def _warnings(episode: Episode) -> Iterator[tuple[str, str]]:
    """Yield state and text of errors, faults, omissions and of what is missing."""
    yield from troubles(episode)
    if episode.status == "unfinished":
        yield "bad", "the recording of the episode is unfinished"
    if not episode.complete:
        yield "bad", "spans of the episode are missing"
    for agent in episode.agents:
        yield from ((state, f"agent {agent.id}: {text}") for state, text in troubles(agent))


def _steps(episode: Episode, pieces: Pieces | None, limit: int | None) -> Iterator[Block]:
    transcript = Transcript(episode, pieces)
    for place, step in enumerate(episode.steps[:limit]):
        yield transcript.step(step, place)
    more = len(episode.steps) - len(episode.steps[:limit])
    if more:
        yield note(f"… and {count(more, 'more step')}; --limit 0 shows all")
    yield from contents("final observation", episode.final_observation)


def _agent(agent: Agent) -> Iterator[Block | None]:
    ends = [name for name in ("terminated", "truncated") if getattr(agent, name)]
    yield note(", ".join([*ends, f"return {number(agent.return_)}", count(agent.length, "step")]))
    yield facts([fact(name, value) for name, value in recorded_facts(agent, maps=True).items()])
    yield from map(reward_block, agent.rewards)


def _facts(episode: Episode) -> list[Block]:
    known = {"episode": episode.trace_id, "started": moment(episode.start_time)} | identity(episode)
    known |= {name: value for name, value in recorded_facts(episode, maps=True).items() if name not in known}
    return [fact(name, value) for name, value in known.items()]


def _result(result: TaskResult) -> str:
    """Return the result of the episode in an evaluation."""
    named = {name: getattr(result, name) for name in ("score", "baseline_score", "delta")}
    words = [
        f"{name.replace('_', ' ')} {number(value)}" for name, value in named.items() if value is not None
    ]
    words += [] if result.passed is None else ["passed" if result.passed else "failed"]
    words += [] if result.error is None else [result.error]
    sample = f", sample {result.sample}" if result.sample else ""
    return f"result of task {result.task}{sample}  {', '.join([result.outcome.replace('_', ' '), *words])}"


def _group(group: Group, episode: Episode) -> Iterator[Block | None]:
    size = len(group.episodes)
    rewards, advantages = (
        [None if math.isnan(value) else value for value in (*values, *[math.nan] * (size - len(values)))]
        for values in (group.rewards, group.advantages)
    )
    rows: list[tuple[Any, ...]] = [
        (trace_id, "this one" if trace_id == episode.trace_id else "", reward, advantage)
        for trace_id, reward, advantage in zip(group.episodes, rewards, advantages, strict=False)
    ]
    columns = [
        *(column("member", kind="episode"), column("shown", "here", "state")),
        *(column(name, kind="bars") for name in ("reward", "advantage")),
    ]
    yield table("", columns, rows, _group_note(group, episode))


def _group_note(group: Group, episode: Episode) -> str:
    """Return how the advantages came about, in a sentence."""
    if group.reward_std == 0 and group.valid_count > 1:
        return "All rewards are equal, so that the group gives no advantage."
    words = [f"{group.valid_count} of {len(group.episodes)} members have a valid reward"]
    if group.reward_mean is not None:
        words.append(f"mean {group.reward_mean:.6g}")
    if group.reward_std is not None:
        words.append(f"standard deviation {group.reward_std:.6g} (ddof {group.ddof})")
    if group.normalization:
        words.append(f"advantages by {group.normalization}")
    if episode.advantage is not None:
        words.append(f"this episode has {episode.advantage:.6g}")
    return ", ".join(words) + "."
