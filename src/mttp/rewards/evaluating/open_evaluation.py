"""An evaluation while its tasks are done: it knows their results, recorded or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext

from mttp.codec import evals
from mttp.codec.plain import Faults, count, scalar_text
from mttp.model.evaluations import EvalSummary, Evaluation, TaskResult
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording import feedback
from mttp.recording.handle import Measured, current
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.remote_episode import RemoteEpisode
from mttp.recording.run_recorder import RunRecorder
from mttp.recording.session import Session
from mttp.recording.targets import Target, link
from mttp.rewards.evaluating.attempts import in_tasks, in_threads
from mttp.rewards.evaluating.outcome import found, said, seconds, whole
from mttp.rewards.evaluating.progress_bar import bar
from mttp.rewards.evaluating.tasks import SAMPLE, Task, task_id
from mttp.semconv import spans as names
from mttp.semconv.values import EvalOutcome as Outcome

__all__ = ["OpenEvaluation"]


class OpenEvaluation(Measured):
    """
    An evaluation while its tasks are done; made by `mttp.evaluate`.

    Iterate over it for the tasks that have no result yet, and state each by `result`; or let `map` or `amap`
    do them. Where nothing records, it still knows its results.
    """

    def __init__(
        self,
        session: Session | None,
        stated: Evaluation,
        todo: Mapping[str, Task],
        *,
        baseline: Mapping[str, float],
        done: Mapping[tuple[str, int], TaskResult],
        concurrency: int,
        timeout: float | None,
        progress: bool,
        at_end: Callable[[OpenEvaluation], None],
    ) -> None:
        share = None if session is None else session._share
        super().__init__(share, None)
        self.session = session
        self._share: RunRecorder | None = share
        self._stated = stated
        self._todo = todo
        self._baseline = baseline
        self._earlier = done
        self._found: dict[tuple[str, int], TaskResult] = dict(done)
        self._kept: list[TaskResult] = []
        self._begun: dict[str, tuple[int, float]] = {}
        self._concurrency = concurrency
        self._timeout = timeout
        self._progress = progress
        self._at_end = at_end
        self._lock = threading.RLock()
        self._over = False
        self._started = time.time_ns()

    def begin(self, faults: Faults, metadata: Mapping[str, object] | None) -> None:
        """Start the span, and write at once what keeps its facts should the process die."""
        share = cast(RunRecorder, self._share)
        self._span = share.span(f"{names.EVAL_RUN} {self._stated.suite}", values={}, start=self._started)
        self._span.note(faults)
        self._span.values |= self._span.checked(evals.encode, self._stated)
        self._describe(metadata, None)
        marker = share.span(
            names.EVAL_RUN_START,
            values=self._span.values.copy(),
            parent=self._span.identity,
            start=self._started,
        )
        marker.end(self._started)

    def __bool__(self) -> bool:
        """Whether it is recorded."""
        return self._span is not None

    # What is known so far.

    @property
    def host(self) -> object:
        """What records it; None where nothing does."""
        return self._share

    @property
    def ended(self) -> bool:
        """Whether it takes nothing more."""
        return self._over

    @property
    def id(self) -> str:
        """Its identity, that of the evaluation that it goes on from where there is one."""
        return self._stated.id

    @property
    def trace_id(self) -> str:
        """The evaluation's trace, 32 hex digits; empty where nothing records."""
        return f"{self._span.trace_id:032x}" if self._span else ""

    @property
    def sample(self) -> int:
        """Which of its samples the task is done for: in a function that `map` calls, or in a loop's block."""
        return SAMPLE.get()

    @property
    def pending(self) -> list[Any]:
        """The tasks that lack results, as they were given: each as often as it lacks samples."""
        return [task.given for task in self._left()]

    @property
    def results(self) -> dict[tuple[str, int], TaskResult]:
        """The result that counts of each task and sample, those before an interruption included."""
        with self._lock:
            return dict(self._found)

    @property
    def value(self) -> Evaluation:
        """The evaluation as far as it goes; results of an earlier process are among its results."""
        with self._lock:
            return replace(self._stated, results=(*self._earlier.values(), *self._kept))

    def summary(self, *, sizes: Sequence[int] = ()) -> EvalSummary:
        """What it amounts to so far, as `Evaluation.summary` says it."""
        return self.value.summary(sizes=sizes)

    def __len__(self) -> int:
        return len(self._todo)

    def __iter__(self) -> Iterator[Any]:
        """The tasks that lack results by the time that it is their turn, each once for each sample."""
        for task in self._samples():
            if not self._over and (task.id, task.sample) not in self._found:
                self._begun[task.id] = task.sample, time.perf_counter()
                SAMPLE.set(task.sample)
                yield task.given

    def _samples(self) -> Iterator[Task]:
        """Each task once for each of its samples."""
        for task in self._todo.values():
            for sample in range(self._stated.samples):
                yield replace(task, sample=sample)

    def _left(self) -> list[Task]:
        return [task for task in self._samples() if (task.id, task.sample) not in self._found]

    # What a program says.

    @quiet
    def result(
        self,
        task: object,
        score: object = None,
        *,
        sample: int | None = None,
        passed: object = None,
        duration: float | None = None,
        error: object = None,
        outcome: str | None = None,
        episode: object = None,
    ) -> TaskResult | None:
        """
        State what became of a task; of several results of one sample of it the last counts, and all are kept.

        `score` is a number, or whatever else a function that `map` calls may return, such as what a reward
        spec's `score` gives; `passed` says whether it is enough, and alone scores 1 or 0.
        `sample` is which of the task's samples it is, from 0: by default the one that iteration came to, else
        the first that has no result, else the last.
        `error`, an exception or text, says why there is no score; neither says that the task was skipped.
        `outcome` is "scored", "abstained", "skipped", "errored" or "timed_out" where that is not clear from
        the rest.
        `duration` in seconds is by default the time since iteration came to the task.
        `episode`, a handle, value or trace id, is where it was done.

        A score that is no finite number makes the task errored; a task that is not one of the suite's is
        kept, and counted as a fault. The result as it is kept comes back; None after the end.
        """
        faults: Faults = []
        name = task_id(task)
        if not name:
            faults.append(f"task_invalid: {scalar_text(task):.80} has no id")
            name = scalar_text(task)[:80]
        told = {} if score is None else said(score, faults)
        given = {"passed": passed, "error": error, "outcome": outcome}
        given |= {"duration": duration, "episode": episode}
        told |= {key: value for key, value in given.items() if value is not None}
        which = _sample(sample, self._stated.samples, faults)
        which, since = self._turn(name, which)
        duration = told.pop("duration", since)
        episode = told.pop("episode", None)
        what = found(faults, **told)
        return self.keep(name, what, faults, sample=which, duration=duration, episode=episode)

    def _turn(self, task: str, sample: int | None) -> tuple[int | None, float | None]:
        """The sample that a result is of, where iteration came to it, and the seconds since then."""
        begun, since = self._begun.get(task, (None, 0.0))
        if begun is None or sample not in (None, begun):
            return sample, None
        del self._begun[task]
        return begun, time.perf_counter() - since

    @quiet
    def keep(
        self,
        task: str,
        what: Mapping[str, Any],
        faults: Faults,
        *,
        sample: int | None,
        duration: object,
        episode: object,
    ) -> TaskResult | None:
        """Enter and record what became of a task; without `sample`, of the first that has no result."""
        if self._todo and task not in self._todo:
            faults.append(f"task_unknown: {task:.80}")
        meant = whole(episode, faults)
        stated = TaskResult(
            task=task,
            **what,
            duration=seconds(duration, faults),
            slices=self._todo[task].slices if task in self._todo else (),
            episode="" if meant is None else meant.trace_id,
        )
        with self._lock:
            if self._over:
                self._fault("after_end", f"result of {task!r:.80} after the end of its evaluation")
                return None
            which = self._next_sample(task) if sample is None else sample
            result = replace(stated, sample=which, revision=feedback.now())
            result = self._recorded(result.against(self._baseline.get(task)), meant, faults)
            self._found[result.key] = result
            self._kept.append(result)
        self._tell(episode, result)
        return result

    def _next_sample(self, task: str) -> int:
        """The first sample of the task that has no result, else the last."""
        lacking = (sample for sample in range(self._stated.samples) if (task, sample) not in self._found)
        return next(lacking, self._stated.samples - 1)

    def _recorded(self, result: TaskResult, meant: Target | None, faults: Faults) -> TaskResult:
        """The result with its span, which is written at once."""
        if self._span is None or self._share is None:
            return replace(result, faults=tuple(faults))
        place = None if meant is None else link(meant.trace_id, meant.span_id)
        span = self._share.span(
            names.EVAL_RESULT,
            values={},
            parent=self._span.identity,
            start=result.revision - round(min((result.duration or 0.0) * 1e9, result.revision)),
            links=[place] if place else (),
        )
        span.note(faults)
        if result.outcome in (Outcome.ERRORED, Outcome.TIMED_OUT):
            span.fail(result.error_type or result.outcome, result.error or "")
        span.values |= span.checked(evals.encode_result, self._stated, result)
        span.end(result.revision)
        return replace(
            result,
            faults=tuple(dict.fromkeys(span.faults)),
            trace_id=self.trace_id,
            span_id=f"{span.identity.span_id:016x}",
            start_time=span.start_time,
            end_time=span.end_time,
        )

    # Episodes.

    def episode(self, task: Task) -> OpenEpisode | None:
        """An episode for the task, which says what it is part of; None where nothing records."""
        if self.session is None:
            return None
        opened = self.session.episode(task=task.id, slices=task.slices)
        self._mark(opened, sample=task.sample)
        return opened

    def around(self) -> Context:
        """The context in which the tasks are done: episodes that begin there link to the evaluation."""
        return current() if self._span is None else self._as_context()

    def _mark(self, episode: OpenEpisode, *, sample: int = 0, result: TaskResult | None = None) -> None:
        span = episode._span
        if span is not None:
            span.forget(evals.ON_EPISODES)
            span.values |= span.checked(evals.on_episode, self._stated, sample=sample, result=result)

    def _tell(self, episode: object, result: TaskResult) -> None:
        """Have the episode say its result: itself while it is open, in a late score once it has ended."""
        if not result.episode or self._span is None:
            return
        if isinstance(episode, OpenEpisode) and not isinstance(episode, RemoteEpisode) and not episode.ended:
            self._join(episode)
            self._mark(episode, result=result)
        elif result.outcome != Outcome.SKIPPED:
            feedback.score(
                episode,
                result.score,
                grader=self._stated.suite,
                grader_version=self._stated.suite_version,
                spec=self._stated.spec,
                verdict=None if result.passed is None else "pass" if result.passed else "fail",
                status=result.outcome if result.outcome == Outcome.ABSTAINED else None,
                error=result.error,
                revision=result.revision,
            )

    def _join(self, episode: OpenEpisode) -> None:
        """Link the episode to the evaluation, once."""
        span, ours = cast(RecordingSpan, episode._span), cast(RecordingSpan, self._span).identity
        if all(_place(found.context) != _place(ours) for found in span.links):
            span.add_link(ours)

    # Doing the tasks.

    def map(self, function: Callable[[Any], object], *, episodes: bool = True) -> list[TaskResult]:
        """
        Call `function(task)` for each sample of a task that has no result yet, several at once, in threads.

        What it returns is the result: a number, True or False, a pair of score and verdict, a reward, a
        mapping of what `result` takes, or None where the task is skipped. An exception is an error of that
        sample, and the others go on. A call that takes longer than the time limit is `timed_out`: it is not
        waited for, and what its thread still returns is ignored.

        Each call is in an episode of its own, `mttp.current_episode()`, unless `episodes` is False, and
        `sample` says there which of the task's samples it is.
        The results come back in the order of the tasks, and of their samples.
        """
        todo = self._left()
        with bar(self._stated.suite, len(todo), wanted=self._progress) as advance:
            in_threads(
                self,
                todo,
                function,
                episodes=episodes,
                concurrency=self._concurrency,
                timeout=self._timeout,
                advance=advance,
            )
        return self._of(todo)

    async def amap(
        self, function: Callable[[Any], Awaitable[object]], *, episodes: bool = True
    ) -> list[TaskResult]:
        """
        The same with a coroutine function, several at once in this event loop.

        One that takes longer than the time limit is cancelled.
        """
        todo = self._left()
        with bar(self._stated.suite, len(todo), wanted=self._progress) as advance:
            await in_tasks(
                self,
                todo,
                function,
                episodes=episodes,
                concurrency=self._concurrency,
                timeout=self._timeout,
                advance=advance,
            )
        return self._of(todo)

    def _of(self, tasks: Sequence[Task]) -> list[TaskResult]:
        found = self.results
        return [found[task.id, task.sample] for task in tasks if (task.id, task.sample) in found]

    # The end.

    @quiet
    def end(self, *, status: str = "completed") -> None:
        """End the evaluation; tasks that have no result stay pending."""
        if self._over:
            self._fault("after_end", f"end after the end of an evaluation of {self._stated.suite}")
        else:
            self._finish(status=status)

    def close(self) -> None:
        """End it because its session closes."""
        if not self._over:
            self._fault("evaluation_never_ended", f"{self._stated.suite} was open when its session closed")
            self._finish(status="aborted")

    def _leave(self, error: BaseException | None) -> None:
        if self._span is None:
            self._finish()
        else:
            super()._leave(error)

    def _finish(
        self,
        *,
        status: str = "completed",
        error_type: str | None = None,
        error_message: str = "",
        **_: Any,
    ) -> None:
        with self._lock:
            self._over = True
            self._at_end(self)
            span = self._span
            if span is None:
                return
            if error_type is not None:
                span.fail(error_type, error_message)
            span.values |= evals.ending(status, self.summary(), len(self._kept))
            span.end()

    def __repr__(self) -> str:
        state = "ended" if self._over else "open"
        return f"<OpenEvaluation of {self._stated.suite}, {self.summary().text()}, {state}>"


def _sample(given: object, samples: int, faults: Faults) -> int | None:
    """The index of a sample; None for what is none, and one that is not to be taken is said in `faults`."""
    found = count(given)
    if found is None and given is not None:
        faults.append(f"sample_invalid: {scalar_text(given):.80}")
    if found is not None and found >= samples:
        faults.append(f"sample_unknown: {found}, of {samples} that are to be taken")
    return found


def _place(context: SpanContext) -> tuple[int, int]:
    return context.trace_id, context.span_id
