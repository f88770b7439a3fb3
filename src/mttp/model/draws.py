"""Labels of drawn episodes: which of them count, and what they weigh in rates over all candidates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mttp.model.episodes import Annotation
from mttp.model.estimates import t_interval
from mttp.model.statistics.descriptive import INTERVAL, SHARE_INTERVAL, share_interval
from mttp.model.weighting import weighted_mean

__all__ = ["Label", "LabelRate", "Weights", "label_rate", "labels", "preferences", "weights"]

_UNKNOWN: Final = "every label; how episodes were chosen is not recorded"
_RANDOM: Final = "labels of random episodes"
_WEIGHTED: Final = "labels of drawn episodes, weighted by 1/probability (LURE, Farquhar et al. 2021)"


@dataclass(frozen=True, slots=True)
class Label:
    """One rater's current label of an episode."""

    value: float
    """The score; for words, 1 for pass and 0 for fail."""
    draw: Annotation
    """The annotation that says how the episode was chosen: the first one of a draw, else the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The weights of one rater's labels."""

    of: Mapping[str, float]
    """The weight by episode, 1 on average, in order of draws; episodes that are left out are missing."""
    left_out: Mapping[str, int]
    """The number of labels that are left out, by how their episodes were chosen."""
    method: str
    """Which labels count, and how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRate:
    """The mean of one rater's labels, as an estimate for all candidates."""

    key: str
    """The kind of annotation: score, outcome or label."""
    by: str | None
    """The rater; None if unknown."""
    labels: int
    """The number of labels that count."""
    left_out: Mapping[str, int]
    """The number of labels that are left out, by how their episodes were chosen."""
    mean: float | None
    """The weighted mean; of words the share of passes; None if no label counts."""
    effective: float
    """The number of labels with equal weights that is as precise (Kish 1965)."""
    interval: tuple[float, float] | None
    """The 95 % interval for the effective number; None if there are too few labels."""
    interval_method: str | None
    """The method of the interval."""
    method: str
    """Which labels count, and how."""


def labels(annotations: Iterable[tuple[Annotation, float | None]]) -> dict[str, Label]:
    """
    Return one rater's current label of each episode, from annotations of one kind with their values.

    The highest revision counts; one without a value withdraws those before it.
    """
    current: dict[str, Label] = {}
    for annotation, value in sorted(annotations, key=lambda pair: pair[0].order):
        earlier = current.pop(annotation.episode, None)
        if value is None:
            continue
        is_drawn = earlier is not None and earlier.draw.selection_probability is not None
        current[annotation.episode] = Label(
            value, earlier.draw if earlier is not None and is_drawn else annotation
        )
    return dict(sorted(current.items(), key=lambda item: item[1].draw.order))


def preferences(annotations: Iterable[Annotation]) -> list[Annotation]:
    """Return the preferences in order; one that rejects no episode withdraws its author's earlier ones."""
    standing: dict[tuple[str, str | None], list[Annotation]] = {}
    for preference in sorted(annotations, key=lambda annotation: annotation.order):
        if preference.kind == "preference":
            of_author = standing.setdefault((preference.episode, preference.by), [])
            of_author[:] = [*of_author, preference] if preference.rejected else []
    return sorted((row for rows in standing.values() for row in rows), key=lambda row: row.order)


def weights(labels: Mapping[str, Label]) -> Weights:
    """
    Return the weights of one rater's labels, with which means are estimates for all candidates.

    Those with a probability are weighted; without any, those of random episodes count alike.
    Where no label says how its episode was chosen, all count alike.
    """
    chosen = {episode: label.draw.selection for episode, label in labels.items()}
    drawn = [episode for episode, label in labels.items() if _is_drawn(label.draw)]
    if drawn:
        of = dict(zip(drawn, _unbiased([labels[episode].draw for episode in drawn]), strict=True))
        is_uniform = all(math.isclose(weight, 1.0) for weight in of.values())
        method = _RANDOM if is_uniform and {chosen[episode] for episode in drawn} == {"random"} else _WEIGHTED
    elif any(chosen.values()):
        of = {episode: 1.0 for episode, how in chosen.items() if how == "random"}
        method = _RANDOM
    else:
        of, method = dict.fromkeys(labels, 1.0), _UNKNOWN
    left_out = Counter(how or "unknown" for episode, how in chosen.items() if episode not in of)
    return Weights(of=of, left_out=left_out, method=method)


def _is_drawn(draw: Annotation) -> bool:
    probability, candidates = draw.selection_probability, draw.candidates
    return probability is not None and 0 < probability <= 1 and candidates is not None and candidates > 0


def _unbiased(draws: Sequence[Annotation]) -> list[float]:
    """
    Return the weights of draws without replacement, in order, 1 on average.

    Each draw gives an unbiased estimate of the mean over its candidates and those drawn before (Des Raj
    1956). They are averaged with the weights of LURE: uniform draws weigh alike, and a census is exact.
    """
    candidates = [draw.candidates or 1 for draw in draws]
    shares = [1.0 / (count * (max(count, 2) - 1)) for count in candidates]
    if candidates[-1] == 1:  # all are drawn
        shares = [0.0] * (len(draws) - 1) + [1.0]
    unscaled, later = [], 0.0
    for place in reversed(range(len(draws))):
        population = candidates[place] + place
        probability = draws[place].selection_probability or 1.0
        unscaled.append(shares[place] / (population * probability) + later)
        later += shares[place] / population
    total = math.fsum(unscaled)
    return [weight * len(unscaled) / total for weight in reversed(unscaled)]


def label_rate(key: str, by: str | None, labels: Mapping[str, Label], weighed: Weights) -> LabelRate:
    """Return the mean of a rater's labels with its interval."""
    values = [labels[episode].value for episode in weighed.of]
    rate = weighted_mean(values, [1 / weight for weight in weighed.of.values()])
    interval, method = None, None
    if rate is not None:
        if {*values} <= {0.0, 1.0}:
            interval, method = share_interval(rate.mean * rate.effective, rate.effective), SHARE_INTERVAL
        elif rate.effective >= 2:
            squares = [(value - rate.mean) ** 2 for value in values]
            spread = weighted_mean(squares, [1 / weight for weight in weighed.of.values()])
            error = math.sqrt((spread.mean if spread else 0.0) / (rate.effective - 1))
            interval, method = t_interval(rate.mean, error, int(rate.effective)), INTERVAL
    return LabelRate(
        key=key,
        by=by,
        labels=len(values),
        left_out=weighed.left_out,
        mean=None if rate is None else rate.mean,
        effective=0.0 if rate is None else rate.effective,
        interval=interval,
        interval_method=None if interval is None else method,
        method=weighed.method,
    )
