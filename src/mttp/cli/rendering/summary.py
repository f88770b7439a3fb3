"""A summary as a document and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.cli.rendering import graders
from mttp.cli.rendering.blocks import plot, sparkline
from mttp.cli.rendering.figures import Interval, curve, figures, mean_interval, windows
from mttp.cli.rendering.problems import markdown_warnings, problem_lines, warnings
from mttp.model.counting import LEFT_OUT, NOT_COUNTED
from mttp.model.episodes import Run
from mttp.model.weighting import Weighting
from mttp.pages.words import cell, count, counted, duration, moment, number, of, printed, shares
from mttp.reading.completeness import sampled
from mttp.reading.jsonable import jsonable
from mttp.tables.summary import Summary

__all__ = ["document", "markdown", "render"]

_MOST_RUNS = 10
"""Number of runs in a text report; a document has all."""
_COURSES = ("loss", "kl", "entropy")
_FIXED = ("eval", "replay")
"""Kinds of runs whose policy does not change, so that their episodes are samples of one distribution."""


def document(summary: Summary) -> dict[str, Any]:
    """Return the summary as an object of plain data: the figures of each run, and totals."""
    missing = sampled(summary.problems)
    lacking = bool(missing)
    facts = {
        "sampled": missing,
        "sources": [*summary.sources, *summary.stores],
        "sha256": summary.sha256,
        "runs": [_run(id_, of_run, lacking=lacking) for id_, of_run in summary.by_run.items()],
        "totals": _figures(summary, lacking=lacking),
        "evals": summary.evals,
        "duplicates": summary.duplicates,
        "problems": summary.problems,
    }
    found: dict[str, Any] = jsonable(facts)
    return found


def _run(id_: str, summary: Summary, *, lacking: bool) -> dict[str, Any]:
    """Return the identity of a run and its figures; `lacking` is whether some run is a sample."""
    runs = summary.runs
    first = runs[0] if runs else None
    return {
        "id": id_,
        "name": first and first.name,
        "kind": first and first.kind,
        "run_status": next((run.status for run in reversed(runs) if run.status is not None), None),
        "complete": bool(runs) and all(run.complete for run in runs),
        "processes": len(runs),
        "seconds": _seconds(runs),
        **_figures(summary, lacking=lacking),
    }


def _seconds(runs: list[Run]) -> float | None:
    """Return the seconds from the first process's start to the last one's end; None if one has no end."""
    starts, ends = [run.start_time for run in runs], [run.end_time for run in runs]
    if not runs or None in starts or None in ends:
        return None
    return (max(end for end in ends if end is not None) - min(start or 0 for start in starts)) / 1e9


def _figures(summary: Summary, *, lacking: bool) -> dict[str, Any]:
    episodes, is_counted, reasons = len(summary), summary.is_counted, summary.reasons.counts()
    curved, durations = summary.returns[is_counted], summary.durations
    is_sample = lacking and sum(run.episode_count or 0 for run in summary.runs) > episodes
    weighted = summary.weighting(is_sample=is_sample)
    returns, interval = figures(summary.returns), _interval(summary, weighted)
    ends = None if len(summary.by_run) > 1 else windows(curved)
    of_curve = episodes - sum(reasons.get(reason, 0) for reason in LEFT_OUT)
    return {
        "episodes": episodes,
        "not_counted": {reason: reasons[reason] for reason in NOT_COUNTED if reason in reasons},
        "steps": int(summary.lengths.sum()),
        "groups": summary.groups,
        "updates": {"count": summary.updates, **{name: getattr(summary, name) for name in _COURSES}},
        "annotations": summary.annotations,
        "verdicts": [
            {
                "time": moment(one.time),
                "verdict": one.verdict,
                "evidence": one.evidence,
                "episode": one.episode,
            }
            for one in summary.verdicts
        ],
        "return": jsonable(returns)
        | {
            "of": of_curve,
            "interval": interval.bounds,
            "interval_method": interval.method,
            "interval_reason": interval.reason,
            "first": ends and ends[0],
            "last": ends and ends[1],
        },
        "weighted": weighted and {"text": str(weighted), **jsonable(weighted)},
        "duration": jsonable(figures(durations[is_counted]))
        | {"of": of_curve, "total": np.nansum(durations), "total_count": int(np.isfinite(durations).sum())},
        "length": jsonable(figures(summary.lengths[is_counted].astype(float))) | {"of": of_curve},
        "status": summary.statuses.counts(),
        "outcome": summary.outcomes.counts(),
        "env": summary.envs.counts(),
        "spec": {
            word: {"episodes": found.episodes, "count": found.count, "mean_return": found.mean}
            for word, found in summary.specs.returns().items()
        },
        "graders": graders.documents(summary.graders, episodes),
        "failed_gradings": summary.failed_gradings,
        "partial_rewards": summary.partial_rewards and asdict(summary.partial_rewards),
        "unlisted_gradings": summary.unlisted_gradings,
        "invalid_step_rewards": summary.invalid_step_rewards,
        "faults": summary.faults,
        "omissions": summary.omissions,
        "tokens": {
            "prompt": summary.prompt_tokens,
            "completion": summary.completion_tokens,
            "call_input": summary.call_input_tokens,
            "call_output": summary.call_output_tokens,
        },
        "cost": {"total_usd": summary.cost_usd, "count": summary.cost_count, "of": episodes},
        "curve": curve(curved),
    }


def _interval(summary: Summary, weighted: Weighting | None) -> Interval:
    """Return the interval for the mean return; only episodes of one unchanged policy have one."""
    if weighted is not None:
        return Interval(reason="the episodes are a sample of the run, kept with unequal shares; see weighted")
    if len(summary.by_run) > 1:
        return Interval(reason="there are several runs; each run has its own figures")
    if not summary.runs:
        return Interval(reason="the kind of the run is unknown: its span is not in the recording")
    kinds = sorted({run.kind for run in summary.runs} - {*_FIXED})
    if kinds:
        return Interval(reason=f"a run of kind {kinds[0]} changes its policy; see first and last")
    return mean_interval(summary.returns, [*summary.tasks])


def render(summary: Summary, *, terminal: bool) -> RenderableType:
    """Return the summary as text; on a terminal the learning curve is a plot, else one line."""
    facts = document(summary)
    parts: list[RenderableType] = [_headline(facts), *warnings(facts["sampled"])]
    for title, found in _sections(facts):
        parts.append(Text())
        if title:
            parts.append(printed(title, style="bold underline"))
        parts += _section(found, terminal=terminal)
    if more := _unlisted_runs(facts):
        parts += [Text(), Text(more)]
    if summary.problems:
        parts += [Text(), problem_lines(summary.problems)]
    return Group(*parts)


def _sections(facts: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a title and figures for each run, then the totals; a single run has no title."""
    if len(facts["runs"]) < 2:
        seconds = facts["runs"][0]["seconds"] if facts["runs"] else None
        yield "", {**facts["totals"], "seconds": seconds, **_once(facts)}
        return
    for run in facts["runs"][:_MOST_RUNS]:
        yield _title(run), run
    yield (
        f"totals of {len(facts['runs']):,} runs",
        {**facts["totals"], "seconds": None, **_once(facts)},
    )


def _once(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures that only the whole recording has."""
    return {name: facts[name] for name in ("duplicates", "sha256")}


def _title(run: Mapping[str, Any]) -> str:
    named = f"{run['name']} ({run['id']})" if run["name"] else run["id"]
    what = ", ".join(word for word in (run["kind"], run["run_status"]) if word)
    episodes = f"{count(run['episodes'], 'episode')}, {count(run['steps'], 'step')}"
    return f"run {named}{f', {what}' if what else ''}: {episodes}"


def _unlisted_runs(facts: Mapping[str, Any]) -> str:
    unlisted = len(facts["runs"]) - _MOST_RUNS
    return f"… and {count(unlisted, 'more run')}; --json has all" if unlisted > 0 else ""


def _section(facts: Mapping[str, Any], *, terminal: bool) -> list[RenderableType]:
    parts: list[RenderableType] = [_facts(facts)]
    if facts["graders"]:
        parts += [Text(), graders.table(facts["graders"])]
    if facts["return"]["count"] > 1 and facts["return"]["first"]:
        title = Text("mean return over time", style="bold")
        parts += [Text(), title, _curve(facts["curve"], terminal=terminal)]
    return parts


def markdown(summary: Summary) -> str:
    """Return the summary as Markdown, for a CI job summary or a comment."""
    facts = document(summary)
    lines = [f"**{_headline(facts).plain}**", *markdown_warnings(facts["sampled"])]
    for title, found in _sections(facts):
        lines += ["", f"**{cell(title)}**"] if title else []
        lines += ["", "| | |", "| --- | --- |"]
        lines += [f"| {name} | {cell(text)} |" for name, text in _rows(found).items() if text]
        if found["return"]["count"] > 1 and found["return"]["first"]:
            lines += [f"| mean return over time | {_curve(found['curve'], terminal=False).plain} |"]
        if found["graders"]:
            lines += ["", *graders.markdown(found["graders"])]
    if more := _unlisted_runs(facts):
        lines += ["", more]
    if summary.problems:
        lines += ["", f"**{count(len(summary.problems), 'problem')}**", ""]
        lines += [f"- {cell(str(problem))}" for problem in summary.problems]
    return "\n".join(lines)


def _headline(facts: Mapping[str, Any]) -> Text:
    total = facts["totals"]
    others = {
        "group": total["groups"],
        "update": total["updates"]["count"],
        "annotation": total["annotations"],
        "evaluation": facts["evals"],
    }
    counts = (
        count(total["episodes"], "episode"),
        count(total["steps"], "step"),
        count(len(facts["runs"]), "run"),
        *counted(others),
    )
    return Text(", ".join(counts), style="bold")


def _facts(facts: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in _rows(facts).items():
        if text:
            alarming = name in ("failed gradings", "partial rewards", "faults")
            table.add_row(Text(name), printed(text, style="red" if alarming else ""))
    return table


def _rows(facts: Mapping[str, Any]) -> dict[str, str]:
    durations = facts["duration"]
    timed = {"count": durations["total_count"], "of": facts["episodes"]}
    failures = {
        state: total
        for state in ("error", "invalid", "partial")
        if (total := sum(one[state] for one in facts["graders"]))
    }
    if facts["invalid_step_rewards"]:
        failures["invalid step rewards"] = facts["invalid_step_rewards"]
    return {
        "return": _mean(facts["return"]),
        "": _spread(facts["return"], number),
        "weighted": facts["weighted"]["text"] if facts["weighted"] else "",
        "status": shares(facts["status"]),
        "not counted": "; ".join(
            f"{times:,} {NOT_COUNTED[reason]}" for reason, times in facts["not_counted"].items()
        ),
        "outcome": shares(facts["outcome"]),
        "env": shares(facts["env"]),
        "reward spec": _specs(facts["spec"]),
        "failed gradings": f"{facts['failed_gradings']:,} ({shares(failures)})" if failures else "",
        "partial rewards": _partial(facts["partial_rewards"]),
        "faults": shares(facts["faults"]) if facts["faults"] else "",
        "omitted": ", ".join(f"{name} ({times:,})" for name, times in facts["omissions"].items()),
        "duration": f"{duration(durations['total'])} in all{_part(timed)}; {_spread(durations, duration)}",
        "length": _spread(facts["length"], number),
        "run time": duration(facts["seconds"]) if facts["seconds"] is not None else "",
        "updates": _updates(facts["updates"]),
        "gated": "\n".join(
            f"{one['time']} at episode {one['episode'][:8]}: {one['evidence'] or one['verdict']}"
            for one in facts["verdicts"]
        ),
        "tokens": _tokens(facts["tokens"]),
        "cost": _cost(facts["cost"]),
        "duplicates": f"{count(facts['duplicates'], 'span')} ignored" if facts.get("duplicates") else "",
        "digest": f"sha256 {facts['sha256']}" if facts.get("sha256") else "",
    }


def _partial(partial: Mapping[str, Any] | None) -> str:
    """Return how many rewards lack something, and how it moved rewards and advantages."""
    if partial is None:
        return ""
    text = f"{partial['count']:,} of {partial['of']:,} ({partial['count'] / partial['of']:.1%}): mean reward "
    text += f"{number(partial['mean'])}, of the others {number(partial['mean_of_others'])}"
    if partial["advantage"] is not None:
        text += f"; mean advantage {number(partial['advantage'])}, of the others "
        text += number(partial["advantage_of_others"])
    return text


def _part(found: Mapping[str, Any]) -> str:
    """Return ` (25 of 30)` if not all values are known, else nothing."""
    return "" if found["count"] == found["of"] else f" ({of(found['count'], found['of'])})"


def _mean(returns: Mapping[str, Any]) -> str:
    text = f"mean {number(returns['mean'])}"
    known = of(returns["count"], returns["of"])
    if returns["interval"]:
        low, high = returns["interval"]
        return f"{text} [{number(low)}, {number(high)}] ({returns['interval_method']}, {known})"
    text += f" ({known})"
    if returns["count"] > 1 and returns["first"]:
        text += f"; {_window('first', returns['first'])}, {_window('last', returns['last'])}"
    return text


def _window(name: str, window: Mapping[str, Any]) -> str:
    part = _part({**window, "of": window["episodes"]})
    return f"{name} {window['episodes']:,}{part}: {number(window['mean'])}"


def _spread(figures: Mapping[str, Any], text: Callable[[float | None], str]) -> str:
    return f"min {text(figures['min'])}, median {text(figures['median'])}, max {text(figures['max'])}"


def _specs(specs: Mapping[str, Any]) -> str:
    if not any(specs):
        return ""
    return "; ".join(
        f"{word or 'none'}: {count(spec['episodes'], 'episode')}, mean return {number(spec['mean_return'])}"
        f"{_part({**spec, 'of': spec['episodes']})}"
        for word, spec in specs.items()
    )


def _updates(updates: Mapping[str, Any]) -> str:
    if not updates["count"]:
        return ""
    courses = (
        f"{name} {number(course['first'])} → {number(course['last'])}, mean {number(course['mean'])}"
        f" ({of(course['count'], updates['count'])})"
        for name in _COURSES
        if (course := updates[name])
    )
    return "; ".join((f"{updates['count']:,}", *courses))


def _tokens(tokens: Mapping[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {amount:,}" for kind, amount in tokens.items() if amount)


def _cost(cost: Mapping[str, Any]) -> str:
    if cost["total_usd"] is None:
        return ""
    return f"{number(cost['total_usd'])} US dollars ({of(cost['count'], cost['of'])})"


def _curve(points: list[float | None], *, terminal: bool) -> Text:
    if terminal:
        return Text("\n".join(plot(points)), style="cyan")
    known = [point for point in points if point is not None]
    return Text(f"{number(known[0])} {sparkline(points)} {number(known[-1])}")
