"""The overview of a recording: its sections, from facts of the runs to problems."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mttp.model.counting import NOT_COUNTED
from mttp.model.episodes import Run
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
from mttp.study.curve_marks import curve_marks
from mttp.study.diagnosis import SEVERITIES
from mttp.study.learning_curves import Timeline
from mttp.viewing.curves import CurveCharts
from mttp.viewing.diagnoses import Diagnoses
from mttp.viewing.figures import EpisodeDatabase, Figures, Floats, figures, known, update_figures
from mttp.viewing.overview_tables import (
    environments_table,
    graders_section,
    groups_section,
    problems_section,
    runs_section,
    slices_section,
    update_charts,
)
from mttp.viewing.update_page import updates_table

if TYPE_CHECKING:
    from mttp.study import Comparison, GateResult
    from mttp.tables.summary import RecordedVerdict

__all__ = ["Contents", "marks", "sections", "with_problems"]

_MOST_POINTS = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an overview shows."""

    episodes: EpisodeDatabase
    """A database with the table of all episodes."""
    runs: Sequence[Run] = ()
    graders: Sequence[GraderHealth] = ()
    faults: dict[str, int] = field(default_factory=dict)
    """Number of faults by kind."""
    updates: Sequence[Mapping[str, Any]] = ()
    """The rows of `UPDATES`."""
    baseline: Figures | None = None
    """The episodes of the baseline."""
    comparison: Comparison | str | None = None
    """A text says why the sides were not compared."""
    diagnoses: Diagnoses = field(default_factory=dict)
    gate: GateResult | None = None
    verdicts: Sequence[RecordedVerdict] = ()
    """The verdicts that were recorded before."""


def sections(contents: Contents, picked: Contents | None = None) -> list[dict[str, Any]]:
    """
    Return the sections of the overview that have contents.

    `picked` are the contents of some of the runs; then the table of runs has all, and the rest these.
    """
    of_all = figures(contents.episodes)
    of_runs = runs_section(contents.runs, of_all, contents.diagnoses)
    has_several = len({run.id for run in contents.runs}) > 1
    shown = contents if picked is None else picked
    counted_figures = of_all if picked is None else figures(shown.episodes)
    updates = update_figures(shown.updates)
    charts = CurveCharts(counted_figures, updates, shown.runs, baseline=shown.baseline)
    has_environments = len(_environments(counted_figures)) > 1
    with np.errstate(over="ignore", invalid="ignore"):  # squares of huge rewards
        parts = (
            of_runs if has_several else None,
            _summary(shown, counted_figures),
            gate_section(shown.gate, shown.verdicts),
            comparison_section(shown.comparison),
            _returns(charts, counted_figures),
            diagnosis_section(shown.diagnoses, _names(shown.runs)),
            _distributions(counted_figures, shown.baseline),
            graders_section(shown.graders, len(counted_figures["run_id"])),
            slices_section(shown.episodes, by_environment=has_environments),
            section(
                "updates",
                "Updates",
                [*update_charts(charts, updates), updates_table(shown.updates, _names(shown.runs))],
            ),
            groups_section(shown.episodes),
            None if has_several else of_runs,
        )
    return [each for each in parts if each is not None]


def marks(contents: Contents) -> list[dict[str, Any]]:
    """Return what is marked on the curves."""
    episodes, updates = figures(contents.episodes), update_figures(contents.updates)
    timeline = Timeline(episodes, updates)
    return [mark.to_dict() for mark in curve_marks(timeline, episodes, contents.updates, contents.diagnoses)]


def _environments(episodes: Figures) -> list[str]:
    return [*dict.fromkeys(episodes["env"].tolist())]


def with_problems(
    made: Sequence[dict[str, Any]], problems: Sequence[Problem], faults: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return sections with the problems of the recording, which the summary counts."""
    listed = problems_section(problems, faults)
    return [*(_warned(each, problems) if each["id"] == "summary" else each for each in made)] + (
        [] if listed is None else [listed]
    )


def _warned(summary: dict[str, Any], problems: Sequence[Problem]) -> dict[str, Any]:
    block, *rest = summary["blocks"]
    if not problems or block["type"] != "facts":
        return summary
    number = fact("problems", len(problems), detail="see problems", state="warn")
    warnings = [note(sentence, "bad") for sentence in sampled(problems)]
    return {**summary, "blocks": [*warnings, {**block, "items": [*block["items"], number]}, *rest]}


def _names(runs: Sequence[Run]) -> dict[str, str]:
    return {run.id: run.name or run.id for run in runs}


# The summary.


def _summary(contents: Contents, episodes: Figures) -> dict[str, Any] | None:
    recorded = contents.episodes.rows(
        "SELECT status, counts_reason AS reason, count(*) AS number, sum(length)::BIGINT AS steps "
        "FROM episodes GROUP BY ALL ORDER BY number DESC, status, reason"
    )
    if not recorded:
        return section("summary", "Summary", [note("The recording holds no episodes.", "warn")])
    (runs,) = contents.episodes.rows("SELECT count(DISTINCT run_id) AS number FROM episodes")
    environments = _environments(episodes)
    items = [
        *_findings_fact(contents.diagnoses),
        fact(
            "episodes",
            sum(row["number"] for row in recorded),
            detail=counted(_counts(recorded, "status"), "completed"),
        ),
        *_uncounted_fact(_counts(recorded, "reason")),
        fact("steps", sum(row["steps"] for row in recorded)),
        *([fact("environments", len(environments))] if len(environments) > 1 else _means(episodes)),
        *_invalid_fact(episodes),
        *_totals(episodes),
        fact("runs", runs["number"]),
    ]
    failures = sum(grader.failed for grader in contents.graders)
    if failures:
        items.append(fact("failed gradings", failures, detail="see graders", state="bad"))
    if contents.faults:
        total = sum(contents.faults.values())
        items.append(fact("faults", total, detail=counted(contents.faults), state="warn"))
    return section("summary", "Summary", [facts(items), environments_table(contents.episodes)])


def _findings_fact(diagnoses: Diagnoses) -> list[dict[str, Any]]:
    """Return whether anything is broken: the findings by severity, unless nothing was diagnosed."""
    diagnosed = [diagnosis for diagnosis in diagnoses.values() if not isinstance(diagnosis, str)]
    if not diagnosed:
        return []
    findings = Counter[str](finding.severity for diagnosis in diagnosed for finding in diagnosis.findings)
    state = "bad" if findings["high"] else "warn" if findings["medium"] else "plain"
    by_severity: dict[str, int] = {name: findings[name] for name in SEVERITIES if findings[name]}
    return [fact("findings", findings.total(), detail=counted(by_severity), state=state)]


def _means(episodes: Figures) -> list[dict[str, Any]]:
    """Return the means of one environment."""
    return [
        _mean_fact("return", episodes["return"]),
        *([_mean_fact("reward", episodes["reward"])] if _has_rewards(episodes) else []),
        *_success_fact(episodes["success"]),
        _mean_fact("length", episodes["length"]),
    ]


def _counts(rows: Sequence[Mapping[str, Any]], name: str) -> Counter[str]:
    """Return the number of episodes by a word."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row[name]] += row["number"]
    return counts


def _has_rewards(episodes: Figures) -> bool:
    """Return whether a reward differs from the return."""
    reward, return_ = episodes["reward"], episodes["return"]
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


def _uncounted_fact(reasons: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return the number of episodes that do not count, and why."""
    numbers = {words: reasons[reason] for reason, words in NOT_COUNTED.items() if reason in reasons}
    if not numbers:
        return []
    detail = "; ".join(f"{number:,} {words}" for words, number in numbers.items())
    return [fact("not counted", sum(numbers.values()), detail=detail, state="warn")]


def _invalid_fact(episodes: Figures) -> list[dict[str, Any]]:
    """Return missing and failed rewards, where any episode has a reward."""
    statuses = episodes["reward_status"]
    invalid = dict(Counter(statuses[episodes["invalid"] == 1].tolist()).most_common())
    if not invalid or {*statuses} == {"missing"}:
        return []
    state = "bad" if "error" in invalid else "warn"
    return [fact("without a valid reward", sum(invalid.values()), detail=counted(invalid), state=state)]


def _totals(episodes: Figures) -> list[dict[str, Any]]:
    tokens, costs = known(episodes["tokens"]), known(episodes["cost"])
    totals = [fact("tokens", int(tokens.sum()))] if len(tokens) else []
    return totals + (
        [fact("cost in US dollars", float(costs.sum()), detail=f"n={len(costs):,}")] if len(costs) else []
    )


# Curves and distributions.


def _returns(charts: CurveCharts, episodes: Figures) -> dict[str, Any] | None:
    components = [name for name in episodes if name.startswith("components.")]
    is_partly_invalid = 0 < episodes["invalid"].sum() < len(episodes["invalid"])
    blocks = [
        *charts.of("Return", "return", {"return": "return"}),
        *(charts.of("Reward", "reward", {"reward": "reward"}) if _has_rewards(episodes) else ()),
        *charts.of("Success", "share of successes", {"success": "success"}),
        *charts.of("Components", "score", {name.removeprefix("components."): name for name in components}),
        *charts.of("Length", "steps", {"length": "length"}),
        *charts.of("Tokens", "tokens", {"tokens": "tokens"}),
        *(charts.of("Invalid rewards", "share", {"invalid": "invalid"}) if is_partly_invalid else ()),
    ]
    return section("returns", "Over time", [*blocks, charts.constant()])


def _distributions(episodes: Figures, baseline: Figures | None) -> dict[str, Any] | None:
    measures = {"return": "return", "reward": "reward", "length": "steps", "tokens": "tokens"}
    blocks = []
    for name, label in {**measures, "duration": "seconds"}.items():
        sides = _by_environment(
            name, {"": episodes} if baseline is None else {"base": baseline, "candidate": episodes}
        )
        if not _vary(*sides.values()) or (name == "reward" and not _has_rewards(episodes)):
            continue
        blocks.append(histogram(name.capitalize(), axis(label), sides))
    return section("distributions", "Distributions", [*blocks, _reward_against_length(episodes)])


def _by_environment(name: str, sides: Mapping[str, Figures]) -> dict[str, Floats]:
    """Return a column of each side, and of each environment where there are several."""
    environments = {env for episodes in sides.values() for env in _environments(episodes)}
    if len(environments) < 2:
        return {side: episodes[name] for side, episodes in sides.items()}
    return {
        ", ".join(filter(None, (side, env or "no environment"))): episodes[name][episodes["env"] == env]
        for side, episodes in sides.items()
        for env in _environments(episodes)
    }


def _vary(*sides: Floats) -> bool:
    return len({*np.concatenate([known(values) for values in sides]).tolist()}) > 1


def _reward_against_length(episodes: Figures) -> dict[str, Any] | None:
    """Return reward, else return, against length in tokens or steps, by environment or outcome."""
    y_name = "reward" if len(known(episodes["reward"])) else "return"
    x_name = "tokens" if len(known(episodes["tokens"])) else "length"
    if not (_vary(episodes[x_name]) and _vary(episodes[y_name])):
        return None
    stride = max(1, math.ceil(len(episodes["trace_id"]) / _MOST_POINTS))
    label_name = "env" if len(_environments(episodes)) > 1 else "outcome"
    names = (x_name, y_name, label_name, "trace_id")
    points: dict[str, list[tuple[float, float, str]]] = {}
    for x, y, group, trace_id in zip(*(episodes[name][::stride].tolist() for name in names), strict=True):
        if not (math.isnan(x) or math.isnan(y)):
            points.setdefault(group, []).append((x, y, trace_id))
    label = "steps" if x_name == "length" else "tokens"
    what = f"Each {stride:,}th episode." if stride > 1 else "Each point is an episode."
    ranks = _rank([*points.values()])
    if label_name == "env":
        ranks = "; ".join(f"{env or 'no environment'} {_rank([of_env])}" for env, of_env in points.items())
    note = f"{what} Rank correlation: {ranks}."
    return scatter(f"{y_name.capitalize()} against {label}", axis(label), axis(y_name), points, note)


def _rank(points: Sequence[Sequence[tuple[float, float, str]]]) -> str:
    """Return Spearman's rank correlation of all points, with n."""
    pairs = np.array([point[:2] for part in points for point in part], float)
    if len(pairs) < 3 or any(len(np.unique(pairs[:, side])) < 2 for side in (0, 1)):
        return "not defined"
    correlation = scipy_stats().spearmanr(pairs[:, 0], pairs[:, 1]).statistic
    return f"Spearman {correlation:+.2f}, n={len(pairs):,}"
