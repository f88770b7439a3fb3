"""The overview of a recording: its sections, from facts of the runs to problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.model.counting import NOT_COUNTED, Reason
from mttp.model.episodes import Group, Run, Update
from mttp.model.gradings import GraderHealth
from mttp.model.statistics.inference import scipy_stats
from mttp.pages.blocks import (
    axis,
    counted,
    fact,
    facts,
    histogram,
    note,
    scatter,
    section,
)
from mttp.pages.study import comparison_section, diagnosis_section, gate_section
from mttp.reading.completeness import sampled
from mttp.reading.problems import Problem
from mttp.viewing.curves import by_run, episode_curve
from mttp.viewing.episode_table import EpisodeTable, Floats, known
from mttp.viewing.overview_tables import (
    graders_section,
    groups_section,
    problems_section,
    runs_section,
    slices_section,
    updates_section,
)

if TYPE_CHECKING:
    from mttp.study import Comparison, Diagnosis, GateResult
    from mttp.tables.summary import RecordedVerdict

__all__ = ["Contents", "sections"]

_MOST_POINTS = 4_000
_MOST_COMPONENTS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an overview shows."""

    episodes: EpisodeTable
    """All episodes, in order of start."""
    runs: Sequence[Run] = ()
    graders: Sequence[GraderHealth] = ()
    faults: dict[str, int] = field(default_factory=dict)
    """Number of faults by kind."""
    groups: Sequence[Group] = ()
    updates: Sequence[Update] = ()
    problems: Sequence[Problem] = ()
    baseline: EpisodeTable | None = None
    """The episodes of the baseline that count or are missing."""
    comparison: Comparison | str | None = None
    """A text says why the sides were not compared."""
    diagnosis: Diagnosis | str | None = None
    """A text says why the recording was not diagnosed."""
    gate: GateResult | None = None
    verdicts: Sequence[RecordedVerdict] = ()
    """The verdicts that were recorded before."""


def sections(contents: Contents) -> list[dict[str, Any]]:
    """The sections of the overview that have contents."""
    reasons = contents.episodes.reasons(contents.runs, {update.run_id for update in contents.updates})
    counted = replace(contents, episodes=contents.episodes.counted(reasons))
    makers: tuple[Callable[[Contents], dict[str, Any] | None], ...] = (
        lambda one: _summary(one, contents.episodes, reasons),
        lambda one: gate_section(one.gate, one.verdicts),
        lambda one: comparison_section(one.comparison),
        _returns,
        lambda one: diagnosis_section(one.diagnosis),
        _distributions,
        lambda one: graders_section(one.graders),
        lambda one: slices_section(one.episodes),
        lambda one: updates_section(one.runs, one.updates),
        lambda one: groups_section(one.groups),
        lambda one: runs_section(one.runs),
        lambda one: problems_section(one.problems, one.faults),
    )
    with np.errstate(over="ignore", invalid="ignore"):  # squares of huge rewards
        return [found for make in makers if (found := make(counted)) is not None]


# The summary.


def _summary(contents: Contents, recorded: EpisodeTable, reasons: Sequence[Reason]) -> dict[str, Any] | None:
    episodes = contents.episodes
    if not len(recorded):
        return section("summary", "Summary", [note("The recording holds no episodes.", "warn")])
    items = [
        fact("episodes", len(recorded), detail=counted(recorded.counts("status"), "completed")),
        *_uncounted_fact(reasons),
        fact("steps", int(recorded.numbers("length").sum())),
        _mean_fact("return", episodes.numbers("return")),
        *([_mean_fact("reward", episodes.numbers("reward"))] if _has_rewards(episodes) else []),
        *_success_fact(episodes.numbers("success")),
        *_invalid_fact(episodes),
        _mean_fact("length", episodes.numbers("length")),
        *_totals(episodes),
        fact("runs", len(recorded.counts("run"))),
    ]
    failures = sum(one.failed for one in contents.graders)
    if failures:
        items.append(fact("failed gradings", failures, detail="see graders", state="bad"))
    if contents.faults:
        total = sum(contents.faults.values())
        items.append(fact("faults", total, detail=counted(contents.faults), state="warn"))
    if contents.problems:
        items.append(fact("problems", len(contents.problems), detail="see problems", state="warn"))
    warnings = [note(sentence, "bad") for sentence in sampled(contents.problems)]
    return section("summary", "Summary", [*warnings, facts(items)])


def _has_rewards(episodes: EpisodeTable) -> bool:
    """Whether a reward differs from the return."""
    reward, return_ = episodes.numbers("reward"), episodes.numbers("return")
    return bool((~np.isnan(reward) & (reward != return_)).any())


def _mean_fact(label: str, values: Floats) -> dict[str, Any]:
    finite = known(values)
    if not len(finite):
        return fact(f"mean {label}", None, detail="no episode has one")
    spread = f", standard deviation {finite.std(ddof=1):.4g}" if len(finite) > 1 else ""
    return fact(f"mean {label}", float(finite.mean()), detail=f"n={len(finite):,}{spread}")


def _success_fact(values: Floats) -> list[dict[str, Any]]:
    finite = known(values)
    if not len(finite):
        return []
    detail = f"{int(finite.sum()):,} of {len(finite):,} with an outcome"
    return [fact("success", float(finite.mean()), detail=detail)]


def _uncounted_fact(reasons: Sequence[Reason]) -> list[dict[str, Any]]:
    """The number of episodes that do not count, and why."""
    found = Counter(reason for reason in reasons if reason in NOT_COUNTED)
    detail = "; ".join(f"{count:,} {NOT_COUNTED[reason]}" for reason, count in found.items())
    return [fact("not counted", sum(found.values()), detail=detail, state="warn")] if found else []


def _invalid_fact(episodes: EpisodeTable) -> list[dict[str, Any]]:
    """Missing and failed rewards, where any episode has a reward."""
    invalid = episodes.take(np.flatnonzero(episodes.invalid_rewards())).counts("reward_status")
    if not invalid or {*episodes.counts("reward_status")} == {"missing"}:
        return []
    state = "bad" if "error" in invalid else "warn"
    return [fact("without a valid reward", sum(invalid.values()), detail=counted(invalid), state=state)]


def _totals(episodes: EpisodeTable) -> list[dict[str, Any]]:
    tokens, costs = known(episodes.numbers("tokens")), known(episodes.numbers("cost"))
    found = [fact("tokens", int(tokens.sum()))] if len(tokens) else []
    return found + (
        [fact("cost in US dollars", float(costs.sum()), detail=f"n={len(costs):,}")] if len(costs) else []
    )


# Curves and distributions.

Values: TypeAlias = Callable[[EpisodeTable], Floats]


def _column(name: str) -> Values:
    return lambda episodes: episodes.numbers(name)


def _returns(contents: Contents) -> dict[str, Any] | None:
    names = {run.id: run.name or "" for run in contents.runs}
    episodes, baseline = contents.episodes, contents.baseline
    runs = {} if baseline is not None else by_run(episodes, names)

    def curve(title: str, label: str, values: Values, *, is_share: bool = False) -> dict[str, Any] | None:
        found = values(episodes)
        sides = {name: found[rows] for name, rows in runs.items()}
        if baseline is not None:
            sides = {"base": values(baseline), "candidate": found}
        return episode_curve(title, label, sides, is_share=is_share)

    components = [*episodes.keys("components")][:_MOST_COMPONENTS]
    blocks = [
        curve("Return", "return", _column("return")),
        curve("Reward", "reward", _column("reward")) if _has_rewards(episodes) else None,
        curve("Success", "share of successes", _column("success"), is_share=True),
        episode_curve(
            "Components", "score", {name: episodes.numbers_of("components", name) for name in components}
        ),
        curve("Length", "steps", _column("length")),
        curve("Tokens", "tokens", _column("tokens")),
        curve("Invalid rewards", "share", EpisodeTable.invalid_rewards, is_share=True)
        if _is_partly_invalid(episodes)
        else None,
    ]
    return section("returns", "Over time", blocks)


def _is_partly_invalid(episodes: EpisodeTable) -> bool:
    return bool(0 < episodes.invalid_rewards().sum() < len(episodes))


def _distributions(contents: Contents) -> dict[str, Any] | None:
    episodes, baseline = contents.episodes, contents.baseline
    measures = {
        "Return": ("return", "return"),
        "Reward": ("reward", "reward"),
        "Length": ("steps", "length"),
        "Tokens": ("tokens", "tokens"),
        "Duration": ("seconds", "duration"),
    }
    blocks = []
    for title, (label, name) in measures.items():
        values = episodes.numbers(name)
        if not len(known(values)) or (name == "reward" and not _has_rewards(episodes)):
            continue
        sides = {"": values} if baseline is None else {"base": baseline.numbers(name), "candidate": values}
        blocks.append(histogram(title, axis(label), sides))
    return section("distributions", "Distributions", [*blocks, _reward_against_length(episodes)])


def _reward_against_length(episodes: EpisodeTable) -> dict[str, Any] | None:
    """Reward, else return, against length in tokens, else in steps; by outcome."""
    y_name = "reward" if len(known(episodes.numbers("reward"))) else "return"
    x_name = "tokens" if len(known(episodes.numbers("tokens"))) else "length"
    stride = max(1, math.ceil(len(episodes) / _MOST_POINTS))
    shown = episodes.take(np.arange(0, len(episodes), stride))
    x, y = shown.numbers(x_name), shown.numbers(y_name)
    codes, words = shown.labels("outcome")
    points: dict[str, list[tuple[float, float, str]]] = {}
    for row in np.flatnonzero(~np.isnan(x) & ~np.isnan(y)).tolist():
        points.setdefault(words[codes[row]], []).append((float(x[row]), float(y[row]), shown.episode(row)))
    label = "steps" if x_name == "length" else "tokens"
    what = f"Each {stride:,}th episode." if stride > 1 else "Each point is an episode."
    note = f"{what} Rank correlation: {_rank(points)}."
    return scatter(f"{y_name.capitalize()} against {label}", axis(label), axis(y_name), points, note)


def _rank(points: Mapping[str, Sequence[tuple[float, float, str]]]) -> str:
    """Spearman's rank correlation of all points, with n."""
    pairs = np.array([one[:2] for found in points.values() for one in found], float)
    if len(pairs) < 3 or any(len(np.unique(pairs[:, side])) < 2 for side in (0, 1)):
        return "not defined"
    found = scipy_stats().spearmanr(pairs[:, 0], pairs[:, 1]).statistic
    return f"Spearman {found:+.2f}, n={len(pairs):,}"
