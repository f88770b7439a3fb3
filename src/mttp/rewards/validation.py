"""Validation of a spec against the scores and labels that people and late graders gave recorded episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from mttp.model import raters
from mttp.model.episodes import Annotation, Episode
from mttp.model.estimates import mean
from mttp.model.results import RewardResult
from mttp.rewards.agreement import agreement
from mttp.rewards.case_runs import Instability, instability
from mttp.rewards.recorded_samples import scorable
from mttp.rewards.rescoring import scored_again
from mttp.rewards.spec import RewardSpec

__all__ = ["RaterAgreement", "ScoredEpisode", "Validation", "validate"]

_VERDICTS = {
    **dict.fromkeys(("success", "pass", "good", "correct", "right"), "pass"),
    **dict.fromkeys(("failure", "fail", "bad", "incorrect", "wrong"), "fail"),
}
"""The verdict that an outcome or a label stands for."""
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
    """The number of annotations of episodes without a valid reward or verdict."""
    agreed: int
    """The number of equal verdicts; for rewards, of pairs of episodes in the same order."""
    of: int
    """The number of episodes; for rewards, of pairs of episodes that the rater scored differently."""
    kappa: float | None
    """Cohen's kappa of verdicts; None if both have only one verdict, and for rewards."""
    tau_b: float | None
    """Kendall's tau-b of rewards; None if one side is constant, and for verdicts."""
    alpha: float | None
    """Krippendorff's alpha, nominal for verdicts, interval for rewards; None if all values are equal."""


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
    compared with verdicts. A rater's last annotation of an episode counts.
    Raises SpecError when the spec's code can't be used, and MissingExtra without `mttp[agreement]`.
    """
    found = list(episodes)
    usable, lacking = scorable(found, spec)
    rounds = [scored_again(spec, usable) for _ in range(repeats)]
    scored: list[ScoredEpisode] = []
    stated: list[Episode] = []
    for episode, *results in zip(usable, *rounds, strict=True):
        known = tuple(result for result in results if result is not None)
        if len(known) == repeats:
            scored.append(ScoredEpisode(trace_id=episode.trace_id, task=episode.task, results=known))
            stated.append(episode)
    first = [one.result for one in scored]
    valid = [result.value for result in first if result.status == "ok" and result.value is not None]
    statements, unread = _statements(stated)
    return Validation(
        episodes=tuple(scored),
        lacking=lacking,
        without_group=len(usable) - len(scored),
        statuses=Counter(result.status for result in first),
        errors=Counter(result.error for result in first if result.error),
        verdicts=Counter(result.verdict for result in first if result.verdict),
        failed_checks=Counter(name for result in first for name in result.failed_checks),
        mean=mean(valid),
        instability=instability([one.results for one in scored]) if repeats > 1 else None,
        agreements=tuple(
            agreement
            for (key, by), given in sorted(statements.items(), key=lambda one: (one[0][0], one[0][1] or ""))
            for agreement in _agreements(key, by, given, first)
        ),
        unread_labels=unread,
    )


def _statements(
    episodes: Sequence[Episode],
) -> tuple[dict[tuple[str, str | None], dict[int, float | str]], Counter[str]]:
    """Return each rater's annotations by index of the episode, and the labels that stand for no verdict."""
    found: dict[tuple[str, str | None], dict[int, float | str]] = {}
    unread: Counter[str] = Counter()
    for place, episode in enumerate(episodes):
        for one in sorted(episode.annotations, key=lambda annotation: annotation.order):
            if one.on_step or one.kind not in ("score", "outcome", "label"):
                continue
            given = _score(one) if one.kind == "score" else _VERDICTS.get(str(one.value).strip().lower())
            if given is not None:
                by = (one.reward.grader if one.reward is not None else None) or one.by
                found.setdefault((one.kind, by), {})[place] = given
            elif one.kind == "label":
                unread[str(one.value)] += 1
    return found, unread


def _score(annotation: Annotation) -> float | None:
    value = annotation.value
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else None


def _agreements(
    key: str, by: str | None, given: Mapping[int, float | str], results: Sequence[RewardResult]
) -> Iterable[RaterAgreement]:
    """Compare one rater's annotations with rewards, verdicts or both."""
    valid = [place for place in given if results[place].status == "ok"]
    decided = [place for place in valid if results[place].verdict is not None]
    if key == "score" or not decided:
        pairs = [(results[place].value, _number_of(given[place])) for place in valid]
        yield _of_rewards(
            key, by, len(given), [(reward, score) for reward, score in pairs if reward is not None]
        )
    if decided and {_number_of(one) for one in given.values()} <= {0.0, 1.0}:
        words = [(str(results[place].verdict), _verdict_of(given[place])) for place in decided]
        yield _of_verdicts(key, by, len(given), words)


def _number_of(given: float | str) -> float:
    return float(given == "pass") if isinstance(given, str) else given


def _verdict_of(given: float | str) -> str:
    return given if isinstance(given, str) else "pass" if given else "fail"


def _of_rewards(
    key: str, by: str | None, stated: int, pairs: Sequence[tuple[float, float]]
) -> RaterAgreement:
    ours, theirs = [reward for reward, _ in pairs], [score for _, score in pairs]
    found = agreement(pairs) if len(pairs) <= _FEW else None
    return RaterAgreement(
        key=key,
        by=by,
        compared="reward",
        episodes=len(pairs),
        left_out=stated - len(pairs),
        agreed=round((found.accuracy or 0.0) * found.pairs) if found is not None else 0,
        of=found.pairs if found is not None else 0,
        kappa=None,
        tau_b=raters.tau_b(ours, theirs) if len(pairs) > 1 else None,
        alpha=raters.alpha([ours, theirs], "interval"),
    )


def _of_verdicts(key: str, by: str | None, stated: int, pairs: Sequence[tuple[str, str]]) -> RaterAgreement:
    ours, theirs = [verdict for verdict, _ in pairs], [word for _, word in pairs]
    return RaterAgreement(
        key=key,
        by=by,
        compared="verdict",
        episodes=len(pairs),
        left_out=stated - len(pairs),
        agreed=sum(one == other for one, other in pairs),
        of=len(pairs),
        kappa=raters.kappa(ours, theirs) if pairs else None,
        tau_b=None,
        alpha=raters.alpha([ours, theirs], "nominal"),
    )
