"""Comparisons of two sides as a document, as tables and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from mttp.cli.rendering.listing import Listing
from mttp.cli.rendering.words import NOTHING, cell, count, number, printed

if TYPE_CHECKING:
    from mttp.model.statistics.aggregates import RunAggregates
    from mttp.study import Comparison, MetricComparison

__all__ = ["document", "headline", "markdown", "render"]

_STYLES = {"better": "green", "worse": "red", "equivalent": "cyan", "inconclusive": "yellow"}
_MOST = 10
"""Differences and flips that are listed."""


def document(found: Comparison) -> dict[str, Any]:
    """Plain data."""
    return found.to_dict()


def headline(found: Comparison) -> str:
    """The verdict in one sentence."""
    first = found.metrics[0]
    return f"{first.name}: {found.verdict} ({_effect(first)})" + (f": {first.reason}" if first.reason else "")


def render(found: Comparison) -> RenderableType:
    """For a terminal: what differs first, then the verdict, the metrics, the slices and the flips."""
    parts: list[RenderableType] = [Text(f"{found.candidate} against {found.base}"), *_differing(found)]
    parts += [Text(note) for note in found.notes]
    parts += [Text(), Text(headline(found), style=f"bold {_STYLES[found.verdict]}"), Text()]
    parts.append(_table({one.name: one for one in found.metrics}, "metric"))
    parts += [Text(), _table(found.slices, "slice")] if found.slices else []
    parts += [Text(line) for line in _flips(found)]
    parts += [Text(f"problem: {problem}", style="red") for problem in found.problems[:_MOST]]
    return Group(*parts)


def markdown(found: Comparison) -> str:
    """For a pull request or the summary of a CI job."""
    lines = [f"**{cell(headline(found))}**", "", *(f"- {cell(line.plain)}" for line in _differing(found))]
    lines += [*(f"- {cell(note)}" for note in found.notes), ""]
    for title, rows in (("metric", {one.name: one for one in found.metrics}), ("slice", found.slices)):
        lines += [*_markdown_table(title, rows), ""] if rows else []
    return "\n".join([*lines, *(f"- {cell(line)}" for line in _flips(found) if line)]).rstrip()


def _differing(found: Comparison) -> Iterator[Text]:
    if not found.differences:
        yield Text("nothing else is known to differ")
        return
    shown = [str(one) for one in found.differences[:_MOST]]
    yield from (printed(f"differs: {line}") for line in shown)
    if more := len(found.differences) - len(shown):
        yield Text(f"differs: {more:,} more, listed by --json")


def _cells(name: str, one: MetricComparison) -> dict[str, str]:
    missing = f"{one.missing[0]:,} and {one.missing[1]:,}" if any(one.missing) else NOTHING
    return {
        "name": name,
        "base": number(one.base),
        "candidate": number(one.candidate),
        "effect": NOTHING if one.effect is None else f"{one.effect:+.4g}",
        "interval": _interval(one),
        "verdict": one.verdict,
        "p": NOTHING if one.p_corrected is None else f"{one.p_corrected:.3g}",
        "detectable": number(one.detectable),
        "n": f"{one.n[0]:,} and {one.n[1]:,}",
        "missing": missing,
        "worst case": one.worst_case_text or NOTHING,
        "interquartile means": NOTHING if (runs := one.over_runs) is None else _over_runs(runs),
        "better runs": NOTHING if runs is None else _improvement(runs),
        "method": one.reason or one.method,
    }


def _table(rows: Mapping[str, MetricComparison], title: str) -> Listing:
    made = []
    for name, one in rows.items():
        cells = {key: printed(value) for key, value in _cells(name, one).items()}
        cells["verdict"].stylize(_STYLES[one.verdict])
        made.append({title if key == "name" else key: value for key, value in cells.items()})
    return Listing(
        rows=made,
        important=(title, "verdict", "effect", "interval", "base", "candidate", "p", "n", "detectable"),
        right=("base", "candidate", "effect", "p", "detectable"),
    )


def _markdown_table(title: str, rows: Mapping[str, MetricComparison]) -> Iterator[str]:
    cells = [_cells(name, one) for name, one in rows.items()]
    yield "| " + " | ".join(title if key == "name" else key for key in cells[0]) + " |"
    yield "|" + " --- |" * len(cells[0])
    yield from ("| " + " | ".join(cell(value) for value in row.values()) + " |" for row in cells)


def _over_runs(runs: RunAggregates) -> str:
    base, candidate = runs.interquartile_means
    return f"{number(base)} -> {number(candidate)}, {runs.interval[0]:+.4g} to {runs.interval[1]:+.4g}"


def _improvement(runs: RunAggregates) -> str:
    low, high = runs.improvement_interval
    return f"{runs.improvement:.0%} ({low:.0%} to {high:.0%})"


def _interval(one: MetricComparison) -> str:
    return NOTHING if one.interval is None else f"{one.interval[0]:+.4g} to {one.interval[1]:+.4g}"


def _effect(one: MetricComparison) -> str:
    if one.effect is None:
        return "no effect known"
    within = "" if one.interval is None else f", {one.confidence:.0%} interval {_interval(one)}"
    return f"{one.effect:+.4g}{within}"


def _flips(found: Comparison) -> Iterable[str]:
    gained = [one for one in found.flips if one.gained]
    lost = [one for one in found.flips if not one.gained]
    if not found.flips:
        return
    yield ""
    yield f"{count(len(gained), 'task')} gained, {count(len(lost), 'task')} lost"
    for word, flips in (("lost", lost), ("gained", gained)):
        for one in flips[:_MOST]:
            yield f"{word} {one.task}: {one.base_episode[:8]} -> {one.candidate_episode[:8]}"
        if len(flips) > _MOST:
            yield f"{word}: {len(flips) - _MOST:,} more, listed by --json"
