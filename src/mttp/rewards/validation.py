"""Validation of a spec against the scores and labels that people and late graders gave recorded episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, isfinite
from typing import TypeAlias

from mttp.model import raters
from mttp.model.draws import Label, LabelRate, Weights, label_rate, labels, weights
from mttp.model.episodes import Annotation, Episode
from mttp.model.estimates import mean
from mttp.model.results import RewardResult
from mttp.rewards.agreement import agreement
from mttp.rewards.case_runs import Instability, instability
from mttp.rewards.recorded_samples import scorable
from mttp.rewards.rescoring import scored_again
from mttp.rewards.spec import RewardSpec

_VERDICTS = {
    **dict.fromkeys(("success", "pass", "good", "correct", "right"), 1.0),
    **dict.fromkeys(("failure", "fail", "bad", "incorrect", "wrong"), 0.0),
}
"""The verdict that an outcome or a label stands for: 1 for pass, 0 for fail."""
_Rater: TypeAlias = "tuple[str, str | None]"
"""A kind of annotation, and who annotates."""
_FEW = 2_000
"""The maximum number of episodes that are compared in pairs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredEpisode:
    """One recorded episode, scored by the spec."""

    trace_id: str
    """The episode's trace id, 32 hex digits."""
    task: str | None
    """The episode's task."""
    results: tuple[RewardResult, ...]
    """The result of each repeat."""

    @property
    def result(self) -> RewardResult:
        """The result of the first repeat."""
        return self.results[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterAgreement:
    """The agreement of a spec's rewards or verdicts with one rater's annotations of one kind."""

    key: str
    """The kind of annotation: score, outcome or label."""
    by: str | None
    """The rater; None if unknown."""
    compared: str
    """What is compared with the annotations: reward or verdict."""
    episodes: int
    """The number of episodes with both."""
    left_out: int
    """The number of labels that count, but whose episodes have no valid reward or verdict."""
    left_out_by_selection: Mapping[str, int]
    """The number of other labels, which do not count, by how their episodes were chosen."""
    agreed: int
    """The number of equal verdicts; for rewards, of pairs of episodes in the same order."""
    of: int
    """The number of episodes; for rewards, of pairs of episodes that the rater scored differently."""
    share: float | None
    """The weighted share of `agreed` among `of`; None without any."""
    effective: float
    """The number of labels with equal weights that is as precise (Kish 1965)."""
    kappa: float | None
    """Cohen's kappa of verdicts; None if both have only one verdict, and for rewards."""
    tau_b: float | None
    """Kendall's tau-b of rewards; None if one side is constant, and for verdicts."""
    alpha: float | None
    """
    Krippendorff's alpha, nominal for verdicts, interval for rewards.

    None if all values are equal, and for labels with different weights.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """Recorded episodes, scored by a spec and compared with their annotations."""

    episodes: tuple[ScoredEpisode, ...]
    """The scored episodes."""
    lacking: Mapping[str, int]
    """The number of episodes that were not scored, by the inputs that they did not record."""
    without_group: int
    """The number of episodes without a group, if a relative component needs one."""
    statuses: Mapping[str, int]
    """The number of rewards by status."""
    errors: Mapping[str, int]
    """The number of rewards by error."""
    verdicts: Mapping[str, int]
    """The number of rewards by verdict."""
    failed_checks: Mapping[str, int]
    """The number of failures by check."""
    mean: float | None
    """The mean reward of the episodes with the status ok; None without any."""
    instability: Instability | None
    """How many episodes had different results between repeats; None if each was scored once."""
    agreements: tuple[RaterAgreement, ...]
    """The agreement by kind of annotation and rater."""
    rates: tuple[LabelRate, ...]
    """The mean label by kind of annotation and rater, and how many labels are left out."""
    unread_labels: Mapping[str, int]
    """The number of labels that stand for no verdict, by label."""

    @property
    def without_inputs(self) -> int:
        """The number of episodes that were not scored because they lack an input."""
        return sum(self.lacking.values())


def validate(episodes: Iterable[Episode], spec: RewardSpec, *, repeats: int = 1) -> Validation:
    """
    Score recorded episodes, each `repeats` times, and compare the first result with their annotations.

    Scores are compared with rewards. Outcomes, labels for pass and fail, and scores that are all 0 or 1 are
    compared with verdicts. A rater's last annotation of an episode counts. Of labels that say how their
    episodes were chosen, those of random and of weighted episodes count; others are left out and counted.
    Raises SpecError when the spec's code can't be used, and MissingExtra without `mttp[agreement]`.
    """
    recorded = list(episodes)
    usable, lacking = scorable(recorded, spec)
    rounds = [scored_again(spec, usable) for _ in range(repeats)]
    scored: list[ScoredEpisode] = []
    for episode, *results in zip(usable, *rounds, strict=True):
        known = tuple(result for result in results if result is not None)
        if len(known) == repeats:
            scored.append(ScoredEpisode(trace_id=episode.trace_id, task=episode.task, results=known))
    first = [episode.result for episode in scored]
    by_episode = {episode.trace_id: episode.result for episode in scored}
    valid = [result.value for result in first if result.status == "ok" and result.value is not None]
    by_rater, unread = _labels(recorded)
    weighed = {rater: weights(labelled) for rater, labelled in by_rater.items()}
    return Validation(
        episodes=tuple(scored),
        lacking=lacking,
        without_group=len(usable) - len(scored),
        statuses=Counter(result.status for result in first),
        errors=Counter(result.error for result in first if result.error),
        verdicts=Counter(result.verdict for result in first if result.verdict),
        failed_checks=Counter(name for result in first for name in result.failed_checks),
        mean=mean(valid),
        instability=instability([episode.results for episode in scored]) if repeats > 1 else None,
        agreements=tuple(
            agreement
            for rater, labelled in by_rater.items()
            for agreement in _agreements(rater, labelled, weighed[rater], by_episode)
        ),
        rates=tuple(label_rate(*rater, labelled, weighed[rater]) for rater, labelled in by_rater.items()),
        unread_labels=unread,
    )


def _labels(
    episodes: Sequence[Episode],
) -> tuple[dict[_Rater, dict[str, Label]], Counter[str]]:
    """Return each rater's current labels by episode, and the labels that stand for no verdict."""
    by_rater: dict[_Rater, list[tuple[Annotation, float | None]]] = {}
    unread: Counter[str] = Counter()
    for note in (annotation for episode in episodes for annotation in episode.annotations):
        if note.on_step or note.kind not in ("score", "outcome", "label"):
            continue
        value = _score(note) if note.kind == "score" else _VERDICTS.get(str(note.value).strip().lower())
        if value is not None or note.kind == "score":
            by = (note.reward.grader if note.reward is not None else None) or note.by
            by_rater.setdefault((note.kind, by), []).append((note, value))
        elif note.kind == "label":
            unread[str(note.value)] += 1
    in_order = sorted(by_rater.items(), key=lambda item: (item[0][0], item[0][1] or ""))
    current = {rater: labels(annotations) for rater, annotations in in_order}
    return {rater: labelled for rater, labelled in current.items() if labelled}, unread


def _score(annotation: Annotation) -> float | None:
    value = annotation.value
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else None


def _agreements(
    rater: _Rater, labelled: Mapping[str, Label], weighed: Weights, results: Mapping[str, RewardResult]
) -> Iterable[RaterAgreement]:
    """Compare one rater's labels with rewards, verdicts or both."""
    scored = [episode for episode in weighed.of if episode in results]
    valid = [episode for episode in scored if results[episode].status == "ok"]
    decided = [episode for episode in valid if results[episode].verdict is not None]
    if rater[0] == "score" or not decided:
        rewards = {episode: reward for episode in valid if (reward := results[episode].value) is not None}
        pairs = [(reward, labelled[episode].value) for episode, reward in rewards.items()]
        yield _of_rewards(rater, weighed, [*rewards], pairs)
    if decided and {labelled[episode].value for episode in weighed.of} <= {0.0, 1.0}:
        words = [
            (str(results[episode].verdict), "pass" if labelled[episode].value else "fail")
            for episode in decided
        ]
        yield _of_verdicts(rater, weighed, decided, words)


def _of_rewards(
    rater: _Rater, weighed: Weights, episodes: Sequence[str], pairs: Sequence[tuple[float, float]]
) -> RaterAgreement:
    rewards, scores = [reward for reward, _ in pairs], [score for _, score in pairs]
    weight = [weighed.of[episode] for episode in episodes]
    is_weighted = _is_weighted(weight)
    pair_agreement = agreement(pairs, weight) if len(pairs) <= _FEW or is_weighted else None
    tau_b = raters.tau_b(rewards, scores) if len(pairs) > 1 and not is_weighted else None
    return RaterAgreement(
        key=rater[0],
        by=rater[1],
        compared="reward",
        episodes=len(pairs),
        left_out=len(weighed.of) - len(pairs),
        left_out_by_selection=weighed.left_out,
        agreed=pair_agreement.agreed if pair_agreement is not None else 0,
        of=pair_agreement.pairs if pair_agreement is not None else 0,
        share=pair_agreement.accuracy if pair_agreement is not None else None,
        effective=_effective(weight),
        kappa=None,
        tau_b=pair_agreement.tau_b if is_weighted and pair_agreement is not None else tau_b,
        alpha=None if is_weighted else raters.alpha([rewards, scores], "interval"),
    )


def _of_verdicts(
    rater: _Rater, weighed: Weights, episodes: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> RaterAgreement:
    verdicts, words = [verdict for verdict, _ in pairs], [word for _, word in pairs]
    weight = [weighed.of[episode] for episode in episodes]
    agreed = [verdict == word for verdict, word in pairs]
    return RaterAgreement(
        key=rater[0],
        by=rater[1],
        compared="verdict",
        episodes=len(pairs),
        left_out=len(weighed.of) - len(pairs),
        left_out_by_selection=weighed.left_out,
        agreed=sum(agreed),
        of=len(pairs),
        share=sum(value for value, is_agreed in zip(weight, agreed, strict=True) if is_agreed) / sum(weight),
        effective=_effective(weight),
        kappa=raters.kappa(verdicts, words, weight if _is_weighted(weight) else None),
        tau_b=None,
        alpha=None if _is_weighted(weight) else raters.alpha([verdicts, words], "nominal"),
    )


def _is_weighted(weight: Sequence[float]) -> bool:
    return not all(isclose(value, weight[0]) for value in weight)


def _effective(weight: Sequence[float]) -> float:
    """Return Kish's effective number."""
    return sum(weight) ** 2 / sum(value * value for value in weight) if weight else 0.0
