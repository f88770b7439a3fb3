"""Records finished evaluations of other libraries from their values."""

from __future__ import annotations

from mttp.model.evaluations import Evaluation
from mttp.workflows.evaluating import evaluate

__all__ = ["record_evaluation"]


def record_evaluation(value: Evaluation) -> None:
    """
    Record an evaluation with its results, which name the trace ids of recorded episodes.

    One that is unfinished ends as aborted, as an unfinished episode does.
    """
    with evaluate(
        value.suite,
        value.suite_version,
        tasks=value.tasks,
        samples=value.samples,
        policy=value.policy,
        policy_version=value.policy_version,
        tags=value.tags,
        metadata=value.metadata,
        progress=False,
    ) as opened:
        for name, metric in value.metrics.items():
            opened.metric(name, metric)
        for result in value.results:
            opened.result(
                result.task,
                result.score,
                sample=result.sample,
                passed=result.passed,
                duration=result.duration,
                error=result.error,
                outcome=result.outcome,
                episode=result.episode or None,
            )
        opened.end(status="aborted" if value.status == "unfinished" else value.status)
