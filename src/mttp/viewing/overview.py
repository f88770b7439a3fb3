"""The overview of a recording: its sections, from facts of the runs to problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.model.episodes import Group, Run, Update
from mttp.model.gradings import GraderHealth
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
from mttp.viewing.curves import by_run, episode_curve
from mttp.viewing.episode_table import EpisodeTable, Floats
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
    with np.errstate(over="ignore", invalid="ignore"):  # squares of huge rewards
        return [found for make in makers if (found := make(contents)) is not None]


# The summary.


def _summary(contents: Contents) -> dict[str, Any] | None:
    episodes = contents.episodes
    if not len(episodes):
        return section("summary", "Summary", [note("The recording holds no episodes.", "warn")])
    items = [
        fact("episodes", len(episodes), detail=_counted(episodes.counts("status"), "completed")),
        fact("steps", int(episodes.numbers("length").sum())),
        _mean_fact("return", episodes.numbers("return")),
        *([_mean_fact("reward", episodes.numbers("reward"))] if _has_rewards(episodes) else []),
        *_success_fact(episodes.numbers("success")),
        *_invalid_fact(episodes.counts("reward_status")),
        _mean_fact("length", episodes.numbers("length")),
        *_totals(episodes),
        fact("runs", len(episodes.counts("run"))),
    ]
    failures = sum(one.failed for one in contents.graders)
    if failures:
        items.append(fact("failed gradings", failures, detail="see graders", state="bad"))
    if contents.faults:
        total = sum(contents.faults.values())
        items.append(fact("faults", total, detail=_counted(contents.faults), state="warn"))
    if contents.problems:
        items.append(fact("problems", len(contents.problems), detail="see problems", state="warn"))
    return section("summary", "Summary", [facts(items)])


def _has_rewards(episodes: EpisodeTable) -> bool:
    """Whether a reward differs from the return."""
    reward, return_ = episodes.numbers("reward"), episodes.numbers("return")
    return bool((~np.isnan(reward) & (reward != return_)).any())


def _counted(counts: Mapping[str, int], *without: str) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if name not in without)


def _known(values: Floats) -> Floats:
    return values[~np.isnan(values)]


def _mean(values: Floats) -> float | None:
    known = _known(values)
    return float(known.mean()) if len(known) else None


def _mean_fact(label: str, values: Floats) -> dict[str, Any]:
    known = _known(values)
    if not len(known):
        return fact(f"mean {label}", None, detail="no episode has one")
    spread = f", standard deviation {known.std(ddof=1):.4g}" if len(known) > 1 else ""
    return fact(f"mean {label}", float(known.mean()), detail=f"n={len(known):,}{spread}")


def _success_fact(values: Floats) -> list[dict[str, Any]]:
    known = _known(values)
    if not len(known):
        return []
    detail = f"{int(known.sum()):,} of {len(known):,} with an outcome"
    return [fact("success", float(known.mean()), detail=detail)]


def _invalid_fact(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    """Missing and failed rewards, where any episode has a reward."""
    invalid = {status: count for status, count in counts.items() if status != "ok"}
    if not invalid or {*counts} == {"missing"}:
        return []
    state = "bad" if "error" in invalid else "warn"
    return [fact("without a valid reward", sum(invalid.values()), detail=_counted(invalid), state=state)]


def _totals(episodes: EpisodeTable) -> list[dict[str, Any]]:
    tokens, costs = _known(episodes.numbers("tokens")), _known(episodes.numbers("cost"))
    found = [fact("tokens", int(tokens.sum()))] if len(tokens) else []
    return found + (
        [fact("cost in US dollars", float(costs.sum()), detail=f"n={len(costs):,}")] if len(costs) else []
    )


# Curves and distributions.

Values: TypeAlias = Callable[[EpisodeTable], Floats]


def _column(name: str) -> Values:
    return lambda episodes: episodes.numbers(name)


def _invalid(episodes: EpisodeTable) -> Floats:
    codes, words = episodes.labels("reward_status")
    return (codes != words.index("ok")).astype(float) if "ok" in words else np.ones(len(episodes))


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
        curve("Invalid rewards", "share", _invalid, is_share=True) if _is_partly_invalid(episodes) else None,
    ]
    return section("returns", "Over time", blocks)


def _is_partly_invalid(episodes: EpisodeTable) -> bool:
    statuses = {*episodes.counts("reward_status")}
    return "ok" in statuses and len(statuses) > 1


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
        if not len(_known(values)) or (name == "reward" and not _has_rewards(episodes)):
            continue
        sides = {"": values} if baseline is None else {"base": baseline.numbers(name), "candidate": values}
        blocks.append(histogram(title, axis(label), sides))
    return section("distributions", "Distributions", [*blocks, _reward_against_length(episodes)])


def _reward_against_length(episodes: EpisodeTable) -> dict[str, Any] | None:
    """Reward, else return, against length in tokens, else in steps; by outcome."""
    y_name = "reward" if len(_known(episodes.numbers("reward"))) else "return"
    x_name = "tokens" if len(_known(episodes.numbers("tokens"))) else "length"
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
            *(one.abstained, one.missing, one.mean, one.min, one.max, _counted(one.errors)),
        ]
        for one in sorted(contents.graders, key=lambda one: -one.failed)
    ]
    return section("graders", "Graders", [table("Health of each grader and component", columns, rows)])


def _slices(contents: Contents) -> dict[str, Any] | None:
    episodes = contents.episodes
    labelled = {"split": "split", "environment": "env", "policy version": "policy_version", "task": "task"}
    rows = {name: _rows_by_label(episodes, column) for name, column in labelled.items()}
    kinds = {"split": rows["split"], "slice": episodes.slices(), **rows}
    return section("slices", "Slices", [_slice_table(name, episodes, found) for name, found in kinds.items()])


def _rows_by_label(episodes: EpisodeTable, name: str) -> dict[str, np.ndarray[Any, Any]]:
    codes, words = episodes.labels(name)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(words) + 1))
    return {word: order[ends[code] : ends[code + 1]] for code, word in enumerate(words)}


def _slice_table(
    name: str, episodes: EpisodeTable, slices: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, Any] | None:
    """Means by slice, the lowest return first; None with fewer than two slices."""
    if len(slices) < 2:
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
    measures = {one: episodes.numbers(one) for one in ("return", "reward", "success", "length")}
    invalid = _invalid(episodes)
    found: list[tuple[str, int, list[float | None], int, int]] = []
    for label, rows in slices.items():
        means = [_mean(values[rows]) for values in measures.values()]
        lowest = rows[int(np.argmin(np.nan_to_num(measures["return"][rows], nan=np.inf)))]
        found.append((label, len(rows), means, int(invalid[rows].sum()), int(lowest)))
    found.sort(key=lambda row: (math.inf if row[2][0] is None else row[2][0], row[0]))
    shown = [
        [label, count, *means, bad, episodes.episode(lowest)]
        for label, count, means, bad, lowest in found[:_MOST_ROWS]
    ]
    left_out = f"; the {_MOST_ROWS} lowest of {len(found):,} are shown" if len(found) > _MOST_ROWS else ""
    return table(f"By {name}", columns, shown, f"Means of the known values{left_out}.")


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
    rows = [[one.kind, str(one), one.trace_id] for one in contents.problems[:_MOST_ROWS]]
    left_out = len(contents.problems) - len(rows)
    more = f"{left_out:,} more are not shown." if left_out else ""
    faults = table(
        "Faults",
        [column("kind"), column("count", kind="number")],
        sorted(contents.faults.items(), key=lambda one: -one[1]),
        "Values that could not be recorded as they were given.",
    )
    return section("problems", "Problems", [table("Problems of the recording", columns, rows, more), faults])
