"""A recording as detectors use it: rewards, quality and texts over training time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import ReadError, StudyError
from mttp.model.counting import is_counted
from mttp.model.episodes import Episode, Step, Update
from mttp.model.estimates import mean
from mttp.model.statistics.metrics import metric
from mttp.reading import Recording
from mttp.study.diagnosing.seeds import collapsed
from mttp.study.diagnosing.trends import FEWEST, TimeTrend, trend_of
from mttp.tables.figures import figures_of_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "EXAMPLES",
    "HELD_OUT",
    "RunEvidence",
    "completion_text",
    "evidence_of",
    "reward_of",
    "text_of",
]

Floats: TypeAlias = "NDArray[np.float64]"
Flags: TypeAlias = "NDArray[np.bool_]"

HELD_OUT = frozenset({"validation", "valid", "val", "dev", "test", "eval", "held_out", "held-out", "heldout"})
"""Splits that a policy is not trained on."""
_HELD_OUT_REWARD = "held_out"
"""The quality that is the reward of held-out episodes."""
LARGEST = 1e100
"""Larger numbers overflow when they are squared; they count as missing."""
EXAMPLES = 5
"""Example episodes of a finding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEvidence:
    """One run in order of start; arrays have one entry per episode, NaN where a number is missing."""

    recording: Recording
    episodes: tuple[Episode, ...]
    rewards: Floats
    """The reward of the whole episode, else the return, else the mean return of its agents."""
    quality: Floats | None
    """The measure that rewards are compared with; None where there is none."""
    quality_name: str | None
    quality_is_held_out: bool
    """Whether the quality is the reward of other, held-out episodes."""
    is_held_out: Flags
    """Whether the episode belongs to an evaluation or to a split that is not trained on."""
    is_counted: Flags
    """Whether the episode ended; others have no reward and no quality, and are not among `trained`."""
    phases: NDArray[np.int64]
    """Updates that began before the episode."""
    levels: Mapping[str, Floats]
    """The rewards of the last third of the trained episodes of each run of the source."""

    @property
    def times(self) -> Floats:
        """The position of each episode in order of start."""
        return np.arange(len(self.episodes), dtype=float)

    @cached_property
    def trained(self) -> NDArray[np.int64]:
        """Positions of the episodes that ended and are not held out."""
        return np.flatnonzero(~self.is_held_out & self.is_counted)

    @cached_property
    def attempted(self) -> NDArray[np.int64]:
        """Positions of the episodes that are not held out, also of those that failed."""
        return np.flatnonzero(~self.is_held_out)

    @cached_property
    def is_language(self) -> bool:
        """Whether the policy writes text."""
        return any(
            step.tokens is not None or text_of(step.action) is not None
            for at in self.trained
            for step in self.episodes[at].steps[:1]
        )

    @cached_property
    def has_prompts(self) -> bool:
        """Whether an episode's first observation is text."""
        return any(text_of(step.observation) for one in self.episodes for step in one.steps[:1])

    @cached_property
    def has_groups(self) -> bool:
        """Whether episodes are compared within groups."""
        return bool(self.recording.groups) or any(one.group is not None for one in self.episodes)

    @cached_property
    def has_graders(self) -> bool:
        """Whether something other than the environment's steps gives the rewards."""
        return any(one.reward.status != "missing" or one.rewards for one in self.episodes)

    @cached_property
    def components(self) -> dict[str, Floats]:
        """The scores of each component of the rewards by name."""
        names = sorted({name for at in self.trained for name in self.episodes[at].reward.components})
        return {name: component_scores(self.episodes, self.is_counted, name) for name in names}

    def update_series(self, name: str) -> Floats:
        """The finite values of a field of the updates, in order."""
        values = [getattr(update, name) for update in self.updates]
        return np.array([one for one in values if one is not None and math.isfinite(one)], dtype=float)

    @cached_property
    def updates(self) -> list[Update]:
        """The updates in order of start, of the policy that has most of them."""
        counts = Counter(update.policy for update in self.recording.updates)
        policy = max(counts, key=lambda name: counts[name], default=None)
        return [update for update in self.recording.updates if update.policy == policy]

    @cached_property
    def reward_trend(self) -> TimeTrend | None:
        """The trend of the rewards of training episodes."""
        return self.trend(self.rewards)

    @cached_property
    def quality_trend(self) -> TimeTrend | None:
        """The trend of the quality, of held-out episodes where it is theirs."""
        return None if self.quality is None else self.trend(self.quality, self.quality_positions)

    @cached_property
    def quality_positions(self) -> NDArray[np.int64]:
        """Positions of the episodes whose quality counts."""
        return np.arange(len(self.episodes)) if self.quality_is_held_out else self.trained

    def trend(self, values: Floats, positions: NDArray[np.int64] | None = None) -> TimeTrend | None:
        """The trend of values of all episodes at these positions, by default those trained on."""
        at = self.trained if positions is None else positions
        return trend_of(self.times[at], values[at], self.phases[at])

    def recent(self, share: float = 1 / 3) -> NDArray[np.int64]:
        """Positions of the last share of the training episodes."""
        return self.trained[len(self.trained) - math.ceil(len(self.trained) * share) :]

    def examples(self, positions: Iterable[int]) -> tuple[str, ...]:
        """Trace ids of the last episodes among `positions`."""
        return tuple(self.episodes[at].trace_id for at in [*positions][-EXAMPLES:])

    @cached_property
    def sampled_by(self) -> dict[int, list[int]]:
        """By update: for each episode it learned from, the update that made the policy that sampled it."""
        made = {
            update.policy_version_after: update.index
            for update in self.updates
            if update.policy_version_after is not None and update.index is not None
        }
        found: dict[int, list[int]] = {}
        for episode in self.episodes:
            index = episode.policy_update_index
            index = made.get(_version(episode) or "") if index is None else index
            for consumer in episode.consumed_by if index is not None else ():
                found.setdefault(consumer, []).append(index)  # type: ignore[arg-type]  # not None
        return found

    @cached_property
    def completion_lengths(self) -> Floats:
        """Completion tokens of each episode, else characters of its text actions; NaN where neither is."""
        counted = [_token_count(episode) for episode in self.episodes]
        if any(count is not None for count in counted):
            return np.array([math.nan if count is None else count for count in counted], dtype=float)
        texts = self.texts
        return np.array([math.nan if text is None else len(text) for text in texts], dtype=float)

    @cached_property
    def length_unit(self) -> str:
        """tokens or characters, as `completion_lengths` counts."""
        return "tokens" if any(_token_count(one) is not None for one in self.episodes) else "characters"

    @cached_property
    def texts(self) -> tuple[str | None, ...]:
        """What the policy wrote in each episode; None where its actions are no text."""
        return tuple(map(completion_text, self.episodes))

    def words(self, at: int) -> Sequence[Any]:
        """Token ids of a completion, else the words of its text; empty where it has neither."""
        ids = _token_ids(self.episodes[at])
        return ids if ids is not None else (self.texts[at] or "").split()

    @cached_property
    def completion_hashes(self) -> tuple[int | None, ...]:
        """A hash of each completion, by which equal ones are found; None without tokens or text."""
        found = (self.words(at) for at in range(len(self.episodes)))
        return tuple(hash(tuple(words)) if words else None for words in found)


def evidence_of(recording: Recording, *, quality: str | None, run: str | None) -> RunEvidence:
    """
    The evidence of one run's episodes that ended; raises ReadError without any.

    Raises StudyError for several runs of which `run` chooses none, and for an unknown quality.
    """
    levels = _levels(recording)
    run = collapsed(levels) if run is None else run
    if run is not None:
        recording = _chosen(recording, run)
    episodes = tuple(one for one in recording.episodes if one.status != "unfinished")
    if not episodes:
        more = f" that ended, of {len(recording.episodes):,}" if recording.episodes else ""
        raise ReadError(f"the recording holds no episodes{more}: there is nothing to diagnose")
    runs = sorted({episode.run_id for episode in episodes})
    if len(runs) > 1:
        raise StudyError(
            f"the recording holds {len(runs)} runs ({_listed(runs)}), and training time is that of one: "
            "choose it by run=..., on the command line by --run"
        )
    counted = np.array([is_counted(episode.status) for episode in episodes])
    rewards = np.array([_number(reward_of(episode)) for episode in episodes])
    rewards = np.where(counted, rewards, math.nan)
    held_out = np.array([_is_held_out(one) for one in episodes])
    if held_out.all():  # nothing but an evaluation: its own order of episodes is all there is
        held_out = np.zeros(len(episodes), dtype=bool)
    splits = {one.split for one in episodes if one.split}
    name, values = _quality(episodes, rewards, held_out, quality)
    values = None if values is None else np.where(counted, values, math.nan)
    starts = np.array([update.start_time or 0 for update in recording.updates], dtype=np.int64)
    begun = np.array([episode.start_time or 0 for episode in episodes], dtype=np.int64)
    return RunEvidence(
        recording=recording,
        episodes=episodes,
        rewards=rewards,
        quality=values,
        quality_name=name,
        quality_is_held_out=name == _HELD_OUT_REWARD or (name is not None and name in splits),
        is_held_out=held_out,
        is_counted=counted,
        phases=np.searchsorted(np.sort(starts), begun, side="right"),
        levels=levels,
    )


def _levels(recording: Recording) -> dict[str, Floats]:
    """The rewards of the last third of each run; empty where their environments differ."""
    rewards: dict[str, list[float]] = {}
    envs: dict[str, set[str]] = {}
    for episode in recording.episodes:
        value = _number(reward_of(episode))
        if is_counted(episode.status) and not _is_held_out(episode) and math.isfinite(value):
            rewards.setdefault(episode.run_id, []).append(value)
            envs.setdefault(episode.run_id, set()).add(episode.env)
    if len({frozenset(names) for names in envs.values()}) != 1:
        return {}
    return {run: np.array(values[len(values) * 2 // 3 :]) for run, values in rewards.items()}


def _is_held_out(episode: Episode) -> bool:
    return bool(episode.results) or (episode.split or "").lower() in HELD_OUT


def _chosen(recording: Recording, run: str) -> Recording:
    found = recording.filter(run=run)
    if not found.episodes:
        known = sorted({name for one in recording.runs for name in (one.id, one.name) if name})
        raise StudyError(f"no run is called {run!r}; there are {_listed(known) or 'none'}")
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


# Rewards and quality.


def _number(value: float | None) -> float:
    return float(value) if value is not None and abs(value) <= LARGEST else math.nan


def reward_of(episode: Episode) -> float | None:
    """The reward of the whole episode, else its return, else the mean return of its agents."""
    if episode.reward.value is not None or episode.return_ is not None:
        return episode.reward.value if episode.reward.value is not None else episode.return_
    return mean(agent.return_ for agent in episode.agents)


def _quality(
    episodes: Sequence[Episode], rewards: Floats, held_out: Flags, name: str | None
) -> tuple[str | None, Floats | None]:
    """The quality of that name; without a name the first that has enough values for a trend."""
    found = _measures(episodes, rewards, held_out)
    if name is None:
        for measure, values in found.items():
            if np.isfinite(values()).sum() >= FEWEST:
                return measure, values()
        return None, None
    if name in found:
        return name, found[name]()
    splits = {one.split for one in episodes if one.split}
    if name in splits:
        is_split = np.array([one.split == name for one in episodes])
        return name, np.where(is_split, rewards, math.nan)
    return name, _of_metric(episodes, name, [*found, *sorted(splits)])


def _measures(
    episodes: Sequence[Episode], rewards: Floats, held_out: Flags
) -> dict[str, Callable[[], Floats]]:
    """Each measure that is independent of the rewards, by name; scores of people first."""
    kinds: dict[str, str] = {}
    for episode in episodes:
        for grader, score in _late(episode).items():
            kinds.setdefault(grader, score.grader_kind or "")
    graders = sorted(kinds, key=lambda grader: (kinds[grader] != "human", grader))
    found: dict[str, Callable[[], Floats]] = {
        grader: lambda grader=grader: _late_scores(episodes, grader)  # type: ignore[misc]  # bound early
        for grader in graders
    }
    if held_out.any():
        found[_HELD_OUT_REWARD] = lambda: np.where(held_out, rewards, math.nan)
    if any(one.outcome in ("success", "failure") for one in episodes):
        found["success"] = lambda: np.array([_success(one) for one in episodes])
    names = {name for one in episodes for name in one.reward.components}
    verifiers = {grade.name for one in episodes for grade in one.reward.grades if grade.kind == "verifier"}
    everything = np.ones(len(episodes), dtype=bool)
    for name in sorted(verifiers & names) if len(names) > 1 else ():
        found[f"components.{name}"] = lambda name=name: component_scores(episodes, everything, name)  # type: ignore[misc]
    return found


def component_scores(episodes: Sequence[Episode], counted: Flags, name: str) -> Floats:
    """The score of a component of each episode that counts; NaN where it has none."""
    scores = [_number(one.reward.components.get(name)) for one in episodes]
    return np.where(counted, scores, math.nan)


def _late(episode: Episode) -> Mapping[str, Any]:
    """Scores other than that of the reward itself, by grader."""
    return {
        grader: score
        for grader, score in episode.scores.items()
        if grader and grader != (episode.reward.grader or "") and score.value is not None
    }


def _late_scores(episodes: Sequence[Episode], grader: str) -> Floats:
    scores = [_late(episode).get(grader) for episode in episodes]
    return np.array([math.nan if score is None else _number(score.value) for score in scores])


def _success(episode: Episode) -> float:
    return {"success": 1.0, "failure": 0.0}.get(episode.outcome, math.nan)


def _of_metric(episodes: Sequence[Episode], name: str, others: Sequence[str]) -> Floats:
    counted = figures_of_values(episodes)
    try:
        chosen = metric(name, counted)
    except StudyError as error:
        near = get_close_matches(name, others, n=1)
        raise StudyError(
            f"no quality is called {name!r}; did you mean {near[0]!r}?" if near else f"quality: {error}"
        ) from error
    if chosen.k is not None:
        raise StudyError(f"{name!r} is a number per task: give a quality that each episode has, e.g. success")
    if chosen.direction < 0:
        raise StudyError(f"less of {name!r} is better: give a quality of which more is better, e.g. success")
    values = np.array([_number(chosen.of(one)) for one in counted])
    if not np.isfinite(values).any():
        raise StudyError(f"no episode has a value of {name!r}: there is no quality to compare with")
    return values


# Texts.


def text_of(value: object) -> str | None:
    """The text of an action or observation: a string, chat messages, or None for anything else."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return text_of(value.get("content")) if "content" in value else text_of(value.get("text"))
    if isinstance(value, (list, tuple)) and value:
        parts = [text_of(one) for one in value]
        return None if any(part is None for part in parts) else "\n".join(map(str, parts))
    return None


def completion_text(episode: Episode) -> str | None:
    """The text actions of an episode, one after the other; None where it has none."""
    texts = [text for step in episode.steps if (text := text_of(step.action)) is not None]
    return "\n".join(texts) if texts else None


def _version(episode: Episode) -> str | None:
    """The policy version that sampled the episode."""
    versions = (step.tokens.policy_version for step in episode.steps if step.tokens is not None)
    return next((one for one in versions if one is not None), episode.policy_version_start)


def _token_count(episode: Episode) -> int | None:
    counts = [count for step in episode.steps if (count := _completion_count(step)) is not None]
    return sum(counts) if counts else None


def _completion_count(step: Step) -> int | None:
    return None if step.tokens is None else step.tokens.count


def _token_ids(episode: Episode) -> list[int] | None:
    blocks = [step.tokens.ids for step in episode.steps if step.tokens is not None]
    known = [ids for ids in blocks if ids is not None]
    return [int(one) for ids in known for one in ids.tolist()] if known else None
