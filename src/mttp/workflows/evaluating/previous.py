"""Previous evaluations: baselines to compare with, and interrupted evaluations to resume."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mttp.codec.plain import number, scalar_text
from mttp.errors import ConfigureError, ReadError
from mttp.model.evaluations import FAILED, Evaluation, TaskResult
from mttp.model.log import log
from mttp.rewards.source_files import is_same_method

if TYPE_CHECKING:
    from mttp.reading import Recording
    from mttp.reading.sources import Source
    from mttp.recording.session import Session

__all__ = ["Baseline", "Resumable", "chosen", "compared", "resumed"]

Baseline: TypeAlias = "bool | Source | Recording | Evaluation | Mapping[str, float] | None"
Resumable: TypeAlias = "bool | Source"

_WHOLE = ("completed", "unknown")
_SAME = ("suite", "suite_version", "spec", "policy", "policy_version")
"""The fields that must be equal to resume an evaluation."""
_OTHER_METHOD = (
    "the digest of the spec's code is of a version of mttp that computes it otherwise, so whether the code "
    "is the same is unknown"
)


def compared(stated: Evaluation, baseline: Baseline) -> tuple[Evaluation, dict[str, float]]:
    """
    Return the evaluation with the baseline's counts by outcome, and the baseline's scores by task.

    Raises ReadError when the baseline has no evaluation of the suite, version and spec, and ConfigureError
    for a mapping with a score that is not a number.
    """
    if baseline is None or isinstance(baseline, bool):
        return stated, {}
    if isinstance(baseline, Mapping):
        scores = {str(task): _score(task, value) for task, value in baseline.items()}
        return stated.with_baseline(scores), scores
    if isinstance(baseline, Evaluation):
        earlier = baseline
    else:
        earlier = chosen(_evaluations(baseline), stated, where=_named(baseline))
    return stated.with_baseline(earlier), earlier.scores()


def _score(task: object, value: object) -> float:
    score = number(value)
    if score is None or not math.isfinite(score):
        raise ConfigureError(
            f"the baseline's score of {task!r:.80} is {scalar_text(value):.80}; pass a finite number"
        )
    return score


def chosen(evals: Sequence[Evaluation], stated: Evaluation, *, where: str) -> Evaluation:
    """
    Return the last evaluation of the same suite, version and spec as `stated`, preferring completed ones.

    Raises ReadError with the evaluations that there are when none matches, or when the digest of the code of
    a matching one can't be compared.
    """
    others = [evaluation for evaluation in evals if evaluation.id != stated.id]
    comparable = [other for other in others if _is_comparable(other, stated)]
    if not comparable:
        same_but_method = [other for other in others if _is_comparable(_with_code_of(other, stated), stated)]
        if same_but_method:
            raise ReadError(
                f"{where} has an evaluation of {_label(stated)} that is not comparable: {_OTHER_METHOD}. "
                "Evaluate the baseline again, or pass it as a dict from task to score"
            )
        known = ", ".join(dict.fromkeys(map(_label, others))) or "no other"
        raise ReadError(
            f"{where} has no evaluation of {_label(stated)} to compare with; it has: {known}. To compare "
            "with another one, pass the baseline as a dict from task to score"
        )
    return max(comparable, key=lambda other: (other.status in _WHOLE, other.start_time or 0))


def _is_comparable(first: Evaluation, second: Evaluation) -> bool:
    if (first.suite, first.suite_version) != (second.suite, second.suite_version):
        return False
    return first.spec is None or second.spec is None or first.spec == second.spec


def _with_code_of(earlier: Evaluation, current: Evaluation) -> Evaluation:
    """Return an evaluation with the code of the stated spec, if their digests are of different methods."""
    spec, now = earlier.spec, current.spec
    if spec is None or now is None or not spec.code_sha256 or not now.code_sha256:
        return earlier
    if is_same_method(spec.code_sha256, now.code_sha256):
        return earlier
    return replace(earlier, spec=replace(spec, code_sha256=now.code_sha256, code_coverage=now.code_coverage))


def _label(evaluation: Evaluation) -> str:
    named = f"{evaluation.suite} {evaluation.suite_version or 'without a version'}"
    spec = evaluation.spec
    return (
        named if spec is None else f"{named}, spec {spec.name} {spec.version or spec.sha256 or ''}".rstrip()
    )


def resumed(
    stated: Evaluation, resume: Resumable, session: Session | None
) -> tuple[Evaluation, dict[tuple[str, int], TaskResult]]:
    """
    Return the evaluation with the id of the interrupted one, and the results to keep.

    Scored, abstained and skipped results are kept; errors and time-outs are run again. Raises ConfigureError
    when the interrupted evaluation has more samples of each task.
    """
    if resume is False or (resume is True and session is None):
        return stated, {}
    source = _own(session) if isinstance(resume, bool) else resume
    trusted = not isinstance(resume, bool) and stated.run_name is None
    evaluations = _evaluations(source)
    matching = [earlier for earlier in evaluations if _is_same(earlier, stated, any_run=trusted)]
    if not matching:
        if any(_is_same(_with_code_of(earlier, stated), stated, any_run=trusted) for earlier in evaluations):
            log.warning("the evaluation of %s starts anew: %s", _label(stated), _OTHER_METHOD)
        return stated, {}
    last = max(matching, key=lambda earlier: earlier.start_time or 0)
    if last.samples > stated.samples:
        raise ConfigureError(
            f"samples={stated.samples} is lower than the {last.samples} of the evaluation to resume; pass "
            f"samples={last.samples} or more, or omit resume"
        )
    results = {
        key: result
        for key, result in last.latest().items()
        if result.outcome not in FAILED and (result.task in stated.tasks or not stated.tasks)
    }
    return replace(stated, id=last.id), results


def _is_same(previous: Evaluation, current: Evaluation, *, any_run: bool) -> bool:
    """Return whether both are one evaluation; `any_run` skips the comparison of runs."""
    if any(getattr(previous, name) != getattr(current, name) for name in _SAME):
        return False
    if previous.run_id == current.run_id or any_run:
        return True
    return current.run_name is not None and previous.run_name == current.run_name


def _own(session: Session | None) -> Session:
    """Return the session, whose own recording is read; raises ConfigureError if it has none."""
    session = cast("Session", session)
    keeps: Callable[[object], bool] = lambda transport: hasattr(transport, "records")  # noqa: E731
    if session.location is None and not any(map(keeps, session.transports)):
        raise ConfigureError(
            f"resume=True needs a session whose recording can be read, and {session!r} has none; pass "
            "resume='PATH' with the recording to resume from"
        )
    return session


def _evaluations(source: Any) -> list[Evaluation]:
    evals = getattr(source, "evals", None)
    if isinstance(evals, list):
        return evals
    from mttp.reading.evals import evaluations

    return evaluations(source).evals


def _named(source: object) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else scalar_text(source)[:80]
