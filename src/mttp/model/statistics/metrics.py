"""Metrics of episodes by name: what is measured, and which direction is better."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import chain
from operator import attrgetter, is_not
from typing import TYPE_CHECKING

import numpy as np

from mttp.errors import StudyError
from mttp.model.estimates import pass_at_k, pass_hat_k
from mttp.model.statistics.inference import OUTCOMES, Floats, ValueRange

if TYPE_CHECKING:
    from mttp.model.figures import EpisodeFigures

__all__ = ["EpisodeMetric", "default_metrics", "metric"]

_IS_KNOWN = partial(is_not, None)
_PASS = re.compile(r"pass([@^])(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeMetric:
    """One number for each episode, or for each task where `k` is set."""

    name: str
    of: Callable[[EpisodeFigures], float | None]
    """The value of an episode; None or NaN where it is missing."""
    direction: int
    """1 where more is better, -1 where less is better, 0 where neither is."""
    span: ValueRange | None = None
    """The range of its values, where it is known; (0, 1) of passes and failures."""
    k: int | None = None
    """Of how many samples a pass is estimated."""
    estimate: Callable[[int, int, int], float | None] | None = None
    """For `k`: the estimate from samples, passes and k."""
    applies: Callable[[EpisodeFigures], bool] | None = None
    """Of which episodes it is: others are left out and not missing; None for all."""
    lacking: str = ""
    """Why nothing can be said where no episode has a value; empty where that is a failure."""

    def column(self, episodes: Iterable[EpisodeFigures]) -> Floats:
        """The value of each episode that it is of; NaN where missing. Of pass@k, whether it passed."""
        if self.applies is not None:
            episodes = filter(self.applies, episodes)
        values = np.array([*map(self.of, episodes)], float)  # None becomes NaN
        values[~np.isfinite(values)] = np.nan
        return values

    def values(self, episodes: Iterable[EpisodeFigures]) -> list[float]:
        """Return the values of one unit's episodes; NaN where missing. A pass@k metric gives one value."""
        values = self.column(episodes)
        return values.tolist() if self.k is None else [self.unit(values)]

    def unit(self, values: Floats) -> float:
        """Return the estimate of pass@k from the values of one unit's episodes; NaN without one."""
        assert self.estimate is not None
        assert self.k is not None
        known = values[~np.isnan(values)]
        return _number(self.estimate(len(known), int(known.sum()), self.k))


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) else float(value)


_FIXED: dict[str, tuple[Callable[[EpisodeFigures], float | None], int]] = {
    "return": (attrgetter("return_"), 1),
    "reward": (attrgetter("reward"), 1),
    "success": (attrgetter("success"), 1),
    "coverage": (attrgetter("is_answered"), 1),
    "accuracy_when_answered": (attrgetter("success"), 1),
    "length": (attrgetter("length"), 0),
    "tokens": (attrgetter("tokens"), -1),
    "prompt_tokens": (attrgetter("prompt_tokens"), -1),
    "completion_tokens": (attrgetter("completion_tokens"), -1),
    "duration": (attrgetter("duration"), -1),
    "latency": (attrgetter("latency"), -1),
    "time_to_first_token": (attrgetter("time_to_first_token"), -1),
    "cost": (attrgetter("cost"), -1),
}
_OF_SPEC = ("return", "reward")
_OF_OUTCOME = ("success", "coverage", "accuracy_when_answered")
_ASKED = ("coverage", "accuracy_when_answered")
"""Metrics that are compared only where they are asked for: without abstentions they say nothing new."""
_NONE: Mapping[str, float] = {}
_MAPS: dict[str, Callable[[EpisodeFigures], Mapping[str, float]]] = {
    "components": attrgetter("components"),
    "metrics": attrgetter("metrics"),
}


def metric(
    name: str,
    episodes: Sequence[EpisodeFigures],
    *,
    span: ValueRange | None = None,
    entropies: Mapping[str, float] = _NONE,
) -> EpisodeMetric:
    """
    Return the metric of that name; raises StudyError with the nearest name where there is none.

    `episodes` are those in which a component or a metric of the user's own is looked for.
    `span` is the range that the reward spec states: of `reward`, and of a `return` within it.
    `entropies` are those of training runs by id: the `entropy` of an episode is that of its run.
    """
    if name in _FIXED:
        of, direction = _FIXED[name]
        bounds = OUTCOMES if name in _OF_OUTCOME else span if name in _OF_SPEC else None
        values = [value for value in map(of, episodes) if value is not None] if bounds is not None else []
        if bounds is not None and not all(bounds[0] <= value <= bounds[1] for value in values):
            bounds = None
        applies = _is_not_abstained if name == "accuracy_when_answered" else None
        return EpisodeMetric(name=name, of=of, direction=direction, span=bounds, applies=applies)
    if name == "entropy":
        lacking = "no update of a training run states the entropy of the policy"
        return EpisodeMetric(name=name, of=lambda row: entropies.get(row.run), direction=0, lacking=lacking)
    if match := _PASS.fullmatch(name):
        k = int(match[2])
        if k < 1:
            raise StudyError(f"metric {name!r}: k is 1 or more")
        estimate = pass_at_k if match[1] == "@" else pass_hat_k
        of = _FIXED["success"][0]
        return EpisodeMetric(name=name, of=of, direction=1, span=OUTCOMES, k=k, estimate=estimate)
    head, dot, key = name.partition(".")
    if dot and head in _MAPS and any(key in _MAPS[head](row) for row in episodes):
        named = _MAPS[head]
        return EpisodeMetric(name=name, of=lambda row: named(row).get(key), direction=head == "components")
    known = [*_FIXED, "entropy", "pass@1", "pass^1", *_own_names(episodes)]
    near = get_close_matches(name, known, n=1)
    advice = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"
    raise StudyError(f"no metric is called {name!r}{advice}")


def _is_not_abstained(episode: EpisodeFigures) -> bool:
    return episode.is_answered is not False


def default_metrics(episodes: Sequence[EpisodeFigures]) -> list[str]:
    """The metrics for which any of the episodes has a value, the return first."""
    names = [
        name
        for name, (of, _) in _FIXED.items()
        if name not in _ASKED and any(map(_IS_KNOWN, map(of, episodes)))
    ]
    return [*names, *(name for name in _own_names(episodes) if name.startswith("components."))]


def _own_names(episodes: Sequence[EpisodeFigures]) -> list[str]:
    return sorted(
        f"{head}.{key}" for head, of in _MAPS.items() for key in {*chain.from_iterable(map(of, episodes))}
    )
