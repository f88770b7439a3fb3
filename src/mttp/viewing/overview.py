"""The overview of a recording: its sections, from facts of the runs to problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from mttp.model.episodes import Group, Run, Update
from mttp.model.gradings import GraderHealth
from mttp.reading.episode_figures import EpisodeFigures
from mttp.reading.problems import Problem
from mttp.study.inference import scipy_stats
from mttp.viewing.blocks import (
    axis,
    column,
    fact,
    facts,
    histogram,
    lines,
    note,
    scatter,
    section,
    series,
    table,
)
from mttp.viewing.curves import by_run, episode_curve, numbers
from mttp.viewing.study_sections import comparison_section, diagnosis_section, gate_section

if TYPE_CHECKING:
    from mttp.study import Comparison, Diagnosis, GateResult

__all__ = ["Contents", "sections"]

_MOST_POINTS = 4_000
_MOST_ROWS = 200
_MOST_COMPONENTS = 12
_OF_RUN = (
    "kind",
    "algorithm",
    "trainer",
    "trainer_version",
    "policy_architecture",
    "policy_parameters",
    "optimizer",
    "seed",
    "revision",
    "python",
    "platform",
    "host",
)
_UPDATE_CURVES = ("loss", "kl", "entropy", "grad_norm", "clip_fraction", "learning_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an overview shows."""

    episodes: Sequence[EpisodeFigures]
    """All episodes, in order of start."""
    runs: Sequence[Run] = ()
    graders: Sequence[GraderHealth] = ()
    faults: dict[str, int] = field(default_factory=dict)
    """Number of faults by kind."""
    groups: Sequence[Group] = ()
    updates: Sequence[Update] = ()
    problems: Sequence[Problem] = ()
    baseline: Sequence[EpisodeFigures] = ()
    """The episodes of the baseline."""
    comparison: Comparison | str | None = None
    """A text says why the sides were not compared."""
    diagnosis: Diagnosis | str | None = None
    """A text says why the recording was not diagnosed."""
    gate: GateResult | None = None


def sections(contents: Contents) -> list[dict[str, Any]]:
    """The sections of the overview that have contents."""
    makers: tuple[Callable[[Contents], dict[str, Any] | None], ...] = (
        _summary,
        lambda one: gate_section(one.gate),
        lambda one: comparison_section(one.comparison),
        _returns,
        lambda one: diagnosis_section(one.diagnosis),
        _distributions,
        _graders,
        _slices,
        _updates,
        _groups,
        _runs,
        _problems,
    )
    return [found for make in makers if (found := make(contents)) is not None]


# The summary.


def _summary(contents: Contents) -> dict[str, Any] | None:
    episodes = contents.episodes
    if not episodes:
        return section("summary", "Summary", [note("The recording holds no episodes.", "warn")])
    statuses = Counter(one.status for one in episodes)
    items = [
        fact("episodes", len(episodes), detail=_counted(statuses, "completed")),
        fact("steps", sum(one.length for one in episodes)),
        _mean_fact("return", episodes, attrgetter("return_")),
        *([_mean_fact("reward", episodes, attrgetter("reward"))] if _has_rewards(episodes) else []),
        *_success_fact(episodes),
        *_invalid_fact(episodes),
        _mean_fact("length", episodes, attrgetter("length")),
        *_totals(episodes),
        fact("runs", len({one.run for one in episodes})),
    ]
    failing = [one for one in contents.graders if one.failed]
    if failing:
        failures = sum(one.failed for one in failing)
        items.append(fact("failed gradings", failures, detail="see graders", state="bad"))
    if contents.faults:
        total = sum(contents.faults.values())
        items.append(fact("faults", total, detail=_counted(Counter(contents.faults)), state="warn"))
    if contents.problems:
        items.append(fact("problems", len(contents.problems), detail="see problems", state="warn"))
    return section("summary", "Summary", [facts(items)])


def _has(episodes: Sequence[EpisodeFigures], name: str) -> bool:
    return any(getattr(one, name) is not None for one in episodes)


def _has_rewards(episodes: Sequence[EpisodeFigures]) -> bool:
    """Whether a reward differs from the return."""
    return any(one.reward is not None and one.reward != one.return_ for one in episodes)


def _counted(counts: Counter[str], *without: str) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common() if name not in without)


def _mean_fact(
    label: str, episodes: Sequence[EpisodeFigures], of: Callable[[EpisodeFigures], float | None]
) -> dict[str, Any]:
    known = numbers(episodes, of)
    known = known[~np.isnan(known)]
    if not len(known):
        return fact(f"mean {label}", None, detail="no episode has one")
    spread = f", standard deviation {known.std(ddof=1):.4g}" if len(known) > 1 else ""
    return fact(f"mean {label}", float(known.mean()), detail=f"n={len(known):,}{spread}")


def _success_fact(episodes: Sequence[EpisodeFigures]) -> list[dict[str, Any]]:
    known = [one.success for one in episodes if one.success is not None]
    if not known:
        return []
    return [
        fact("success", sum(known) / len(known), detail=f"{sum(known):,} of {len(known):,} with an outcome")
    ]


def _invalid_fact(episodes: Sequence[EpisodeFigures]) -> list[dict[str, Any]]:
    """Missing and failed rewards, where any episode has a reward."""
    counts = Counter(one.reward_status for one in episodes if one.reward_status != "ok")
    if not counts or len(episodes) == counts["missing"]:
        return []
    state = "bad" if counts["error"] else "warn"
    return [fact("without a valid reward", sum(counts.values()), detail=_counted(counts), state=state)]


def _totals(episodes: Sequence[EpisodeFigures]) -> list[dict[str, Any]]:
    tokens = [one.tokens for one in episodes if one.tokens is not None]
    costs = [one.cost for one in episodes if one.cost is not None]
    found = [fact("tokens", sum(tokens))] if tokens else []
    return found + (
        [fact("cost in US dollars", math.fsum(costs), detail=f"n={len(costs):,}")] if costs else []
    )


# Curves and distributions.


def _returns(contents: Contents) -> dict[str, Any] | None:
    names = {run.id: run.name or "" for run in contents.runs}
    sides: dict[str, Sequence[EpisodeFigures]] = {**by_run(contents.episodes, names)}
    if contents.baseline:
        sides = {"base": contents.baseline, "candidate": contents.episodes}
    blocks = [
        episode_curve("Return", "return", sides, {"": attrgetter("return_")}),
        episode_curve("Reward", "reward", sides, {"": attrgetter("reward")})
        if _has_rewards(contents.episodes)
        else None,
        episode_curve("Success", "share of successes", sides, {"": _success}),
        episode_curve("Components", "score", {"": contents.episodes}, _components(contents.episodes)),
        episode_curve("Length", "steps", sides, {"": attrgetter("length")}),
        episode_curve("Tokens", "tokens", sides, {"": attrgetter("tokens")}),
        episode_curve("Invalid rewards", "share", sides, {"": _is_invalid}) if _rewarded(contents) else None,
    ]
    return section("returns", "Over time", blocks)


def _success(one: EpisodeFigures) -> float | None:
    return None if one.success is None else float(one.success)


def _is_invalid(one: EpisodeFigures) -> float:
    return float(one.reward_status != "ok")


def _rewarded(contents: Contents) -> bool:
    """Whether some rewards are valid and others are not."""
    return len({one.reward_status == "ok" for one in contents.episodes}) == 2


def _components(episodes: Iterable[EpisodeFigures]) -> dict[str, Callable[[EpisodeFigures], float | None]]:
    names = dict.fromkeys(name for one in episodes for name in one.components)

    def of(name: str) -> Callable[[EpisodeFigures], float | None]:
        return lambda one: one.components.get(name)

    return {name: of(name) for name in [*names][:_MOST_COMPONENTS]}


def _distributions(contents: Contents) -> dict[str, Any] | None:
    sides = {"": contents.episodes}
    if contents.baseline:
        sides = {"base": contents.baseline, "candidate": contents.episodes}
    measures = {
        "Return": ("return", "return_"),
        "Reward": ("reward", "reward"),
        "Length": ("steps", "length"),
        "Tokens": ("tokens", "tokens"),
        "Duration": ("seconds", "duration"),
    }
    blocks = [
        histogram(
            title,
            axis(label),
            {side: numbers(episodes, attrgetter(name)) for side, episodes in sides.items()},
        )
        for title, (label, name) in measures.items()
        if _has(contents.episodes, name) and (name != "reward" or _has_rewards(contents.episodes))
    ]
    return section("distributions", "Distributions", [*blocks, _reward_against_length(contents)])


def _reward_against_length(contents: Contents) -> dict[str, Any] | None:
    """Reward, else return, against length in tokens, else in steps; by outcome."""
    episodes = contents.episodes
    reward = "reward" if _has(episodes, "reward") else "return_"
    length = "tokens" if _has(episodes, "tokens") else "length"
    stride = max(1, math.ceil(len(episodes) / _MOST_POINTS))
    points: dict[str, list[tuple[float, float, str]]] = {}
    for one in episodes[::stride]:
        x, y = getattr(one, length), getattr(one, reward)
        if x is not None and y is not None and math.isfinite(y):
            points.setdefault(one.outcome, []).append((x, y, one.trace_id))
    shown = f"Each {stride:,}th episode." if stride > 1 else "Each point is an episode."
    y_label, x_label = reward.rstrip("_"), "steps" if length == "length" else "tokens"
    title = f"{y_label.capitalize()} against {x_label}"
    return scatter(title, axis(x_label), axis(y_label), points, f"{shown} Rank correlation: {_rank(points)}.")


def _rank(points: Mapping[str, Sequence[tuple[float, float, str]]]) -> str:
    """Spearman's rank correlation of all points, with n."""
    pairs = np.array([one[:2] for found in points.values() for one in found], float)
    if len(pairs) < 3 or any(len(np.unique(pairs[:, side])) < 2 for side in (0, 1)):
        return "not defined"
    found = scipy_stats().spearmanr(pairs[:, 0], pairs[:, 1]).statistic
    return f"Spearman {found:+.2f}, n={len(pairs):,}"


# Tables.


def _graders(contents: Contents) -> dict[str, Any] | None:
    columns = [
        column("grader"),
        column("component"),
        column("scope"),
        column("gradings", kind="number"),
        column("ok", kind="number"),
        column("failed", kind="number", help="errors, invalid results, and totals without a component"),
        column("abstained", kind="number"),
        column("missing", kind="number"),
        column("mean", kind="number", help="of the valid scores"),
        column("min", kind="number"),
        column("max", kind="number"),
        column("errors"),
    ]
    rows = [
        [
            *(one.grader, one.component, one.scope, one.gradings, one.ok, one.failed),
            *(one.abstained, one.missing, one.mean, one.min, one.max, _counted(Counter(one.errors))),
        ]
        for one in sorted(contents.graders, key=lambda one: -one.failed)
    ]
    return section("graders", "Graders", [table("Health of each grader and component", columns, rows)])


def _slices(contents: Contents) -> dict[str, Any] | None:
    def of(name: str) -> Callable[[EpisodeFigures], tuple[str, ...]]:
        return lambda one: (str(value),) if (value := getattr(one, name)) not in (None, "") else ()

    kinds = {
        "split": of("split"),
        "slice": lambda one: one.slices,
        "environment": of("env"),
        "policy version": of("policy_version"),
        "task": of("task"),
    }
    blocks = [_slice_table(name, contents.episodes, slices) for name, slices in kinds.items()]
    return section("slices", "Slices", blocks)


def _slice_table(
    name: str, episodes: Sequence[EpisodeFigures], slices: Callable[[EpisodeFigures], Sequence[str]]
) -> dict[str, Any] | None:
    """Means by slice, the lowest return first; None with fewer than two slices."""
    found: dict[str, list[EpisodeFigures]] = {}
    for one in episodes:
        for label in slices(one):
            found.setdefault(label, []).append(one)
    if len(found) < 2:
        return None
    columns = [
        column("slice", name),
        column("episodes", "episodes", "number"),
        column("return", kind="number"),
        column("reward", kind="number"),
        column("success", kind="share"),
        column("length", "steps", "number"),
        column("invalid", "invalid rewards", "number"),
        column("example", "lowest", "episode"),
    ]
    rows = sorted((_slice_row(label, members) for label, members in found.items()), key=_by_return)
    left_out = f"; the {_MOST_ROWS} lowest of {len(rows):,} are shown" if len(rows) > _MOST_ROWS else ""
    return table(f"By {name}", columns, rows[:_MOST_ROWS], f"Means of the known values{left_out}.")


def _slice_row(label: str, episodes: Sequence[EpisodeFigures]) -> list[Any]:
    means = [_mean(episodes, of) for of in (attrgetter("return_"), attrgetter("reward"), _success)]
    invalid = sum(one.reward_status != "ok" for one in episodes)
    lowest = min(episodes, key=lambda one: math.inf if one.return_ is None else one.return_)
    return [label, len(episodes), *means, _mean(episodes, attrgetter("length")), invalid, lowest.trace_id]


def _by_return(row: Sequence[Any]) -> tuple[float, str]:
    return (math.inf if row[2] is None else row[2]), row[0]


def _mean(episodes: Sequence[EpisodeFigures], of: Callable[[EpisodeFigures], float | None]) -> float | None:
    known = numbers(episodes, of)
    known = known[~np.isnan(known)]
    return float(known.mean()) if len(known) else None


def _updates(contents: Contents) -> dict[str, Any] | None:
    runs: dict[str, list[Update]] = {}
    for update in contents.updates:
        runs.setdefault(update.run_id, []).append(update)
    names = {run.id: run.name or run.id for run in contents.runs}
    own = dict.fromkeys(name for update in contents.updates for name in update.metrics)

    def metric(name: str) -> Callable[[Update], float | None]:
        return lambda update: update.metrics.get(name)

    measures: dict[str, Callable[[Update], float | None]] = {
        name: attrgetter(name) for name in _UPDATE_CURVES
    }
    measures |= {f"metrics.{name}": metric(name) for name in [*own][:_MOST_COMPONENTS]}
    blocks = [
        lines(
            name.replace("_", " "),
            axis("update"),
            axis(f"{name} in nats" if name in ("kl", "entropy") else name.replace("_", " ")),
            [_update_series(names.get(run, run), updates, of) for run, updates in runs.items()],
            "One value for each update, as the trainer reported it.",
        )
        for name, of in measures.items()
    ]
    return section("updates", "Updates", blocks)


def _update_series(
    name: str, updates: Sequence[Update], of: Callable[[Update], float | None]
) -> dict[str, Any]:
    x = [place if update.index is None else update.index for place, update in enumerate(updates)]
    y = [
        math.nan if (value := of(update)) is None or not math.isfinite(value) else value for update in updates
    ]
    return series(name, x, y, dots=len(x) < 50)


def _groups(contents: Contents) -> dict[str, Any] | None:
    if not contents.groups:
        return None
    equal = [one for one in contents.groups if one.reward_std == 0 and one.valid_count > 1]
    invalid = [one for one in contents.groups if one.valid_count < len(one.episodes)]
    items = [
        fact("groups", len(contents.groups)),
        fact(
            "with equal rewards",
            len(equal),
            detail="their advantages are 0: they teach nothing",
            state="warn" if 2 * len(equal) > len(contents.groups) else "plain",
        ),
        fact("with invalid rewards", len(invalid), state="warn" if invalid else "plain"),
    ]
    columns = [
        column("group"),
        column("task"),
        column("members", kind="number"),
        column("mean", kind="number"),
        column("std", "standard deviation", "number"),
        column("rewards"),
        column("advantages"),
        column("episodes", "members", "episodes"),
    ]
    shown = sorted(contents.groups, key=lambda one: -(one.reward_std or 0.0))[:_MOST_ROWS]
    rows = [
        [
            *(one.id, one.task, len(one.episodes), one.reward_mean, one.reward_std),
            *(_listed(one.rewards), _listed(one.advantages), " ".join(one.episodes)),
        ]
        for one in shown
    ]
    left_out = len(contents.groups) - len(shown)
    note = "The largest standard deviation first." + (
        f" {left_out:,} more are not shown." if left_out else ""
    )
    curve = lines(
        "Groups with equal rewards",
        axis("group"),
        axis("share"),
        [_equal_share(contents.groups)],
        "Share among the groups up to this one, in order of start; at most the last 50.",
    )
    return section("groups", "Groups", [facts(items), curve, table("Groups", columns, rows, note)])


def _equal_share(groups: Sequence[Group]) -> dict[str, Any]:
    equal = np.array([one.reward_std == 0 and one.valid_count > 1 for one in groups], float)
    sums = np.concatenate([[0.0], np.cumsum(equal)])
    ends = np.arange(1, len(equal) + 1)
    starts = np.maximum(ends - 50, 0)
    stride = max(1, len(equal) // 500)
    share = (sums[ends] - sums[starts]) / (ends - starts)
    return series("equal rewards", ends[::stride].tolist(), share[::stride].tolist())


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _runs(contents: Contents) -> dict[str, Any] | None:
    blocks: list[dict[str, Any] | None] = []
    for run in contents.runs:
        state = {"error": "bad", "aborted": "bad"}.get(run.status or "", "plain")
        items = [fact("run", run.name or run.id, detail=run.id if run.name else "")]
        items.append(fact("status", run.status or "running, or ended without a word", state=state))
        items += [
            fact(name.replace("_", " "), value)
            for name in _OF_RUN
            if (value := getattr(run, name)) not in (None, "")
        ]
        items += [fact("uncommitted changes", True, state="warn")] if run.dirty else []
        items += [fact(f"config.{key}", value) for key, value in _flat(run.config)]
        versions = ", ".join(f"{name} {version}" for name, version in run.packages.items())
        items += [fact("packages", len(run.packages), detail=versions)] if versions else []
        items += [fact("fault", one, state="warn") for one in run.faults]
        blocks.append(facts(items))
        if len(blocks) == _MOST_COMPONENTS and len(contents.runs) > len(blocks):
            blocks.append(note(f"{len(contents.runs) - len(blocks):,} more processes are not shown."))
            break
    return section("runs", "Runs", blocks)


def _flat(config: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(config, dict) and config:
        return [one for key, value in config.items() for one in _flat(value, f"{prefix}{key}.")]
    return [] if config is None else [(prefix.rstrip("."), config)]


def _problems(contents: Contents) -> dict[str, Any] | None:
    columns = [column("kind"), column("message"), column("episode", kind="episode")]
    known = {one.trace_id for one in contents.episodes}
    rows = [
        [one.kind, str(one), one.trace_id if one.trace_id in known else None]
        for one in contents.problems[:_MOST_ROWS]
    ]
    left_out = len(contents.problems) - len(rows)
    more = f"{left_out:,} more are not shown." if left_out else ""
    faults = table(
        "Faults",
        [column("kind"), column("count", kind="number")],
        sorted(contents.faults.items(), key=lambda one: -one[1]),
        "Values that could not be recorded as they were given.",
    )
    return section("problems", "Problems", [table("Problems of the recording", columns, rows, more), faults])
