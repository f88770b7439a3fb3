"""The tables of an overview: graders, slices, updates, groups, runs and problems."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.episodes import Run
from mttp.model.gradings import GraderHealth
from mttp.pages.blocks import axis, column, fact, facts, lines, note, section, series, table
from mttp.reading.problems import Problem
from mttp.viewing.figures import EpisodeDatabase, groups, slices

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


def slices_section(episodes: EpisodeDatabase) -> dict[str, Any] | None:
    """Return means by split, slice, environment, policy version and task."""
    names = ("split", "slices", "environment", "policy_version", "task")
    return section("slices", "Slices", [_slice_table(name, slices(episodes, name)) for name in names])


def _slice_table(name: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return means by slice; None with fewer than two slices."""
    if len(rows) < 2:
        return None
    title = name.replace("_", " ").removesuffix("s")
    columns = [
        column("slice", title),
        column("episodes", "episodes", "number"),
        column("return", kind="number"),
        column("reward", kind="number"),
        column("success", kind="share"),
        column("length", "steps", "number"),
        column("invalid", "invalid rewards", "number"),
        column("example", "lowest", "episode"),
    ]
    number = rows[0]["number"]
    left_out = f"; the {len(rows)} lowest of {number:,} are shown" if len(rows) < number else ""
    cells = [[*row.values()][: len(columns)] for row in rows]
    return table(f"By {title}", columns, cells, f"Means of the known values{left_out}.")


def updates_section(runs: Sequence[Run], updates: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return curves over the updates of each run."""
    by_run: dict[str, list[dict[str, Any]]] = {}
    for update in updates:
        metrics = {f"metrics.{name}": value for name, value in (update["metrics"] or {}).items()}
        by_run.setdefault(update["run_id"], []).append({**update, **metrics})
    names = {run.id: run.name or run.id for run in runs}
    numbers = dict.fromkeys(
        name
        for of_run in by_run.values()
        for update in of_run
        for name in update
        if name.startswith("metrics.")
    )
    blocks = [
        lines(
            name.replace("_", " "),
            axis("update"),
            axis(f"{name} in nats" if name in ("kl", "entropy") else name.replace("_", " ")),
            [_update_series(names.get(run, run), of_run, name) for run, of_run in by_run.items()],
            "One value for each update, as the trainer reported it.",
        )
        for name in (*UPDATE_NUMBERS, *[*numbers][:_MOST_CURVES])
    ]
    return section("updates", "Updates", blocks)


def _update_series(title: str, updates: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    x = [place if update["index"] is None else update["index"] for place, update in enumerate(updates)]
    values = [update.get(name) for update in updates]
    y = [math.nan if value is None or not math.isfinite(value) else value for value in values]
    return series(title, x, y, dots=len(x) < 50)


def groups_section(episodes: EpisodeDatabase) -> dict[str, Any] | None:
    """Return rewards and advantages of groups, and the share of those whose rewards are equal."""
    rows = groups(episodes)
    if not rows:
        return None
    equal = sum(map(_is_equal, rows))
    invalid = sum(row["valid"] < len(row["episodes"]) for row in rows)
    items = [
        fact("groups", len(rows)),
        fact(
            "with equal rewards",
            equal,
            detail="their advantages are 0: they teach nothing",
            state="warn" if 2 * equal > len(rows) else "plain",
        ),
        fact("with invalid rewards", invalid, state="warn" if invalid else "plain"),
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
    shown = sorted(rows, key=lambda row: -(row["deviation"] or 0.0))[:_MOST_ROWS]
    cells = [
        [
            *(row["id"], row["task"], len(row["episodes"]), row["mean"], row["deviation"]),
            *(_listed(row["rewards"]), _listed(row["advantages"]), " ".join(row["episodes"])),
        ]
        for row in shown
    ]
    left_out = len(rows) - len(shown)
    note = "The largest standard deviation first." + (
        f" {left_out:,} more are not shown." if left_out else ""
    )
    curve = lines(
        "Groups with equal rewards",
        axis("group"),
        axis("share"),
        [_equal_share(rows)],
        "Share among the groups up to this one, in order of start; at most the last 50.",
    )
    return section("groups", "Groups", [facts(items), curve, table("Groups", columns, cells, note)])


def _is_equal(group: Mapping[str, Any]) -> bool:
    return bool(group["deviation"] == 0 and group["valid"] > 1)


def _equal_share(groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    equal = np.array([*map(_is_equal, groups)], float)
    sums = np.concatenate([[0.0], np.cumsum(equal)])
    ends = np.arange(1, len(equal) + 1)
    starts = np.maximum(ends - 50, 0)
    stride = max(1, len(equal) // 500)
    share = (sums[ends] - sums[starts]) / (ends - starts)
    return series("equal rewards", ends[::stride].tolist(), share[::stride].tolist())


def _listed(values: Sequence[float | None]) -> str:
    if all(value is None for value in values):
        return ""
    return ", ".join("nan" if value is None else f"{value:.4g}" for value in values)


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
