"""Response times of the policy's model in the tasks of an evaluation, from the calls of their episodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from mttp.codec import calls, kinds
from mttp.model.episodes import Call
from mttp.model.evaluations import Evaluation, TaskResult
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.semconv import spans as names

__all__ = ["StreamedCalls", "timed"]


def timed(evals: Iterable[Evaluation], calls_of: Callable[[str], Iterable[Call]]) -> list[Evaluation]:
    """The evaluations with the call times of each result; `calls_of` returns the calls of a trace."""
    return [
        replace(item, results=tuple(_timed(result, calls_of) for result in item.results)) for item in evals
    ]


def _timed(result: TaskResult, calls_of: Callable[[str], Iterable[Call]]) -> TaskResult:
    policy_calls = [*calls_of(result.episode)] if result.episode else []
    first = tuple(time for call in policy_calls if (time := call.time_to_first_chunk) is not None)
    rest = tuple(time for call in policy_calls if (time := call.time_per_output_token) is not None)
    return replace(result, first_token_times=first, output_token_times=rest) if first else result


class StreamedCalls:
    """
    Collects the policy's calls with a time to the first chunk, without building episodes.

    The spans of an episode without such calls are dropped when its root is read, which is written last.
    """

    def __init__(self) -> None:
        self._calls: defaultdict[str, dict[str, SpanRecord]] = defaultdict(dict)
        self._parents: defaultdict[str, dict[str, str | None]] = defaultdict(dict)
        """Parent of each span that may have a call below it; None if calls below it are not the policy's."""

    def add(self, record: SpanRecord) -> None:
        """Add a span."""
        if calls.is_call(record):
            self._parents[record.trace_id][record.span_id] = None
            if a.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK in record.attributes:
                self._calls[record.trace_id].setdefault(record.span_id, record)
        elif a.RUN_ID not in record.attributes:
            self._parents[record.trace_id][record.span_id] = record.parent_id
        elif kinds.kind(record) != names.STEP:
            self._parents[record.trace_id][record.span_id] = None
        if not record.parent_id and record.trace_id not in self._calls:
            self._parents.pop(record.trace_id, None)

    def of(self, trace_id: str) -> Sequence[Call]:
        """The policy's calls in the steps of a trace, in order of start."""
        records = [record for record in self._calls.get(trace_id, {}).values() if self._is_policys(record)]
        return [calls.decode(record) for record in sorted(records, key=lambda record: record.start_time)]

    def _is_policys(self, record: SpanRecord) -> bool:
        parents = self._parents.get(record.trace_id, {})
        above: str | None = record.parent_id
        for _ in parents:  # a broken recording may have a cycle of parents
            if above not in parents:
                break
            above = parents[above]
        return bool(above) and above not in parents
