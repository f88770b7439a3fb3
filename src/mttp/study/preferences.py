"""Strengths from recorded preferences: the Bradley-Terry model, on the scale of Elo."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import StudyError
from mttp.model.draws import preferences
from mttp.model.episodes import Episode
from mttp.reading import Recording, read
from mttp.reading.sources import Source

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats: TypeAlias = "NDArray[np.float64]"

_ELO = 400 / math.log(10)
"""Points of Elo per unit of log odds: 400 points are odds of ten to one."""
_STEPS = 200
_VIRTUAL = 0.5
"""Virtual wins and losses of each unit where one always won or lost."""
_BY = {
    "policy_version": lambda episode: episode.policy_version_start,
    "policy": lambda episode: episode.policy,
    "run": lambda episode: episode.run_id,
    "episode": lambda episode: episode.trace_id,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferenceStrength:
    """How strongly one policy version, or another unit, is preferred."""

    name: str
    elo: float
    """The Bradley-Terry strength on the scale of Elo; the mean over all is 1,000."""
    interval: tuple[float, float]
    """95 %, by the observed information (Wald)."""
    wins: int
    losses: int
    connected: bool
    """Whether each unit leads to each other through wins; else strengths rest on virtual wins and losses."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def preference_strengths(
    source: Source | Recording, *, by: str = "policy_version"
) -> tuple[PreferenceStrength, ...]:
    """
    The strengths of policy versions by the recorded preferences among their episodes, the strongest first.

    The Bradley-Terry model (1952) by maximum likelihood. Where wins do not lead from each unit to each other,
    so that there is no maximum (Ford 1957), each gets half a virtual win and half a virtual loss against an
    average opponent.
    `by` is policy_version, policy, run or episode. Preferences within a unit say nothing and are left out.
    Raises StudyError where no preference is between two units, ReadError where the source can't be read.
    """
    if by not in _BY:
        raise StudyError(f"by={by!r} is not a unit; the units are {', '.join(_BY)}")
    recording = source if isinstance(source, Recording) else read(source)
    wins = _wins(recording, by)
    if not wins:
        raise StudyError(f"no recorded preference is between two of: {by}; record them by mttp.prefer")
    names = sorted({name for pair in wins for name in pair})
    place = {name: at for at, name in enumerate(names)}
    table = np.zeros((len(names), len(names)))
    for (winner, loser), count in wins.items():
        table[place[winner], place[loser]] = count
    connected = all(_reached(links) == len(table) for links in (table > 0, table.T > 0))
    strengths, errors = _bradley_terry(table, 0.0 if connected else _VIRTUAL)
    ranking = [
        PreferenceStrength(
            name=name,
            elo=1000 + _ELO * float(strengths[at]),
            interval=(
                1000 + _ELO * float(strengths[at] - 1.96 * errors[at]),
                1000 + _ELO * float(strengths[at] + 1.96 * errors[at]),
            ),
            wins=int(table[at].sum()),
            losses=int(table[:, at].sum()),
            connected=connected,
        )
        for name, at in place.items()
    ]
    return tuple(sorted(ranking, key=lambda strength: (-strength.elo, strength.name)))


def _wins(recording: Recording, by: str) -> Mapping[tuple[str, str], int]:
    """How often each unit was preferred to each other."""
    episodes: dict[str, Episode] = {episode.trace_id: episode for episode in recording.episodes}
    wins: Counter[tuple[str, str]] = Counter()
    for preference in preferences(recording.annotations):
        if preference.episode not in episodes:
            continue
        winner = _BY[by](episodes[preference.episode])
        for rejected in preference.rejected:
            loser = _BY[by](episodes[rejected]) if rejected in episodes else None
            if winner is not None and loser is not None and winner != loser:
                wins[winner, loser] += 1
    return wins


def _bradley_terry(table: Floats, virtual: float) -> tuple[Floats, Floats]:
    """Log strengths with mean zero and their standard errors, by Newton's method."""
    strengths, games = np.zeros(len(table)), table + table.T
    for _ in range(_STEPS):
        chance, average = _logistic(strengths[:, None] - strengths[None, :]), _logistic(strengths)
        slope = table.sum(axis=1) - (games * chance).sum(axis=1) + virtual - 2 * virtual * average
        step = np.linalg.pinv(_information(games, chance, virtual, average)) @ slope
        strengths = strengths + np.clip(step, -2, 2)
        if np.abs(step).max() < 1e-10:
            break
    chance, average = _logistic(strengths[:, None] - strengths[None, :]), _logistic(strengths)
    covariance = np.linalg.pinv(_information(games, chance, virtual, average))
    center = np.eye(len(table)) - 1 / len(table)
    return strengths - strengths.mean(), np.sqrt(np.diag(center @ covariance @ center))


def _information(games: Floats, chance: Floats, virtual: float, average: Floats) -> Floats:
    weights = games * chance * (1 - chance)
    information: Floats = np.diag(weights.sum(axis=1) + 2 * virtual * average * (1 - average)) - weights
    return information


def _logistic(values: Floats) -> Floats:
    probabilities: Floats = 1 / (1 + np.exp(-values))
    return probabilities


def _reached(links: NDArray[np.bool_]) -> int:
    """How many units are reached from the first."""
    reached, edge = {0}, {0}
    while edge:
        edge = {int(to) for at in edge for to in np.flatnonzero(links[at])} - reached
        reached |= edge
    return len(reached)
