"""A summary as a document and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mttp.reading.jsonable import jsonable
from mttp.reading.summary import Summary
from mttp.report.blocks import plot, sparkline
from mttp.report.figures import INTERVAL, curve, figures, t_interval
from mttp.report.problems import problem_lines
from mttp.report.words import cell, count, counted, duration, number, printed, shares

__all__ = ["document", "markdown", "render"]


_OF_COMPONENT = ("mean", "min", "max", "count")


def document(summary: Summary) -> dict[str, Any]:
    """The summary as an object of plain data."""
    returns = jsonable(figures(summary.returns))
    interval = t_interval(summary.returns)
    facts = {
        "sources": summary.sources,
        "runs": [run.id for run in summary.runs],
        "groups": summary.groups,
        "updates": summary.updates,
        "annotations": summary.annotations,
        "evals": summary.evals,
        "episodes": len(summary),
        "steps": summary.lengths.sum(),
        "return": returns | {"interval": interval, "interval_method": INTERVAL if interval else None},
        "duration": jsonable(figures(summary.durations)) | {"total": np.nansum(summary.durations)},
        "length": figures(summary.lengths.astype(float)),
        "status": summary.statuses.counts(),
        "outcome": summary.outcomes.counts(),
        "env": summary.envs.counts(),
        "spec": {
            word: {"episodes": found.episodes, "mean_return": found.mean}
            for word, found in summary.specs.returns().items()
        },
        "components": summary.components,
        "tokens": {
            "prompt": summary.prompt_tokens,
            "completion": summary.completion_tokens,
            "call_input": summary.call_input_tokens,
            "call_output": summary.call_output_tokens,
        },
        "curve": curve(summary.returns),
        "duplicates": summary.duplicates,
        "problems": summary.problems,
    }
    found: dict[str, Any] = jsonable(facts)
    return found


def render(summary: Summary, *, terminal: bool) -> RenderableType:
    """The summary as text; on a terminal the learning curve is a plot, else one line."""
    facts = document(summary)
    parts: list[RenderableType] = [_headline(facts), Text(), _facts(facts)]
    if facts["components"]:
        parts += [Text(), _components(facts["components"])]
    if facts["return"]["count"] > 1:
        parts += [
            Text(),
            Text("mean return over time", style="bold"),
            _curve(facts["curve"], terminal=terminal),
        ]
    if summary.problems:
        parts += [Text(), problem_lines(summary.problems)]
    return Group(*parts)


def markdown(summary: Summary) -> str:
    """The summary as Markdown, for the page of a job or a comment."""
    facts = document(summary)
    lines = [f"**{_headline(facts).plain}**", "", "| | |", "| --- | --- |"]
    lines += [f"| {name} | {cell(text)} |" for name, text in _rows(facts).items() if text]
    if facts["return"]["count"] > 1:
        curve = _curve(facts["curve"], terminal=False).plain
        lines += [f"| mean return over time | {curve} |"]
    if facts["components"]:
        lines += ["", "| component | mean | min | max | episodes |", "| --- | ---: | ---: | ---: | ---: |"]
        for name, seen in facts["components"].items():
            numbers = " | ".join(number(seen[key]) for key in _OF_COMPONENT)
            lines += [f"| {cell(name)} | {numbers} |"]
    if summary.problems:
        lines += ["", f"**{count(len(summary.problems), 'problem')}**", ""]
        lines += [f"- {cell(str(problem))}" for problem in summary.problems]
    return "\n".join(lines)


def _headline(facts: Mapping[str, Any]) -> Text:
    apart = {"group": facts["groups"], "update": facts["updates"], "annotation": facts["annotations"]}
    counts = (
        count(facts["episodes"], "episode"),
        count(facts["steps"], "step"),
        count(len(facts["runs"]), "run"),
        *counted(apart | {"evaluation": facts["evals"]}),
    )
    return Text(", ".join(counts), style="bold")


def _facts(facts: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column()
    for name, text in _rows(facts).items():
        if text:
            table.add_row(Text(name), printed(text))
    return table


def _rows(facts: Mapping[str, Any]) -> dict[str, str]:
    return {
        "return": _mean(facts["return"]),
        "": _spread(facts["return"], number),
        "status": shares(facts["status"]),
        "outcome": shares(facts["outcome"]),
        "env": shares(facts["env"]),
        "reward spec": _specs(facts["spec"]),
        "duration": f"{duration(facts['duration']['total'])} in all; {_spread(facts['duration'], duration)}",
        "length": _spread(facts["length"], number),
        "tokens": _tokens(facts["tokens"]),
        "duplicates": f"{count(facts['duplicates'], 'span')} left out" if facts["duplicates"] else "",
    }


def _mean(returns: Mapping[str, Any]) -> str:
    text = f"mean {number(returns['mean'])}"
    if returns["interval"]:
        low, high = returns["interval"]
        text += f" [{number(low)}, {number(high)}] ({returns['interval_method']}, n = {returns['count']:,})"
    elif returns["count"] > 1:
        text += f" (n = {returns['count']:,}; pip install 'mttp[study]' for an interval)"
    return text


def _spread(figures: Mapping[str, Any], say: Callable[[float | None], str]) -> str:
    return f"min {say(figures['min'])}, median {say(figures['median'])}, max {say(figures['max'])}"


def _specs(specs: Mapping[str, Any]) -> str:
    if not any(specs):
        return ""
    return "; ".join(
        f"{word or 'none'}: {count(spec['episodes'], 'episode')}, mean return {number(spec['mean_return'])}"
        for word, spec in specs.items()
    )


def _tokens(tokens: Mapping[str, int]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {amount:,}" for kind, amount in tokens.items() if amount)


def _components(components: Mapping[str, Any]) -> Table:
    table = Table("component", box=None, pad_edge=False, header_style="bold")
    for name in ("mean", "min", "max", "episodes"):
        table.add_column(name, justify="right")
    for name, seen in components.items():
        table.add_row(printed(name), *(number(seen[key]) for key in _OF_COMPONENT))
    return table


def _curve(points: list[float | None], *, terminal: bool) -> Text:
    if terminal:
        return Text("\n".join(plot(points)), style="cyan")
    known = [point for point in points if point is not None]
    return Text(f"{number(known[0])} {sparkline(points)} {number(known[-1])}")
