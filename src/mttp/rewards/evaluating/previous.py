"""Earlier evaluations: what one is compared with, and what it goes on from; read where that is asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from mttp.codec.plain import number, scalar_text
from mttp.errors import ConfigureError, ReadError
from mttp.model.evaluations import FAILED, Evaluation, TaskResult

if TYPE_CHECKING:
    from mttp.reading import Recording
    from mttp.reading.sources import Source
    from mttp.recording.session import Session

__all__ = ["Baseline", "Resumable", "chosen", "compared", "goes_on"]

Baseline: TypeAlias = "bool | Source | Recording | Evaluation | Mapping[str, float] | None"
Resumable: TypeAlias = "bool | Source"

_WHOLE = ("completed", "unknown")
_SAME = ("suite", "suite_version", "spec", "policy", "policy_version")
"""What must be the same for an evaluation to go on."""


def compared(stated: Evaluation, baseline: Baseline) -> tuple[Evaluation, dict[str, float]]:
    """
    The evaluation with the baseline's results by outcome, and the scores to compare with, by task.

    Raises ReadError where there is no evaluation of that suite, version and spec, and ConfigureError for a
    mapping that has no numbers.
    """
    if baseline is None or isinstance(baseline, bool):
        return stated, {}
    if isinstance(baseline, Mapping):
        return stated, {str(task): _score(task, value) for task, value in baseline.items()}
    if isinstance(baseline, Evaluation):
        earlier = baseline
    else:
        earlier = chosen(_evaluations(baseline), stated, where=_named(baseline))
    return replace(stated, baseline_counts=stated.counted(earlier)), earlier.scores()


def _score(task: object, value: object) -> float:
    found = number(value)
    if found is None or not math.isfinite(found):
        raise ConfigureError(
            f"baseline: the score of {task!r:.80} is {scalar_text(value):.80}; give a number"
        )
    return found


def chosen(evals: Sequence[Evaluation], stated: Evaluation, *, where: str) -> Evaluation:
    """
    The evaluation to compare `stated` with: the last of its suite, version and spec, if can be a whole one.

    Raises ReadError where there is none, and says what there is.
    """
    others = [found for found in evals if found.id != stated.id]
    fit = [found for found in others if _is_comparable(found, stated)]
    if not fit:
        there = ", ".join(dict.fromkeys(map(_called, others))) or "no other"
        raise ReadError(
            f"{where} has no evaluation of {_called(stated)} to compare with; it has: {there}. To compare "
            "all the same, give the baseline as a mapping from task to score"
        )
    return max(fit, key=lambda found: (found.status in _WHOLE, found.start_time or 0))


def _is_comparable(one: Evaluation, other: Evaluation) -> bool:
    if (one.suite, one.suite_version) != (other.suite, other.suite_version):
        return False
    return one.spec is None or other.spec is None or one.spec == other.spec


def _called(evaluation: Evaluation) -> str:
    named = f"{evaluation.suite} {evaluation.suite_version or 'without a version'}"
    spec = evaluation.spec
    return (
        named if spec is None else f"{named}, spec {spec.name} {spec.version or spec.sha256 or ''}".rstrip()
    )


def goes_on(
    stated: Evaluation, resume: Resumable, session: Session | None
) -> tuple[Evaluation, dict[tuple[str, int], TaskResult]]:
    """
    The evaluation with the id of the one that it goes on from, and the results that stand.

    What was scored, abstained or skipped stands; what failed or took too long is done again. Raises
    ConfigureError where the earlier one took more samples of each task.
    """
    if resume is False or (resume is True and session is None):
        return stated, {}
    source = _own(session) if isinstance(resume, bool) else resume
    named = not isinstance(resume, bool) and stated.run_name is None
    begun = [found for found in _evaluations(source) if _is_same(found, stated, at_its_word=named)]
    if not begun:
        return stated, {}
    last = max(begun, key=lambda found: found.start_time or 0)
    if last.samples > stated.samples:
        raise ConfigureError(
            f"samples={stated.samples}: the evaluation to go on from takes {last.samples} of each task; give "
            f"samples={last.samples} or more, or leave resume out"
        )
    done = {
        key: result
        for key, result in last.latest().items()
        if result.outcome not in FAILED and (result.task in stated.tasks or not stated.tasks)
    }
    return replace(stated, id=last.id), done


def _is_same(earlier: Evaluation, stated: Evaluation, *, at_its_word: bool) -> bool:
    """Whether it is the same evaluation; where the run has no name, a path that was given is trusted."""
    if any(getattr(earlier, name) != getattr(stated, name) for name in _SAME):
        return False
    if earlier.run_id == stated.run_id or at_its_word:
        return True
    return stated.run_name is not None and earlier.run_name == stated.run_name


def _own(session: Session | None) -> Session:
    """What the session itself has written."""
    session = cast("Session", session)
    keeps: Callable[[object], bool] = lambda transport: hasattr(transport, "records")  # noqa: E731
    if session.location is None and not any(map(keeps, session.transports)):
        raise ConfigureError(
            f"resume=True: {session!r} writes nothing that can be read back; write resume='PATH' of the "
            "recording to go on from"
        )
    return session


def _evaluations(source: Any) -> list[Evaluation]:
    found = getattr(source, "evals", None)
    if isinstance(found, list):
        return found
    from mttp.reading.evals import evaluations

    return evaluations(source).evals


def _named(source: object) -> str:
    return os.fspath(source) if isinstance(source, (str, os.PathLike)) else scalar_text(source)[:80]
