"""Detectors of tasks that are forgotten, change over time or leak between splits."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mttp.errors import MissingExtra
from mttp.model.chat import text_of
from mttp.model.figures import EpisodeFigures
from mttp.model.statistics.inference import scipy_stats
from mttp.study.diagnosing.certainty import CERTAIN, LIKELY
from mttp.study.diagnosing.evidence import EXAMPLES, HELD_OUT, RunEvidence
from mttp.study.diagnosing.trends import in_sd
from mttp.study.diagnosis import Cleared, DiagnosisFinding, NotJudged

if TYPE_CHECKING:
    from numpy.typing import NDArray

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"

FEWEST_IN_SLICE = 12
"""Episodes of a slice in each third: fewer show no drop of one standard deviation with a power of 80 %."""
DROP = (1.0, 0.5)
"""Drops in standard deviations that are high and medium: Cohen's large and medium effect."""
WHOLE_DROP = 1.5
"""The least drop of the whole run: the level of a healthy one wanders by nearly as much."""
ASSOCIATION = (0.5, 0.3)
"""Cramer's V of the mix and training time that is medium and low."""
EXPECTED = 5
"""Names with fewer expected episodes in a half are counted together: the chi-squared test needs 5."""
SIMILAR = 0.8
"""The Jaccard similarity of shingles from which on two prompts are duplicates (Lee et al. 2022)."""
SHINGLE = 5
"""Characters of a shingle."""
PERMUTATIONS = 128
LEAKED = 0.05
"""The share of leaked held-out tasks from which on their scores mean little."""
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SPACE = re.compile(r"\s+")


def forgetting(run: RunEvidence) -> Result:
    """
    Judge whether a split, slice, environment or task got worse after it had been better.

    One that is the whole run forgets nothing for something else, and counts from a large drop on.
    """
    values = run.quality if run.quality is not None and not run.quality_is_held_out else run.rewards
    name = run.quality_name if values is run.quality else "reward"
    cuts = [len(run.episodes) // 3, 2 * len(run.episodes) // 3]
    tests = []
    for label, places in _slices(run.episodes):
        parts = [_finite(values, part) for part in np.split(places, np.searchsorted(places, cuts))]
        if len(parts[2]) < FEWEST_IN_SLICE:
            continue
        for since, earlier in zip((0, cuts[0]), parts[:2], strict=True):
            if len(earlier) >= FEWEST_IN_SLICE:
                trend = run.trend(values, places[places >= since])
                p_value, size = _drop(earlier, parts[2])
                if (
                    trend is None or trend.direction != "down"
                ):  # neighbors that resemble each other drop often
                    p_value = 1.0
                tests.append((p_value, size, label, places, earlier, parts[2]))
    if not tests:
        return NotJudged(
            reason=f"no split, slice, environment or task has {FEWEST_IN_SLICE} values of {name} in the last "
            "third and in an earlier one"
        )
    p_value, size, label, places, earlier, late = min(tests, key=lambda test: (test[0], -test[1]))
    p_value = min(1.0, p_value * len(tests))
    evidence = (
        f"{label}: {name} {earlier.mean():.3g} -> {late.mean():.3g} in the last third, down {in_sd(size)} "
        f"(Mann-Whitney, p={p_value:.2g} corrected for {len(tests)} tests, n={len(earlier) + len(late):,})"
    )
    high, medium = DROP
    if p_value > 0.05 or size < (WHOLE_DROP if len(places) == len(run.episodes) else medium):
        return Cleared(evidence=f"largest drop is no finding: {evidence}")
    return DiagnosisFinding(
        severity="high" if size >= high else "medium",
        evidence=evidence,
        confidence=f"{LIKELY.split(':')[0]}: p is corrected for all {len(tests)} tests",
        value=size if math.isfinite(size) else None,
        p_value=p_value,
        n=len(earlier) + len(late),
        method="one-sided Mann-Whitney test of the last third against earlier ones, Bonferroni; trend",
        episodes=run.examples(places),
    )


def _finite(values: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    selected = values[places]
    return selected[np.isfinite(selected)]


def _drop(earlier: NDArray[np.float64], late: NDArray[np.float64]) -> tuple[float, float]:
    """P value, one-sided, and the drop in pooled standard deviations."""
    spread = math.sqrt((float(earlier.var(ddof=1)) + float(late.var(ddof=1))) / 2)
    drop = float(earlier.mean() - late.mean())
    size = drop / spread if spread else (math.inf if drop > 0 else 0.0)
    return float(scipy_stats().mannwhitneyu(late, earlier, alternative="less").pvalue), size


def _slices(episodes: Sequence[EpisodeFigures]) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Names and positions of every split, slice, environment, suite and task."""
    by_label: dict[str, list[int]] = {}
    for at, episode in enumerate(episodes):
        labels = {
            f"split {episode.split}" if episode.split else "",
            f"env {episode.env}" if episode.env else "",
        }
        labels |= {f"slice {name}" for name in episode.slices} | {
            f"task {episode.task}" if episode.task else ""
        }
        for label in labels - {""}:
            by_label.setdefault(label, []).append(at)
    for label, places in sorted(by_label.items()):
        yield label, np.array(places, dtype=np.int64)


def data_drift(run: RunEvidence) -> Result:
    """Judge whether the mix of environments, splits, slices or tasks changes over time."""
    tested = []
    for name, labels in _mixes(run):
        if (outcome := _association(labels)) is not None:
            tested.append((*outcome, name, len(labels)))
    if not tested:
        return NotJudged(
            reason="no environment, split, slice or task occurs often enough beside another one "
            f"({EXPECTED} expected in each half of the run)"
        )
    p_value, association, categories, name, n = max(tested, key=lambda test: test[1])
    p_value = min(1.0, p_value * len(tested))
    evidence = (
        f"mix of {name} in the first and the last half: Cramer's V {association:.2f} "
        f"(chi-squared, p={p_value:.2g} corrected for {len(tested)} mixes, {categories} categories, n={n:,})"
    )
    medium, low = ASSOCIATION
    if p_value > 0.01 or association < low:
        return Cleared(evidence=evidence)
    return DiagnosisFinding(
        severity="medium" if association >= medium else "low",
        evidence=evidence,
        confidence=LIKELY.split(":")[0] + ": p is corrected; a curriculum looks the same",
        value=association,
        p_value=p_value,
        n=n,
        method="chi-squared test of first and last half; Cramer's V, bias-corrected (Bergsma 2013)",
        episodes=run.examples(run.recent()),
    )


def _mixes(run: RunEvidence) -> Iterator[tuple[str, list[str]]]:
    episodes = _one_of_each_group([run.episodes[at] for at in run.trained])
    yield "environments", [episode.env for episode in episodes]
    yield "splits", [episode.split or "" for episode in episodes]
    yield "tasks", [episode.task or "" for episode in episodes]
    yield "slices", [" ".join(sorted(episode.slices)) for episode in episodes]


def _one_of_each_group(episodes: Sequence[EpisodeFigures]) -> list[EpisodeFigures]:
    """The samples of a group have one task: they are one draw."""
    first = {episode.group or episode.trace_id: episode for episode in reversed(episodes)}
    return sorted(first.values(), key=lambda episode: episode.start_time or 0)


def _association(labels: Sequence[str]) -> tuple[float, float, int] | None:
    """P value, Cramer's V and the number of categories; None where there are not two."""
    half = len(labels) // 2
    counts = Counter(labels)
    frequent = sorted(label for label, count in counts.items() if count >= 2 * EXPECTED)
    place = {label: at for at, label in enumerate(frequent)}
    table = np.zeros((2, len(frequent) + 1))
    for at, label in enumerate(labels):
        table[int(at >= half), place.get(label, len(frequent))] += 1
    if table[:, -1].sum() < 2 * EXPECTED:
        table = table[:, :-1]
    categories = table.shape[1]
    if not frequent or categories < 2:
        return None
    tested = scipy_stats().chi2_contingency(table, correction=False)
    n = float(table.sum())
    phi = max(0.0, float(tested.statistic) / n - (categories - 1) / (n - 1))
    columns = categories - (categories - 1) ** 2 / (n - 1)
    rows = 2 - 1 / (n - 1)
    return float(tested.pvalue), math.sqrt(phi / (min(columns, rows) - 1)), categories


# Duplicates.


def leakage(run: RunEvidence) -> Result:
    """Judge whether held-out prompts are among those trained on, exactly, nearly or up to numbers."""
    trained, held_out = _prompts(run)
    if not trained or not held_out:
        return NotJudged(
            reason=f"{len(trained):,} prompts of trained and {len(held_out):,} of held-out tasks have text; "
            f"both are needed (splits called {', '.join(sorted(HELD_OUT)[:4])}, ... or evaluations)"
        )
    similar = _near_duplicates(trained, held_out)
    templates = {_template(text) for text in trained}
    leaked = {text for text in held_out if text in trained or text in similar}
    alike = {text for text in held_out if _template(text) in templates} - leaked
    exact = sum(text in trained for text in held_out)
    evidence = (
        f"of {len(held_out):,} held-out prompts {exact:,} are trained on, {len(leaked) - exact:,} nearly "
        f"(Jaccard {SIMILAR:g} of {SHINGLE}-character shingles, MinHash), and {len(alike):,} more are "
        f"equal up to numbers; {len(trained):,} trained prompts"
    )
    if not leaked and not alike:
        return Cleared(evidence=evidence)
    share = len(leaked) / len(held_out)
    shown = [held_out[text] for text in (*sorted(leaked), *sorted(alike))][:EXAMPLES]
    return DiagnosisFinding(
        severity="high" if share >= LEAKED else "medium" if leaked else "low",
        evidence=evidence,
        confidence=CERTAIN,
        value=share,
        n=len(held_out),
        method="MinHash with 128 permutations, candidates confirmed by their Jaccard similarity",
        episodes=tuple(shown),
    )


def _prompts(run: RunEvidence) -> tuple[dict[str, str], dict[str, str]]:
    """Different prompts of trained and held-out episodes, each with a trace id."""
    sides: tuple[dict[str, str], dict[str, str]] = ({}, {})
    prompts = run.prompts()
    for episode, held_out in zip(run.episodes, run.is_held_out, strict=True):
        if text := _prompt(episode, prompts):
            sides[int(held_out)].setdefault(_SPACE.sub(" ", text.strip().lower()), episode.trace_id)
    return sides


def _prompt(episode: EpisodeFigures, prompts: Mapping[str, str]) -> str:
    """Return the text that poses the task: the first observation, else the input `prompt` or `question`."""
    text = prompts.get(episode.trace_id)
    if text is None and (inputs := episode.inputs):
        named = (text_of(inputs.get(name)) for name in ("prompt", "question", "problem"))
        text = next((each for each in named if each is not None), None)
    return text if text and text.strip() else ""


def _template(text: str) -> str:
    return _NUMBER.sub("0", text)


def _near_duplicates(trained: Mapping[str, str], held_out: Mapping[str, str]) -> set[str]:
    """The held-out texts that are at least `SIMILAR` to a trained one."""
    sketching = _datasketch()
    index = sketching.MinHashLSH(threshold=SIMILAR, num_perm=PERMUTATIONS)
    texts = list(trained)
    for at, text in enumerate(texts):
        index.insert(str(at), _sketch(sketching, text))
    return {
        text
        for text in held_out
        if any(_jaccard(text, texts[int(at)]) >= SIMILAR for at in index.query(_sketch(sketching, text)))
    }


def _sketch(sketching: Any, text: str) -> Any:
    sketch = sketching.MinHash(num_perm=PERMUTATIONS)
    sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in _shingles(text)])
    return sketch


def _shingles(text: str) -> set[str]:
    return {text[at : at + SHINGLE] for at in range(max(1, len(text) - SHINGLE + 1))}


def _jaccard(first: str, second: str) -> float:
    left, right = _shingles(first), _shingles(second)
    return len(left & right) / len(left | right)


def _datasketch() -> Any:
    try:
        import datasketch
    except ImportError as error:
        raise MissingExtra(package="datasketch", extra="study", purpose="finding duplicates") from error
    return datasketch
