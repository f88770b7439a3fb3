"""Detectors of a policy that drifts, collapses, repeats itself or lags behind."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.certainty import CERTAIN, LIKELY
from mttp.study.diagnosing.control import entropy_bound
from mttp.study.diagnosing.evidence import EXAMPLES, RunEvidence
from mttp.study.diagnosing.trends import FEWEST, SMALL, TimeTrend, share_of, trend_of
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged

if TYPE_CHECKING:
    from numpy.typing import NDArray

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"
Floats: TypeAlias = "NDArray[np.float64]"

ACCELERATES = 3.0
"""Linear growth makes the last quarter 2.3 times the second one; more than 3 is faster than linear."""
EXPLODES = 10.0
"""The same ratio that costs too much where nothing is gained; a policy drifts from its start."""
KL_GROWS = 0.2
"""The least relative growth of KL in the last half that counts."""
ALPHA = 0.05
FEWEST_UPDATES = 9
"""Updates whose thirds an exact test can tell apart with p = 0.05."""
ENTROPY_LEFT = 0.2
"""The share of the first third's entropy below which exploration ends; a healthy decline stays above."""
ENTROPY_LEFT_HIGH = 0.05
NO_ENTROPY = 0.02
"""The share of the largest entropy of an action space below which nothing is explored."""
SPIKE = 4.0
"""How many times farther from the median than any earlier update the last ones must be to be a jump."""
SPIKE_LEAST = 1.5
SPIKE_HIGH = 10.0
DIVERSITY_LEFT = 0.5
"""The share of the first third's diversity below which a policy has collapsed on few answers."""
REPEATED = 0.5
"""The share of repeated 4-grams above which a completion goes in circles; prose has under 0.2."""
REPEATED_SHARES = (0.3, 0.1)
"""Shares of such completions that are high and medium."""
NGRAM = 4
FEWEST_WORDS = 40
"""Completions with fewer tokens or words are too short to go in circles."""
FEWEST_COMPLETIONS = 20
MOST_COMPLETIONS = 1_000
"""Completions whose n-grams are counted: a share of as many is known to 3 %."""
FEWEST_GROUPS = 6
"""Groups with a failure in each third of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """A number over training time, and where it is from."""

    name: str
    times: Floats
    values: Floats
    phases: NDArray[np.int64] | None

    def part(self, first: float, last: float) -> _Series:
        """The values between two shares of the training time."""
        keep = slice(round(len(self.values) * first), round(len(self.values) * last))
        phases = None if self.phases is None else self.phases[keep]
        return _Series(name=self.name, times=self.times[keep], values=self.values[keep], phases=phases)

    @property
    def trend(self) -> TimeTrend | None:
        return trend_of(self.times, self.values, self.phases)

    @property
    def median(self) -> float:
        return float(np.median(self.values))


def _series(
    run: RunEvidence, title: str, field: str, of_episode: Callable[[int], float | None]
) -> _Series | None:
    """The series of a field of the updates; where they state none, that of the episodes' tokens."""
    values = run.update_series(field)
    if len(values) >= FEWEST_UPDATES:
        times = np.arange(len(values), dtype=float)
        return _Series(name=f"{title} of {len(values):,} updates", times=times, values=values, phases=None)
    of_episodes = [of_episode(int(at)) for at in run.trained]
    values = np.array([math.nan if value is None else value for value in of_episodes])
    keep = np.isfinite(values)
    if keep.sum() < FEWEST_COMPLETIONS:
        return None
    at = run.trained[keep]
    return _Series(
        name=f"{title} of the tokens of {len(at):,} episodes",
        times=run.times[at],
        values=values[keep],
        phases=run.phases[at],
    )


def _kl_series(run: RunEvidence) -> _Series | None:
    def of_tokens(at: int) -> float | None:
        sums = run.log_ratios.get(run.episodes[at].trace_id)
        return None if sums is None else sums[2] / sums[3]

    return _series(run, "KL", "kl", of_tokens)


NO_KL = (
    f"no KL: {FEWEST_UPDATES} updates with kl are needed, or {FEWEST_COMPLETIONS} episodes with "
    "tokens, logprobs and ref_logprobs"
)


def kl_drift(run: RunEvidence) -> Result:
    """Judge whether the divergence from the reference grows faster than linearly."""
    series = _kl_series(run)
    if series is None or len(series.values) < 4 * FEWEST // 2:
        return NotJudged(reason=NO_KL)
    second, last = series.part(0.25, 0.5).median, series.part(0.75, 1.0).median
    trend = series.part(0.5, 1.0).trend
    if trend is None:
        return NotJudged(reason=NO_KL)
    evidence = (
        f"{series.name}, medians {second:.3g} in the second and {last:.3g} in the last quarter; "
        f"last half {trend}{_token_evidence(run)}"
    )
    if trend.direction != "up" or last <= ACCELERATES * max(second, 0.0) or last <= 0:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium" if last > EXPLODES * second and not _gains(run) else "low",
        evidence=evidence,
        confidence=LIKELY,
        value=trend.change,
        interval=trend.interval,
        n=len(series.values),
        method=f"slope of KL in the last half; last quarter above {ACCELERATES:g} times the second",
        episodes=run.examples(run.recent()),
    )


def _token_evidence(run: RunEvidence) -> str:
    """k1, k2 and k3 of the last third, where tokens have both log probabilities."""
    trace_ids = [run.episodes[at].trace_id for at in run.recent()]
    sums = [run.log_ratios[trace_id] for trace_id in trace_ids if trace_id in run.log_ratios]
    if not sums:
        return ""
    k1, k2, k3, tokens = map(math.fsum, zip(*sums, strict=True))
    return (
        f"; per token against the reference, last third: k1 {k1 / tokens:.3g}, k2 {k2 / tokens:.3g}, "
        f"k3 {k3 / tokens:.3g} nats (n={int(tokens):,} tokens)"
    )


def over_optimization(run: RunEvidence) -> Result:
    """Judge whether more divergence from the reference buys less: KL rises while quality or reward falls."""
    series = _kl_series(run)
    if series is None or len(series.values) < 2 * FEWEST:
        return NotJudged(reason=NO_KL)
    kl = series.part(0.5, 1.0).trend
    half = run.recent(1 / 2)
    values, name = run.rewards, "reward"
    if run.quality is not None:
        positions = run.quality_positions
        half, values, name = (
            positions[positions >= len(run.episodes) // 2],
            run.quality,
            str(run.quality_name),
        )
    gain = run.trend(values, half)
    if kl is None or gain is None:
        return NotJudged(reason=f"fewer than {FEWEST} values of {name} in the last half")
    evidence = f"last half: {series.name} {kl}; {name} {gain}"
    grows = kl.direction == "up" and kl.change > KL_GROWS * abs(kl.first)
    if grows:
        evidence += f"; {gain.change / kl.change:+.3g} {name} per nat"
    if not grows or gain.direction != "down" or gain.scaled(gain.interval[1]) > -SMALL:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="high" if run.quality is not None else "medium",
        evidence=evidence,
        confidence=LIKELY,
        value=gain.change / kl.change,
        n=gain.n,
        method="least-squares slopes of KL and of the gain in the last half, 95 % intervals",
        episodes=run.examples(half),
    )


def update_spike(run: RunEvidence) -> Result:
    """Judge whether KL or clip fraction jump in the last updates beyond all that was before."""
    jumps, evidence = [], []
    for name in ("kl", "clip_fraction"):
        values = run.update_series(name)
        if len(values) >= FEWEST_UPDATES:
            jumps += [jump] if (jump := _last_jump(values)) is not None else []
            last = ", ".join(f"{value:.3g}" for value in values[-4:])
            evidence.append(
                f"{name} {np.median(values):.3g} in the median, lastly {last} (n={len(values):,})"
            )
    if not evidence:
        return NotJudged(reason=f"fewer than {FEWEST_UPDATES} updates have kl or clip_fraction")
    if not jumps:
        return Cleared(evidence="; ".join(evidence))
    size, count = max(jumps)
    return DiagnosisFinding(
        severity="high" if size >= SPIKE_HIGH and count > 1 else "medium",
        evidence=f"{'; '.join(evidence)}: the last {count:,} are above {size:.3g} times the largest before",
        confidence=LIKELY.split(":")[0] + ": beyond the largest value before by four times its distance",
        value=size,
        n=len(run.updates),
        method=f"last values above median + {SPIKE:g} times the largest earlier distance from it",
        episodes=run.examples(run.recent(1 / 10)),
    )


def _last_jump(values: Floats) -> tuple[float, int] | None:
    """How many times the largest earlier value the last ones exceed, and how many those are."""
    jumps = []
    for count in range(1, max(1, len(values) // 4) + 1):
        earlier, last = values[:-count], values[-count:]
        center, largest = float(np.median(earlier)), float(earlier.max())
        bound = max(center + SPIKE * (largest - center), SPIKE_LEAST * largest)
        if largest > 0 and len(earlier) >= FEWEST and last.min() > bound:
            jumps.append((float(last.min()) / largest, count))
    return max(jumps, key=lambda jump: jump[1], default=None)


def _gains(run: RunEvidence) -> bool:
    """Whether the quality, or without one the reward, rises."""
    trend = run.reward_trend if run.quality is None else run.quality_trend
    return trend is not None and trend.direction == "up"


def entropy_collapse(run: RunEvidence) -> Result:
    """
    Judge whether the entropy of the policy is near zero, or falls to a fraction of what it was.

    A policy that has become sure while it gets better has the severity low.
    """
    series = _series(run, "entropy", "entropy", lambda at: run.behaviors[at].entropy)
    if series is None:
        return NotJudged(
            reason=f"no entropy: {FEWEST_UPDATES} updates with entropy are needed, or {FEWEST_COMPLETIONS} "
            "episodes with token entropies"
        )
    early, late = series.part(0, 1 / 3), series.part(2 / 3, 1)
    bound = entropy_bound(run)
    if bound is not None and max(early.median, late.median) <= NO_ENTROPY * bound:
        return DiagnosisFinding(
            severity="medium" if _gains(run) else "high",
            evidence=f"{series.name}, medians {early.median:.3g} in the first, {late.median:.3g} in the last "
            f"third, of at most {bound:.3g} in this action space (n={len(series.values):,})",
            confidence=CERTAIN,
            value=early.median / bound,
            n=len(series.values),
            method=f"entropy at most {NO_ENTROPY:.0%} of that of random actions, from the first third on",
            episodes=run.examples(run.recent()),
        )
    if early.median <= 0:
        return NotJudged(reason=f"{series.name} began at {early.median:.3g}: a share of it is not meaningful")
    left, p_value = late.median / early.median, _falls(early.values, late.values)
    evidence = (
        f"{series.name}, medians {early.median:.3g} in the first and {late.median:.3g} in the last third "
        f"(Mann-Whitney, p={p_value:.2g}, n={len(series.values):,})"
    )
    if p_value > ALPHA or left > ENTROPY_LEFT:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="low" if _gains(run) else "high" if left <= ENTROPY_LEFT_HIGH else "medium",
        evidence=evidence,
        confidence=f"likely: p is at most {ALPHA}",
        value=left,
        p_value=p_value,
        n=len(series.values),
        method=f"last third at most {ENTROPY_LEFT:g} of the first; one-sided Mann-Whitney test",
        episodes=run.examples(run.recent()),
    )


def _falls(early: Floats, late: Floats) -> float:
    """The p value of late values being lower: the one-sided Mann-Whitney test."""
    return float(scipy_stats().mannwhitneyu(late, early, alternative="less").pvalue)


def diversity_collapse(run: RunEvidence) -> Result:
    """
    Judge whether groups come to give the same answers although not all of them are right.

    Groups in which every reward is the highest are left out: to agree on the right answer is no disease.
    """
    shares = _unique_shares(run)
    third = len(shares) // 3
    if third < FEWEST_GROUPS:
        return NotJudged(
            reason=f"{len(shares):,} groups have two answers and a reward below the highest, "
            f"not {3 * FEWEST_GROUPS}"
        )
    values = np.array([share for share, _ in shares])
    first, last = float(values[:third].mean()), float(values[-third:].mean())
    p_value = _falls(values[:third], values[-third:])
    distinct = [_distinct(run, places) for places in (run.trained[: len(run.recent())], run.recent())]
    evidence = (
        f"different answers per group {first:.1%} in the first third, {last:.1%} in the last "
        f"(Mann-Whitney, p={p_value:.2g}, n={len(values):,} groups); "
        f"distinct-2 {distinct[0]:.3g} and {distinct[1]:.3g}"
    )
    if p_value > ALPHA or last > DIVERSITY_LEFT * first:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium",
        evidence=evidence,
        confidence=f"likely: p is at most {ALPHA}",
        value=last / first,
        p_value=p_value,
        n=len(values),
        method="share of different answers in groups; one-sided Mann-Whitney test of the last third",
        episodes=tuple(trace_id for _, trace_id in shares[-EXAMPLES:]),
    )


def _unique_shares(run: RunEvidence) -> list[tuple[float, str]]:
    """The share of different answers of each group that is not all right, with a member, by start."""
    members: dict[str, list[int]] = {}
    for at in run.trained:
        if (name := run.episodes[at].group) is not None and run.behaviors[at].answer is not None:
            members.setdefault(name, []).append(int(at))
    top = float(np.nanmax(run.rewards)) if np.isfinite(run.rewards).any() else math.nan
    return [
        (len({run.behaviors[at].answer for at in places}) / len(places), run.episodes[places[0]].trace_id)
        for places in members.values()
        if len(places) >= 2 and not np.all(run.rewards[places] == top)
    ]


def _distinct(run: RunEvidence, places: NDArray[np.int64]) -> float:
    """distinct-2 (Li et al. 2016): the share of different pairs of words among all pairs."""
    pairs: set[tuple[Hashable, ...]] = set()
    number = 0
    for words in run.words(places[-MOST_COMPLETIONS:]):
        of_answer = _ngrams(words, 2)
        pairs.update(of_answer)
        number += len(of_answer)
    return len(pairs) / number if number else math.nan


def _ngrams(words: Sequence[Any], size: int) -> list[tuple[Hashable, ...]]:
    return [tuple(words[at : at + size]) for at in range(len(words) - size + 1)]


def repetition(run: RunEvidence) -> Result:
    """Judge the share of recent completions that repeat themselves."""
    last = run.recent()[-MOST_COMPLETIONS:]
    repeated = {
        int(at): _repeated(words)
        for at, words in zip(last, run.words(last), strict=True)
        if len(words) >= FEWEST_WORDS
    }
    recent = [*repeated]
    if len(recent) < FEWEST_COMPLETIONS:
        return NotJudged(
            reason=f"{len(recent):,} completions of the last third have {FEWEST_WORDS} tokens or words, "
            f"not {FEWEST_COMPLETIONS}"
        )
    flags = np.array([share > REPEATED for share in repeated.values()])
    share = share_of(flags)
    evidence = f"in {share} of the last third over half of the {NGRAM}-grams are repeated (Wilson, 95 %)"
    high, medium = REPEATED_SHARES
    if share.low <= medium:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="high" if share.low > high else "medium",
        evidence=evidence,
        confidence=LIKELY,
        value=share.value,
        interval=(share.low, share.high),
        n=share.n,
        method=f"share of completions with more than half of their {NGRAM}-grams repeated, Wilson interval",
        episodes=run.examples(np.array(recent)[flags]),
    )


def _repeated(words: Sequence[Any]) -> float:
    """The share of n-grams that occurred before."""
    ngrams = _ngrams(words, NGRAM)
    return 1 - len(set(ngrams)) / len(ngrams)
