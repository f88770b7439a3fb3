"""The tables of an overview: graders, slices, updates, groups, runs and problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mttp.model.curves import UPDATE_NUMBERS
from mttp.model.episodes import Run
from mttp.model.gradings import GraderHealth
from mttp.pages.blocks import column, fact, facts, section, table
from mttp.pages.graders import documents, graders_table
from mttp.pages.groups import groups_page
from mttp.pages.problems import problems_section
from mttp.reading.jsonable import to_json
from mttp.study.diagnosis import SEVERITIES, Diagnosis
from mttp.viewing.curves import CurveCharts
from mttp.viewing.diagnoses import Diagnoses
from mttp.viewing.figures import EpisodeDatabase, Figures, Floats, groups, known, slices

__all__ = [
    "environments_table",
    "graders_section",
    "groups_section",
    "problems_section",
    "runs_section",
    "slices_section",
    "update_charts",
]

_MOST_ROWS = 200
_MOST_SETTINGS = 8
_TENTHS = 10
_BARS = "▁▂▃▄▅▆▇█"
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


def graders_section(graders: Sequence[GraderHealth], episodes: int) -> dict[str, Any] | None:
    """Return how often each grader and component was ok, failed or abstained, the most failures first."""
    listed = documents(sorted(graders, key=lambda grader: -grader.failed), episodes)
    return section("graders", "Graders", [graders_table(listed)])


def slices_section(episodes: EpisodeDatabase, *, by_environment: bool) -> dict[str, Any] | None:
    """Return means by split, slice, policy version and task, those of several environments apart."""
    tables = (
        _slice_table(name, slices(episodes, name, by_environment=by_environment), is_folded=True)
        for name in ("split", "slices", "policy_version", "task")
    )
    return section("slices", "Slices", tables)


def environments_table(episodes: EpisodeDatabase) -> dict[str, Any] | None:
    """Return means by environment; None with fewer than two."""
    return _slice_table("environment", slices(episodes, "environment"))


def _slice_table(
    name: str, rows: Sequence[Mapping[str, Any]], *, is_folded: bool = False
) -> dict[str, Any] | None:
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
    note = f"Means of the known values{left_out}."
    return table(f"By {title}", columns, cells, note, is_folded=is_folded)


def update_charts(charts: CurveCharts, updates: Figures) -> list[dict[str, Any] | None]:
    """Return curves over the updates of each run."""
    blocks: list[dict[str, Any] | None] = []
    for name in (*UPDATE_NUMBERS, *(name for name in updates if name.startswith("metrics."))):
        label = f"{name} in nats" if name in ("kl", "entropy") else name.replace("_", " ")
        blocks += charts.of(name.replace("_", " "), label, {name: name}, of_updates=True)
    return [*blocks, charts.constant()]


def groups_section(episodes: EpisodeDatabase) -> dict[str, Any] | None:
    """Return rewards and advantages of groups, and the share of those whose rewards are equal."""
    return groups_page(groups(episodes), most=_MOST_ROWS)


def runs_section(runs: Sequence[Run], episodes: Figures, diagnosed: Diagnoses) -> dict[str, Any] | None:
    """Return the runs beside each other, what differs between them first; one run as facts."""
    processes = runs
    runs = [*{run.id: run for run in reversed(processes)}.values()][::-1]
    if len(processes) == 1:
        return section("runs", "Runs", [facts(_facts_of(processes[0])), _packages(processes[0])])
    settings = [
        {f"config.{key}": value for key, value in _flat(run.config)} | {"seed": run.seed} for run in runs
    ]
    names = dict.fromkeys(name for of_run in settings for name in of_run)
    differing = [name for name in names if len({to_json(of_run.get(name)) for of_run in settings}) > 1]
    columns = [
        column("run", kind="run"),
        column("status", kind="state"),
        column("environment"),
        column("episodes", kind="number"),
        column("last return", kind="number", help="mean of the last tenth of the episodes"),
        column("trend", help="mean returns of the tenths of the episodes, from the lowest to the highest"),
        column("invalid", "invalid rewards", "number"),
        column("findings", help="of the diagnosis, by severity"),
        *(column(name, name.removeprefix("config.")) for name in differing[:_MOST_SETTINGS]),
    ]
    rows = [
        [
            *_row_of(run, episodes),
            _found(diagnosed.get(run.id)),
            *(_cell(of_run.get(name)) for name in differing[:_MOST_SETTINGS]),
        ]
        for run, of_run in zip(runs[:_MOST_ROWS], settings, strict=False)
    ]
    left_out = [f"{len(runs) - len(rows):,} more runs are not shown."] if len(runs) > len(rows) else []
    left_out += [f"Of {len(differing):,} settings that differ {_MOST_SETTINGS} are shown."] * (
        len(differing) > _MOST_SETTINGS
    )
    shared = [[name, _cell(settings[0].get(name))] for name in names if name not in differing]
    described = [
        [run.name or run.id, "; ".join(f"{item['label']} {item['value']}" for item in _facts_of(run)[1:])]
        for run in processes[:_MOST_ROWS]
    ]
    return section(
        "runs",
        "Runs",
        [
            {**(table("", columns, rows, " ".join(left_out)) or {}), "picks": True},
            table(
                "Settings that all runs share", [column("setting"), column("value")], shared, is_folded=True
            ),
            table("Processes", [column("run"), column("facts")], described, is_folded=True),
        ],
    )


def _row_of(run: Run, episodes: Figures) -> list[Any]:
    rows = episodes["run_id"] == run.id
    returns = episodes["return"][rows]
    means = (
        [_mean(part) for part in np.array_split(returns, min(_TENTHS, len(returns)))] if len(returns) else []
    )
    environments = [*dict.fromkeys(episodes["env"][rows].tolist())]
    return [
        f"{run.id} {run.name or ''}".strip(),
        run.status or "no end",
        ", ".join(filter(None, environments[:3])) + (", ..." if len(environments) > 3 else ""),
        len(returns),
        means[-1] if means else None,
        _sparkline(means),
        int(episodes["invalid"][rows].sum()),
    ]


def _found(diagnosis: Diagnosis | str | None) -> str:
    """Return the number of findings of each severity, in words."""
    if diagnosis is None or isinstance(diagnosis, str):
        return "" if diagnosis is None else "not diagnosed"
    counts = Counter(finding.severity for finding in diagnosis.findings)
    return (
        ", ".join(f"{counts[severity]} {severity}" for severity in SEVERITIES if counts[severity]) or "none"
    )


def _mean(values: Floats) -> float:
    finite = known(values)
    return float(finite.mean()) if len(finite) else math.nan


def _sparkline(values: Sequence[float]) -> str:
    """Return values as bars of characters, from the lowest to the highest; a dot where there is none."""
    finite = [value for value in values if math.isfinite(value)]
    low, high = min(finite, default=0.0), max(finite, default=0.0)
    width = (high - low) or 1.0
    return "".join(
        _BARS[round((value - low) / width * (len(_BARS) - 1))] if math.isfinite(value) else "·"
        for value in values
    )


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool, int, float)) else to_json(value)


def _facts_of(run: Run) -> list[dict[str, Any]]:
    """Return configuration, versions and seeds of a process."""
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
    return items + [fact("fault", fault, state="warn") for fault in run.faults]


def _packages(run: Run) -> dict[str, Any] | None:
    columns = [column("package"), column("version")]
    return table("Packages", columns, sorted(run.packages.items()), is_folded=True)


def _flat(config: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(config, dict) and config:
        return [pair for key, value in config.items() for pair in _flat(value, f"{prefix}{key}.")]
    return [] if config is None else [(prefix.rstrip("."), config)]
