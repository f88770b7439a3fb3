"""A summary of a recording: its page, and plain data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from mttp.model.counting import LEFT_OUT, NOT_COUNTED
from mttp.model.statistics.descriptive import Interval, curve, figures, mean_interval, windows
from mttp.pages.blocks import (
    Block,
    axis,
    fact,
    facts,
    lines,
    note,
    problems,
    section,
    series,
    warnings,
)
from mttp.pages.graders import documents, graders_table
from mttp.pages.study import verdicts_table
from mttp.pages.words import count, duration, moment, number, of, shares
from mttp.reading.completeness import sampled
from mttp.reading.jsonable import jsonable

if TYPE_CHECKING:
    from mttp.model.episodes import Run
    from mttp.model.weighting import Weighting
    from mttp.tables.summary import Summary

__all__ = ["document", "page"]

_MOST_RUNS: Final = 10
"""Number of runs on a page; a document has all."""
_COURSES: Final = ("loss", "kl", "entropy")
_FIXED: Final = ("eval", "replay")
"""Kinds of runs whose policy does not change, so that their episodes are samples of one distribution."""


def document(summary: Summary) -> dict[str, Any]:
    """Return the summary as an object of plain data: the figures of each run, and totals."""
    missing = sampled(summary.problems)
    lacking = bool(missing)
    figures_of_all = {
        "sampled": missing,
        "sources": [*summary.sources, *summary.stores],
        "sha256": summary.sha256,
        "runs": [_run(id_, of_run, lacking=lacking) for id_, of_run in summary.by_run.items()],
        "totals": _figures(summary, lacking=lacking),
        "evals": summary.evals,
        "duplicates": summary.duplicates,
        "problems": summary.problems,
    }
    data: dict[str, Any] = jsonable(figures_of_all)
    return data


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
                "time": moment(verdict.time),
                "verdict": verdict.verdict,
                "evidence": verdict.evidence,
                "episode": verdict.episode,
            }
            for verdict in summary.verdicts
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
        "graders": documents(summary.graders, episodes),
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


def page(summary: Summary) -> Iterator[Block | None]:
    """Yield the number of everything, then the figures of each run, of all runs together, and problems."""
    data = document(summary)
    total, runs = data["totals"], data["runs"]
    counts = {
        "episode": total["episodes"],
        "step": total["steps"],
        "run": len(runs),
        "group": total["groups"],
        "update": total["updates"]["count"],
        "annotation": total["annotations"],
        "evaluation": data["evals"],
    }
    always = ("episode", "step", "run")
    yield note(", ".join(count(items, noun) for noun, items in counts.items() if items or noun in always))
    yield from warnings(data["sampled"])
    if len(runs) < 2:
        yield from _figures_page(total, summary, runs[0]["seconds"] if runs else None, data)
    else:
        for run, of_run in [*zip(runs, summary.by_run.values(), strict=True)][:_MOST_RUNS]:
            yield section(run["id"], _title(run), _figures_page(run, of_run, run["seconds"]))
        title = f"totals of {len(runs):,} runs"
        yield section("totals", title, _figures_page(total, summary, None, data))
    if len(runs) > _MOST_RUNS:
        yield note(f"… and {count(len(runs) - _MOST_RUNS, 'more run')}; --json has all")
    yield problems(summary.problems)


def _title(run: Mapping[str, Any]) -> str:
    named = f"{run['name']} ({run['id']})" if run["name"] else run["id"]
    what = ", ".join(word for word in (run["kind"], run["run_status"]) if word)
    episodes = f"{count(run['episodes'], 'episode')}, {count(run['steps'], 'step')}"
    return f"run {named}{f', {what}' if what else ''}: {episodes}"


def _figures_page(
    data: Mapping[str, Any], summary: Summary, seconds: float | None, whole: Mapping[str, Any] = {}
) -> Iterator[Block | None]:
    """Yield the figures of a run, or of all; `whole` has those that only the whole recording has."""
    yield facts(
        [fact(label, text, state=state) for label, text, state in _facts(data, seconds, whole) if text]
    )
    yield verdicts_table(summary.verdicts)
    yield graders_table(data["graders"])
    if data["return"]["count"] > 1 and data["return"]["first"]:
        points = [math.nan if point is None else point for point in data["curve"]]
        curves = [series("", [*range(len(points))], points)]
        yield lines("Mean return over time", axis("stretch of episodes"), axis("return"), curves, "")


def _facts(
    data: Mapping[str, Any], seconds: float | None, whole: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield label, text and state of each figure; an empty text says nothing."""
    durations, cost, states = data["duration"], data["cost"], ("error", "invalid", "partial")
    timed = {"count": durations["total_count"], "of": data["episodes"]}
    failures = {state: sum(health[state] for health in data["graders"]) for state in states}
    failures["invalid step rewards"] = data["invalid_step_rewards"]
    failed = shares({state: failures[state] for state in failures if failures[state]}).strip("-")
    uncounted = (f"{times:,} {NOT_COUNTED[reason]}" for reason, times in data["not_counted"].items())
    omitted = (f"{name} ({times:,})" for name, times in data["omissions"].items())
    tokens = (f"{kind.replace('_', ' ')} {amount:,}" for kind, amount in data["tokens"].items() if amount)
    yield "return", f"{_mean(data['return'])}; {_spread(data['return'], number)}", "plain"
    yield "weighted", data["weighted"]["text"] if data["weighted"] else "", "plain"
    yield "status", shares(data["status"]), "plain"
    yield "not counted", "; ".join(uncounted), "warn"
    yield "outcome", shares(data["outcome"]), "plain"
    yield "env", shares(data["env"]), "plain"
    yield "reward spec", _specs(data["spec"]), "plain"
    yield "failed gradings", f"{data['failed_gradings']:,} ({failed})" if failed else "", "bad"
    yield "partial rewards", _partial(data["partial_rewards"]), "bad"
    yield "faults", shares(data["faults"]) if data["faults"] else "", "bad"
    yield "omitted", ", ".join(omitted), "plain"
    total = f"{duration(durations['total'])} in all{_part(timed)}"
    yield "duration", f"{total}; {_spread(durations, duration)}", "plain"
    yield "length", _spread(data["length"], number), "plain"
    yield "run time", duration(seconds) if seconds is not None else "", "plain"
    yield "updates", _updates(data["updates"]), "plain"
    yield "tokens", ", ".join(tokens), "plain"
    dollars = f"{number(cost['total_usd'])} US dollars ({of(cost['count'], cost['of'])})"
    yield "cost", dollars if cost["total_usd"] is not None else "", "plain"
    yield (
        "duplicates",
        f"{count(whole['duplicates'], 'span')} ignored" if whole.get("duplicates") else "",
        "plain",
    )
    yield "digest", f"sha256 {whole['sha256']}" if whole.get("sha256") else "", "plain"


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


def _part(part: Mapping[str, Any]) -> str:
    """Return ` (25 of 30)` if not all values are known, else nothing."""
    return "" if part["count"] == part["of"] else f" ({of(part['count'], part['of'])})"


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
