"""A recording as detectors use it: rewards, quality and texts over training time."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mttp.errors import ReadError, StudyError
from mttp.model.counting import is_counted
from mttp.model.estimates import mean
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.metrics import metric
from mttp.study.diagnosing.seeds import collapsed
from mttp.study.diagnosing.trends import FEWEST, TimeTrend, trend_of
from mttp.tables import Database
from mttp.tables.completeness import COMPLETENESS
from mttp.tables.figures import FIGURES, figures_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

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


class Scoring(NamedTuple):
    """The reward of a whole episode."""

    trace_id: str = ""
    grader: str | None = None
    grader_version: str | None = None
    spec_name: str | None = None
    spec_version: str | None = None
    spec_sha256: str | None = None
    error: str | None = None
    components: Mapping[str, float] = {}
    component_statuses: Mapping[str, str] = {}
    verifiers: Sequence[str] = ()
    """Names of the components that are verifiers."""
    repeats: Sequence[float] = ()
    """Values of components that were called several times, of all calls."""


class GraderScore(NamedTuple):
    """A score that a grader gave a whole episode, while it was recorded or later."""

    trace_id: str
    grader: str
    grader_version: str | None
    grader_kind: str | None
    value: float | None


class Behavior(NamedTuple):
    """What a policy was given and did in an episode."""

    trace_id: str = ""
    writes: bool = False
    """Whether its first action is text or has tokens."""
    has_prompt: bool = False
    """Whether its first observation is text."""
    characters: int | None = None
    """Number of characters of its text, if it has no tokens."""
    answer: int | None = None
    """Equal for equal answers; None without tokens or text."""
    has_failed: bool = False
    """Whether the reward of a step failed."""
    entropy: float | None = None
    """Mean entropy of its tokens, in nats."""


class Facts(NamedTuple):
    """What the table of episodes has beside its figures."""

    trace_id: str
    terminated: bool | None
    advantage: float | None


def _selected(row: type[Any], source: str, **expressions: str) -> str:
    names = [f"{expressions.get(name, name)} AS {name}" for name in row._fields]
    return f"SELECT {', '.join(names)} FROM {source}"


_EPISODES = f"{FIGURES} FROM episodes"
_FACTS = _selected(Facts, "episodes")
_SCORINGS = _selected(Scoring, "rewards")
_SCORES = f"{_selected(GraderScore, 'scores')} ORDER BY trace_id, grader, position"
_BEHAVIOR = _selected(Behavior, "behavior", has_prompt="prompt IS NOT NULL")
_UPDATES = "SELECT * FROM updates"
_GROUPS = "SELECT id, run_id, episodes, rewards FROM groups"
_RESULTS = "SELECT DISTINCT episode FROM evaluations WHERE episode <> ''"
_HAS_AGENTS = """SELECT count(*) > 0 AS has_agents FROM spans WHERE "mttp.agent.id" IS NOT NULL"""
_AGENTS = """SELECT trace_id, "return" FROM agents"""
_COMPLETIONS = """
SELECT trace_id, completion
FROM behavior
WHERE completion IS NOT NULL AND trace_id IN (SELECT unnest($trace_ids::VARCHAR[]))
"""
_TOKENS = """
SELECT trace_id, flatten(list("token_ids" ORDER BY "index", start_time, place)) AS ids
FROM (
    SELECT *, coalesce("mttp.step.index", "mttp.steps.first_index", 0) AS "index"
    FROM spans
    WHERE
        len("token_ids") > 0
        AND NOT contains(span_id, ':')
        AND trace_id IN (SELECT unnest($trace_ids::VARCHAR[]))
)
GROUP BY trace_id
"""
_MOST_WORDS = 100
"""Number of episodes whose tokens or texts are in memory at a time."""
_PROMPTS = "SELECT trace_id, prompt FROM behavior WHERE prompt IS NOT NULL"
_RATIOS = "SELECT trace_id, log_ratio_sums FROM behavior WHERE log_ratio_sums IS NOT NULL"
_ACTIONS = """
SELECT trace_id, "action_counts" FROM spans WHERE "action_counts" IS NOT NULL AND NOT contains(span_id, ':')
"""
_OBSERVATIONS = """
SELECT trace_id, "observation_low" AS low, "observation_high" AS high, "observation_count" AS number
FROM spans
WHERE "observation_low" IS NOT NULL AND NOT contains(span_id, ':')
ORDER BY place
"""
EVIDENCE = (
    *(_EPISODES, _FACTS, _SCORINGS, _SCORES, _BEHAVIOR, _UPDATES, _GROUPS, _RESULTS, _HAS_AGENTS),
    *(_ACTIONS, _OBSERVATIONS, _TOKENS, COMPLETENESS),
)
"""The queries of a diagnosis, for `Database.prepare`."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunEvidence:
    """One run in order of start; arrays have one entry per episode, NaN where a number is missing."""

    database: Database
    episodes: tuple[EpisodeFigures, ...]
    """As they were recorded, also where a number does not count."""
    facts: tuple[Facts, ...]
    scorings: tuple[Scoring, ...]
    scores: tuple[tuple[GraderScore, ...], ...]
    """Of each grader in order of time, the current one last."""
    behaviors: tuple[Behavior, ...]
    all_updates: Sequence[Mapping[str, Any]]
    """The rows of the table of updates, of all policies."""
    groups: Sequence[Mapping[str, Any]]
    rewards: Floats
    """The reward of the whole episode, else the return, else the mean return of its agents."""
    has_reward: Flags
    """Whether there is one, also one that is too large or does not count."""
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
        return any(self.behaviors[at].writes for at in self.trained)

    @cached_property
    def has_prompts(self) -> bool:
        """Whether an episode's first observation is text."""
        return any(behavior.has_prompt for behavior in self.behaviors)

    @cached_property
    def has_groups(self) -> bool:
        """Whether episodes are compared within groups."""
        return bool(self.groups) or any(episode.group is not None for episode in self.episodes)

    @cached_property
    def has_graders(self) -> bool:
        """Whether something other than the environment's steps gives the rewards."""
        statuses = any(episode.reward_status != "missing" for episode in self.episodes)
        return statuses or any(scoring.trace_id for scoring in self.scorings)

    @cached_property
    def components(self) -> dict[str, Floats]:
        """The scores of each component of the rewards by name."""
        names = sorted({name for at in self.trained for name in self.scorings[at].components})
        return {name: _component_scores(self.scorings, self.is_counted, name) for name in names}

    def update_series(self, name: str) -> Floats:
        """The finite values of a field of the updates, in order."""
        values = [update[name] for update in self.updates]
        return np.array([value for value in values if value is not None and math.isfinite(value)], float)

    @cached_property
    def updates(self) -> list[Mapping[str, Any]]:
        """The updates in order of start, of the policy that has most of them."""
        counts = Counter(update["policy"] for update in self.all_updates)
        policy = max(counts, key=lambda name: counts[name], default=None)
        return [update for update in self.all_updates if update["policy"] == policy]

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
    def length_unit(self) -> str:
        """tokens or characters, as `completion_lengths` counts."""
        has_tokens = any(episode.completion_tokens is not None for episode in self.episodes)
        return "tokens" if has_tokens else "characters"

    @cached_property
    def completion_lengths(self) -> Floats:
        """Completion tokens of each episode, else characters of its text actions; NaN where neither is."""
        if self.length_unit == "tokens":
            return _floats(episode.completion_tokens for episode in self.episodes)
        return _floats(behavior.characters for behavior in self.behaviors)

    def words(self, positions: Iterable[int]) -> Iterator[Sequence[Any]]:
        """Yield the token ids of each of these episodes, else the words of its text; empty without either."""
        trace_ids = [self.episodes[at].trace_id for at in positions]
        for first in range(0, len(trace_ids), _MOST_WORDS):
            part = trace_ids[first : first + _MOST_WORDS]
            texts = self.database.rows(_COMPLETIONS, {"trace_ids": part})
            words = {row["trace_id"]: row["completion"].split() for row in texts}
            words |= {row["trace_id"]: row["ids"] for row in self.database.rows(_TOKENS, {"trace_ids": part})}
            for trace_id in part:
                yield words.get(trace_id, ())

    def prompts(self) -> dict[str, str]:
        """The text of the first observation of episodes, by trace id."""
        return {row["trace_id"]: row["prompt"] for row in self.database.rows(_PROMPTS)}

    @cached_property
    def log_ratios(self) -> dict[str, Sequence[float]]:
        """By trace id, sums over tokens for k1, k2 and k3 of the divergence, and the number of tokens."""
        return {row["trace_id"]: row["log_ratio_sums"] for row in self.database.rows(_RATIOS)}

    def taken(self, positions: Iterable[int]) -> Counter[int]:
        """How often each action was taken in these episodes, of those that are integers."""
        trace_ids = {self.episodes[at].trace_id for at in positions}
        counts: Counter[int] = Counter()
        for row in self.database.rows(_ACTIONS):
            if row["trace_id"] in trace_ids:
                counts.update(row["action_counts"])
        return counts

    def observed(self, size: int) -> tuple[Floats, Floats, int]:
        """The bounds of each dimension of the observed vectors of that size, and their number."""
        trace_ids = {self.episodes[at].trace_id for at in self.trained}
        rows = [row for row in self.database.rows(_OBSERVATIONS) if row["trace_id"] in trace_ids]
        rows = [row for row in rows if len(row["low"]) == size]
        low, high = (np.array([row[name] for row in rows]).reshape(-1, size) for name in ("low", "high"))
        number = sum(row["number"] for row in rows)
        return (low.min(axis=0), high.max(axis=0), number) if rows else (np.empty(0), np.empty(0), 0)


def _floats(values: Iterable[float | None]) -> Floats:
    return np.array([math.nan if value is None else value for value in values], dtype=float)


def evidence_of(database: Database, *, quality: str | None, run: str | None) -> RunEvidence:
    """
    Return the evidence of one run's episodes that ended; raises ReadError without any.

    Raises StudyError for several runs of which `run` chooses none, and for an unknown quality.
    """
    figures = figures_of(database.arrow(_EPISODES))
    of_agents: defaultdict[str, list[float | None]] = defaultdict(list)
    (row,) = database.rows(_HAS_AGENTS)
    if row["has_agents"] and any(episode.reward is None and episode.return_ is None for episode in figures):
        database.prepare(*EVIDENCE, _AGENTS)
        for row in database.rows(_AGENTS):
            of_agents[row["trace_id"]].append(row["return"])
    amounts = {episode.trace_id: _amount(episode, of_agents.get(episode.trace_id, ())) for episode in figures}
    results = {row["episode"] for row in database.rows(_RESULTS)}
    is_held_out = {
        episode.trace_id: episode.trace_id in results or (episode.split or "").lower() in HELD_OUT
        for episode in figures
    }
    levels = _levels([episode for episode in figures if not is_held_out[episode.trace_id]], amounts)
    run = collapsed(levels) if run is None else run
    if run is not None:
        figures = _chosen(database, figures, run)
    episodes = tuple(episode for episode in figures if episode.status != "unfinished")
    if not episodes:
        more = f" that ended, of {len(figures):,}" if figures else ""
        raise ReadError(f"the recording holds no episodes{more}: there is nothing to diagnose")
    runs = sorted({episode.run for episode in episodes})
    if len(runs) > 1:
        raise StudyError(
            f"the recording holds {len(runs)} runs ({_listed(runs)}), and training time is that of one: "
            "choose it by run=..., on the command line by --run"
        )
    traces = {episode.trace_id for episode in figures}
    updates, groups = database.rows(_UPDATES), database.rows(_GROUPS)
    if run is not None:
        updates = [update for update in updates if update["run_id"] in runs]
        groups = [group for group in groups if not traces.isdisjoint(group["episodes"])]
    scorings = _by_trace(database, Scoring, _SCORINGS)
    facts, behaviors = (_by_trace(database, *of) for of in ((Facts, _FACTS), (Behavior, _BEHAVIOR)))
    scores: defaultdict[str, list[GraderScore]] = defaultdict(list)
    for row in database.rows(_SCORES):
        scores[row["trace_id"]].append(GraderScore(**row))
    counted = np.array([is_counted(episode.status) for episode in episodes])
    rewards = np.array([_number(amounts[episode.trace_id]) for episode in episodes])
    held_out = np.array([is_held_out[episode.trace_id] for episode in episodes])
    if held_out.all():  # nothing but an evaluation: its own order of episodes is all there is
        held_out = np.zeros(len(episodes), dtype=bool)
    starts = np.array([update["start_time"] or 0 for update in updates], dtype=np.int64)
    begun = np.array([episode.start_time for episode in episodes], dtype=np.int64)
    evidence = RunEvidence(
        database=database,
        episodes=episodes,
        facts=tuple(facts[episode.trace_id] for episode in episodes),
        scorings=tuple(scorings.get(episode.trace_id, Scoring()) for episode in episodes),
        scores=tuple(tuple(scores.get(episode.trace_id, ())) for episode in episodes),
        behaviors=tuple(behaviors.get(episode.trace_id, Behavior()) for episode in episodes),
        all_updates=updates,
        groups=groups,
        rewards=np.where(counted, rewards, math.nan),
        has_reward=np.array([amounts[episode.trace_id] is not None for episode in episodes]),
        quality=None,
        quality_name=None,
        quality_is_held_out=False,
        is_held_out=held_out,
        is_counted=counted,
        phases=np.searchsorted(np.sort(starts), begun, side="right"),
        levels=levels,
    )
    name, values = _quality(evidence, quality)
    splits = {episode.split for episode in episodes if episode.split}
    return replace(
        evidence,
        quality=None if values is None else np.where(counted, values, math.nan),
        quality_name=name,
        quality_is_held_out=name == _HELD_OUT_REWARD or (name is not None and name in splits),
    )


def _by_trace(database: Database, row_type: Callable[..., Any], query: str) -> dict[str, Any]:
    return {row["trace_id"]: row_type(**row) for row in database.rows(query)}


def _levels(episodes: Sequence[EpisodeFigures], amounts: Mapping[str, float | None]) -> dict[str, Floats]:
    """Return the rewards of the last third of each run; empty where their environments differ."""
    rewards: dict[str, list[float]] = {}
    envs: dict[str, set[str]] = {}
    for episode in episodes:
        value = _number(amounts[episode.trace_id])
        if is_counted(episode.status) and math.isfinite(value):
            rewards.setdefault(episode.run, []).append(value)
            envs.setdefault(episode.run, set()).add(episode.env)
    if len({frozenset(names) for names in envs.values()}) != 1:
        return {}
    return {run: np.array(values[len(values) * 2 // 3 :]) for run, values in rewards.items()}


def _chosen(database: Database, figures: Sequence[EpisodeFigures], run: str) -> list[EpisodeFigures]:
    names = {each.id: each.name for each in database.runs}
    chosen = [episode for episode in figures if run in (episode.run, names.get(episode.run))]
    if not chosen:
        known = sorted({name for pair in names.items() for name in pair if name})
        raise StudyError(f"no run is called {run!r}; there are {_listed(known) or 'none'}")
    return chosen


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


# Rewards and quality.


def _number(value: float | None) -> float:
    return float(value) if value is not None and abs(value) <= LARGEST else math.nan


def _amount(episode: EpisodeFigures, of_agents: Iterable[float | None]) -> float | None:
    """Return the reward of the whole episode, else its return, else the mean return of its agents."""
    if episode.reward is not None or episode.return_ is not None:
        return episode.return_ if episode.reward is None else episode.reward
    return mean(of_agents)


def _quality(run: RunEvidence, name: str | None) -> tuple[str | None, Floats | None]:
    """Return the quality of that name; without a name the first that has enough values for a trend."""
    measures = _measures(run)
    if name is None:
        for measure, values in measures.items():
            if np.isfinite(values()).sum() >= FEWEST:
                return measure, values()
        return None, None
    if name in measures:
        return name, measures[name]()
    splits = {episode.split for episode in run.episodes if episode.split}
    if name in splits:
        is_split = np.array([episode.split == name for episode in run.episodes])
        return name, np.where(is_split, run.rewards, math.nan)
    return name, _of_metric(run.episodes, name, [*measures, *sorted(splits)])


def _measures(run: RunEvidence) -> dict[str, Callable[[], Floats]]:
    """Return each measure that is independent of the rewards, by name; scores of people first."""
    late = [*map(_late, run.scores, run.scorings)]
    kinds: dict[str, str] = {}
    for scores in late:
        for grader, score in scores.items():
            kinds.setdefault(grader, score.grader_kind or "")
    graders = sorted(kinds, key=lambda grader: (kinds[grader] != "human", grader))
    measures: dict[str, Callable[[], Floats]] = {
        grader: lambda grader=grader: _late_scores(late, grader)  # type: ignore[misc]  # bound early
        for grader in graders
    }
    if run.is_held_out.any():
        measures[_HELD_OUT_REWARD] = lambda: np.where(run.is_held_out, run.rewards, math.nan)
    if any(episode.outcome in ("success", "failure") for episode in run.episodes):
        measures["success"] = lambda: np.array(
            [{"success": 1.0, "failure": 0.0}.get(episode.outcome, math.nan) for episode in run.episodes]
        )
    names = {name for scoring in run.scorings for name in scoring.components}
    verifiers = {name for scoring in run.scorings for name in scoring.verifiers}
    everything = np.ones(len(run.episodes), dtype=bool)
    for name in sorted(verifiers & names) if len(names) > 1 else ():
        measures[f"components.{name}"] = lambda name=name: _component_scores(run.scorings, everything, name)  # type: ignore[misc]
    return measures


def _component_scores(scorings: Sequence[Scoring], counted: Flags, name: str) -> Floats:
    """Return the score of a component of each episode that counts; NaN where it has none."""
    return np.where(counted, [_number(scoring.components.get(name)) for scoring in scorings], math.nan)


def _late(scores: Iterable[GraderScore], scoring: Scoring) -> Mapping[str, GraderScore]:
    """Return the current scores other than that of the reward itself, by grader."""
    current = {score.grader: score for score in scores if score.grader != (scoring.grader or "")}
    return {grader: score for grader, score in current.items() if score.value is not None}


def _late_scores(late: Iterable[Mapping[str, GraderScore]], grader: str) -> Floats:
    return np.array([_number(scores[grader].value) if grader in scores else math.nan for scores in late])


def _of_metric(episodes: Sequence[EpisodeFigures], name: str, others: Sequence[str]) -> Floats:
    try:
        chosen = metric(name, episodes)
    except StudyError as error:
        near = get_close_matches(name, others, n=1)
        raise StudyError(
            f"no quality is called {name!r}; did you mean {near[0]!r}?" if near else f"quality: {error}"
        ) from error
    if chosen.k is not None:
        raise StudyError(f"{name!r} is a number per task: give a quality that each episode has, e.g. success")
    if chosen.direction < 0:
        raise StudyError(f"less of {name!r} is better: give a quality of which more is better, e.g. success")
    values = np.array([_number(chosen.of(episode)) for episode in episodes])
    if not np.isfinite(values).any():
        raise StudyError(f"no episode has a value of {name!r}: there is no quality to compare with")
    return values
