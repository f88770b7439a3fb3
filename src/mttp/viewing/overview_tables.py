"""The tables of an overview: graders, slices, updates, groups, runs and problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.episodes import Group, Run, Update
from mttp.model.gradings import GraderHealth
from mttp.pages.blocks import axis, column, fact, facts, lines, note, section, series, table
from mttp.reading.problems import Problem
from mttp.viewing.episode_table import EpisodeTable, Floats, mean

__all__ = [
    "graders_section",
    "groups_section",
    "problems_section",
    "runs_section",
    "slices_section",
    "updates_section",
]

_MOST_ROWS = 200
_MOST_CURVES = 12
_MOST_ERRORS = 3
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


def graders_section(graders: Sequence[GraderHealth]) -> dict[str, Any] | None:
    """How often each grader and component was ok, failed or abstained."""
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
            *(one.abstained, one.missing, one.mean, one.min, one.max, _errors(one)),
        ]
        for one in sorted(graders, key=lambda one: -one.failed)
    ]
    return section("graders", "Graders", [table("Health of each grader and component", columns, rows)])


def _errors(one: GraderHealth) -> str:
    """The most frequent errors: class, message, count and the first episode."""
    first = [
        f"{': '.join(filter(None, (failure.error_type, failure.message)))} "
        f"({failure.count:,}, first {failure.first[:8]})"
        for failure in one.failures[:_MOST_ERRORS]
    ]
    return "; ".join(first) + (" ..." if len(one.failures) > _MOST_ERRORS else "")


def slices_section(episodes: EpisodeTable) -> dict[str, Any] | None:
    """Means by split, slice, environment, policy version and task."""
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
    invalid = episodes.invalid_rewards()
    shown = []
    for label in _lowest(measures["return"], slices)[:_MOST_ROWS]:
        rows = slices[label]
        means = [mean(values[rows]) for values in measures.values()]
        lowest = rows[int(np.argmin(np.nan_to_num(measures["return"][rows], nan=np.inf)))]
        shown.append([label, len(rows), *means, int(invalid[rows].sum()), episodes.episode(int(lowest))])
    left_out = f"; the {_MOST_ROWS} lowest of {len(slices):,} are shown" if len(slices) > _MOST_ROWS else ""
    return table(f"By {name}", columns, shown, f"Means of the known values{left_out}.")


def _lowest(values: Floats, slices: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """The names of the slices by their mean, the lowest first, those without a value last."""
    rows = np.concatenate([*slices.values()])
    codes = np.repeat(np.arange(len(slices)), [len(found) for found in slices.values()])
    is_known = ~np.isnan(values[rows])
    counts = np.bincount(codes[is_known], minlength=len(slices))
    sums = np.bincount(codes[is_known], weights=values[rows][is_known], minlength=len(slices))
    means = np.where(counts > 0, sums / np.maximum(counts, 1), np.inf)
    names = [*slices]
    return [
        names[place] for place in sorted(range(len(names)), key=lambda place: (means[place], names[place]))
    ]


def updates_section(runs: Sequence[Run], updates: Sequence[Update]) -> dict[str, Any] | None:
    """Curves over the updates of each run."""
    by_run: dict[str, list[Update]] = {}
    for update in updates:
        by_run.setdefault(update.run_id, []).append(update)
    names = {run.id: run.name or run.id for run in runs}
    own = dict.fromkeys(name for update in updates for name in update.metrics)

    def metric(name: str) -> Callable[[Update], float | None]:
        return lambda update: update.metrics.get(name)

    measures: dict[str, Callable[[Update], float | None]] = {
        name: attrgetter(name) for name in UPDATE_NUMBERS
    }
    measures |= {f"metrics.{name}": metric(name) for name in [*own][:_MOST_CURVES]}
    blocks = [
        lines(
            name.replace("_", " "),
            axis("update"),
            axis(f"{name} in nats" if name in ("kl", "entropy") else name.replace("_", " ")),
            [_update_series(names.get(run, run), of_run, of) for run, of_run in by_run.items()],
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


def groups_section(groups: Sequence[Group]) -> dict[str, Any] | None:
    """Rewards and advantages of groups, and the share of those whose rewards are equal."""
    if not groups:
        return None
    equal = [one for one in groups if one.reward_std == 0 and one.valid_count > 1]
    invalid = [one for one in groups if one.valid_count < len(one.episodes)]
    items = [
        fact("groups", len(groups)),
        fact(
            "with equal rewards",
            len(equal),
            detail="their advantages are 0: they teach nothing",
            state="warn" if 2 * len(equal) > len(groups) else "plain",
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
    shown = sorted(groups, key=lambda one: -(one.reward_std or 0.0))[:_MOST_ROWS]
    rows = [
        [
            *(one.id, one.task, len(one.episodes), one.reward_mean, one.reward_std),
            *(_listed(one.rewards), _listed(one.advantages), " ".join(one.episodes)),
        ]
        for one in shown
    ]
    left_out = len(groups) - len(shown)
    note = "The largest standard deviation first." + (
        f" {left_out:,} more are not shown." if left_out else ""
    )
    curve = lines(
        "Groups with equal rewards",
        axis("group"),
        axis("share"),
        [_equal_share(groups)],
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


def runs_section(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Configuration, versions and seeds of each process."""
    blocks: list[dict[str, Any] | None] = []
    for run in runs:
        state = {"error": "bad", "aborted": "bad"}.get(run.status or "", "plain")
        items = [fact("run", run.name or run.id, detail=run.id if run.name else "")]
        items.append(fact("status", run.status or "running, or its end was not recorded", state=state))
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
        if len(blocks) == _MOST_CURVES and len(runs) > len(blocks):
            blocks.append(note(f"{len(runs) - len(blocks):,} more processes are not shown."))
            break
    return section("runs", "Runs", blocks)


def _flat(config: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(config, dict) and config:
        return [one for key, value in config.items() for one in _flat(value, f"{prefix}{key}.")]
    return [] if config is None else [(prefix.rstrip("."), config)]


def problems_section(problems: Sequence[Problem], counts: Mapping[str, int]) -> dict[str, Any] | None:
    """Problems of the recording, and faults by kind."""
    columns = [column("kind"), column("message"), column("episode", kind="episode")]
    rows = [[one.kind, str(one), one.trace_id] for one in problems[:_MOST_ROWS]]
    left_out = len(problems) - len(rows)
    more = f"{left_out:,} more are not shown." if left_out else ""
    faults = table(
        "Faults",
        [column("kind"), column("count", kind="number")],
        sorted(counts.items(), key=lambda one: -one[1]),
        "Values that could not be recorded as they were given.",
    )
    return section("problems", "Problems", [table("Problems of the recording", columns, rows, more), faults])
