"""What should be reached, and whether it was: goals, judged by the figures of all rounds, as one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

__all__ = ["Get", "Goal", "Rounds", "by", "figure", "judged", "share", "table", "times"]

BASELINES_AGREE = 0.15
"""A control further from its reference than this is no verdict: the machine was too busy to tell."""

Rounds: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""Of each case by name, the figures of each round."""
Get: TypeAlias = Callable[[str, str], float]
"""Of a case, the figure of a name."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What should be reached."""

    number: str
    """Which of the project's goals it is a part of."""
    text: str
    """What is compared, a line."""
    value: Callable[[Get], float]
    """What was reached, from the cases' figures."""
    must: float | None = None
    """What has to be reached; None where the figure is only stated."""
    stretch: float | None = None
    """What would be better still."""
    at_least: bool = False
    """Whether more is better."""
    unit: str = "x"
    """What the numbers are."""
    unclear: Callable[[Get], str] | None = None
    """Why the figures don't tell; empty where they do."""

    def is_reached(self, value: float, bound: float | None) -> bool:
        """Whether `value` is as good as `bound`."""
        return bound is not None and (value >= bound if self.at_least else value <= bound)


def times(other: str, own: str, name: str) -> Callable[[Get], float]:
    """How many times ours the other's figure is."""
    return lambda get: get(other, name) / get(own, name)


def share(own: str, other: str, name: str) -> Callable[[Get], float]:
    """Which part of the other's figure ours is."""
    return lambda get: get(own, name) / get(other, name)


def figure(case: str, name: str) -> Callable[[Get], float]:
    """A figure as it is."""
    return lambda get: get(case, name)


def by(choose: Callable[[list[float]], float], rounds: Rounds) -> Get:
    """Of all rounds' figures the median, or the lowest."""
    return lambda case, name: choose([row[name] for row in rounds[case]])


def judged(goal: Goal, rounds: Rounds, skipped: Mapping[str, str], apart: float) -> dict[str, Any]:
    """What was reached, and a verdict; `apart` is how far the control is from its reference, as a share."""
    row: dict[str, Any] = {"number": goal.number, "text": goal.text, "unit": goal.unit}
    row |= {"must": goal.must, "stretch": goal.stretch, "at_least": goal.at_least}
    try:
        reached = goal.value(by(median, rounds))
    except KeyError as missing:
        case = str(missing.args[0])
        return row | {"verdict": f"{case}: {skipped.get(case, 'not measured')}"}
    every = [goal.value(_round(rounds, number)) for number in range(min(map(len, rounds.values())))]
    return row | {
        "reached": reached,
        "by_minima": goal.value(by(min, rounds)),
        "lowest": min(every),
        "highest": max(every),
        "verdict": _verdict(goal, reached, rounds, apart),
    }


def _verdict(goal: Goal, reached: float, rounds: Rounds, apart: float) -> str:
    if goal.unclear is not None and (reason := goal.unclear(by(median, rounds))):
        return reason
    if apart > BASELINES_AGREE:
        return f"the machine was too busy: the control is {apart:.0%} off"
    if goal.must is None:
        return "stated"
    if goal.is_reached(reached, goal.stretch):
        return "stretch"
    return "yes" if goal.is_reached(reached, goal.must) else "MISSED"


def _round(rounds: Rounds, number: int) -> Get:
    return lambda case, name: rounds[case][number][name]


def table(goals: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> str:
    """The table of all goals, in Markdown."""
    header = ("#", "goal", "must", "stretch", "reached", "by minima", "lowest to highest", "")
    lines = [_row(*header), _row(*["---"] * len(header))]
    for goal in sorted(goals, key=_order):
        shown = {name: _shown(goal.get(name), goal["unit"]) for name in _NUMBERS}
        spread = f"{shown['lowest']} to {shown['highest']}" if shown["lowest"] else ""
        bounds = (shown["must"], shown["stretch"], shown["reached"], shown["by_minima"])
        lines.append(_row(goal["number"], goal["text"], *bounds, spread, goal["verdict"]))
    about = (
        "{processor}, {processors} processors, Python {python}, {system}; {rounds} rounds{quick}, medians."
    )
    quick = ", quick: small files, short windows" if machine["quick"] else ""
    return "\n".join([*lines, "", about.format_map({**machine, "quick": quick})])


_NUMBERS = ("must", "stretch", "reached", "by_minima", "lowest", "highest")


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _order(goal: Mapping[str, Any]) -> tuple[int, str]:
    """By number, as 1, 1b, 2, …, 10."""
    number = goal["number"]
    return int(number.rstrip("b")), number


def _shown(value: float | None, unit: str) -> str:
    return "" if value is None else f"{value:.3g}{unit if unit in ('x', '') else ' ' + unit}"
