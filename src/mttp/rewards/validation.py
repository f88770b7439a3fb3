"""What a spec pays for recorded episodes, held against what people and late graders said of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, isfinite

from mttp.model.episodes import Annotation, Episode
from mttp.model.results import RewardResult
from mttp.reading import raters
from mttp.rewards.agreement import agreement
from mttp.rewards.case_runs import Instability, instability
from mttp.rewards.rescoring import sample, scored_again
from mttp.rewards.spec import RewardSpec

__all__ = ["RaterAgreement", "ScoredEpisode", "Validation", "validate"]

_VERDICTS = {
    **dict.fromkeys(("success", "pass", "good", "correct", "right"), "pass"),
    **dict.fromkeys(("failure", "fail", "bad", "incorrect", "wrong"), "fail"),
}
"""What outcomes and labels say, in the words of verdicts."""
_FEW = 2_000
"""Up to so many episodes, they are compared pair by pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredEpisode:
    """One recorded episode, scored by the spec."""

    trace_id: str
    """Its trace."""
    task: str | None
    """Its task."""
    results: tuple[RewardResult, ...]
    """What it was given each time."""

    @property
    def result(self) -> RewardResult:
        """What it was given the first time."""
        return self.results[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaterAgreement:
    """A spec's rewards, or verdicts, against one kind of statement by one rater."""

    key: str
    """score, outcome or label."""
    by: str | None
    """Who stated it; None where that is not known."""
    compared: str
    """reward or verdict: what of the spec's it is compared with."""
    episodes: int
    """Episodes that have both."""
    left_out: int
    """Statements about episodes for which the spec has no reward, or no verdict."""
    agreed: int
    """Episodes of equal verdicts; of rewards, pairs of episodes that both order alike."""
    of: int
    """Episodes, or pairs of episodes that the rater tells apart, of which so many agree."""
    kappa: float | None
    """Cohen's kappa of verdicts; None where both know one verdict only, and of rewards."""
    tau_b: float | None
    """Kendall's tau-b of rewards; None where one side is all the same, and of verdicts."""
    alpha: float | None
    """Krippendorff's alpha: nominal of verdicts, interval of rewards; None where all are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A recording, scored by a spec."""

    episodes: tuple[ScoredEpisode, ...]
    """The episodes that could be scored."""
    without_inputs: int
    """Episodes that recorded no inputs by name."""
    without_group: int
    """Episodes without a group, where the spec compares the members of one."""
    statuses: Mapping[str, int]
    """How often a reward is ok, error, abstained and so on."""
    errors: Mapping[str, int]
    """What went wrong, and how often."""
    verdicts: Mapping[str, int]
    """How often it is pass and fail."""
    failed_checks: Mapping[str, int]
    """How often each check failed."""
    mean: float | None
    """Mean reward of the episodes whose status is ok."""
    instability: Instability | None
    """How many episodes were not given the same each time; None where each was scored once."""
    agreements: tuple[RaterAgreement, ...]
    """By kind of statement and rater."""
    unread_labels: Mapping[str, int]
    """Labels that are no verdict, and how often each was given."""


def validate(episodes: Iterable[Episode], spec: RewardSpec, *, repeats: int = 1) -> Validation:
    """
    Score recorded episodes, each `repeats` times, and hold the first result against what was stated of them.

    Scores stand against rewards; outcomes, labels that say pass or fail, and scores that are all 0 or 1
    against verdicts. Of several statements of one rater the last counts.
    Raises SpecError where the spec's code can't be called, MissingExtra where a measure's library is missing.
    """
    found = list(episodes)
    usable = [episode for episode in found if sample(spec, episode) is not None]
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
        without_inputs=len(found) - len(usable),
        without_group=len(usable) - len(scored),
        statuses=Counter(result.status for result in first),
        errors=Counter(result.error for result in first if result.error),
        verdicts=Counter(result.verdict for result in first if result.verdict),
        failed_checks=Counter(name for result in first for name in result.failed_checks),
        mean=fsum(valid) / len(valid) if valid else None,
        instability=instability([one.results for one in scored]) if repeats > 1 else None,
        agreements=tuple(
            agreement
            for (key, by), said in sorted(statements.items(), key=lambda one: (one[0][0], one[0][1] or ""))
            for agreement in _agreements(key, by, said, first)
        ),
        unread_labels=unread,
    )


def _statements(
    episodes: Sequence[Episode],
) -> tuple[dict[tuple[str, str | None], dict[int, float | str]], Counter[str]]:
    """What each rater stated of the episodes, by place; and labels that are no verdict."""
    found: dict[tuple[str, str | None], dict[int, float | str]] = {}
    unread: Counter[str] = Counter()
    for place, episode in enumerate(episodes):
        for one in sorted(episode.annotations, key=lambda annotation: annotation.order):
            if one.on_step or one.kind not in ("score", "outcome", "label"):
                continue
            said = _score(one) if one.kind == "score" else _VERDICTS.get(str(one.value).strip().lower())
            if said is not None:
                by = (one.reward.grader if one.reward is not None else None) or one.by
                found.setdefault((one.kind, by), {})[place] = said
            elif one.kind == "label":
                unread[str(one.value)] += 1
    return found, unread


def _score(annotation: Annotation) -> float | None:
    value = annotation.value
    return float(value) if isinstance(value, (int, float)) and isfinite(value) else None


def _agreements(
    key: str, by: str | None, said: Mapping[int, float | str], results: Sequence[RewardResult]
) -> Iterable[RaterAgreement]:
    """One rater's statements against rewards, verdicts or both."""
    valid = [place for place in said if results[place].status == "ok"]
    decided = [place for place in valid if results[place].verdict is not None]
    if key == "score" or not decided:
        pairs = [(results[place].value, _number_of(said[place])) for place in valid]
        yield _of_rewards(
            key, by, len(said), [(reward, score) for reward, score in pairs if reward is not None]
        )
    if decided and {_number_of(word) for word in said.values()} <= {0.0, 1.0}:
        words = [(str(results[place].verdict), _verdict_of(said[place])) for place in decided]
        yield _of_verdicts(key, by, len(said), words)


def _number_of(said: float | str) -> float:
    return float(said == "pass") if isinstance(said, str) else said


def _verdict_of(said: float | str) -> str:
    return said if isinstance(said, str) else "pass" if said else "fail"


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
