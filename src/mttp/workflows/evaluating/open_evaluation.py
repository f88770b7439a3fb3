"""`OpenEvaluation`: an evaluation while its tasks run."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from opentelemetry.context import Context, set_value
from opentelemetry.trace import SpanContext

from mttp.codec import evals
from mttp.codec.plain import Faults, count, scalar_text
from mttp.model import clock
from mttp.model.evaluations import FAILED, EvalSummary, Evaluation, TaskResult
from mttp.model.scorings import INVALID_VALUE, Reward, Spec
from mttp.otlp.spans import RecordingSpan
from mttp.otlp.spans.guarding import quiet
from mttp.recording import feedback
from mttp.recording.handle import POLICY_KEY, ScoredHandle, current
from mttp.recording.open_episode import OpenEpisode
from mttp.recording.remote_episode import RemoteEpisode
from mttp.recording.run_recorder import RunRecorder
from mttp.recording.session import Session
from mttp.recording.targets import Target, link
from mttp.semconv import spans as names
from mttp.semconv.values import EvalOutcome as Outcome
from mttp.semconv.values import RewardStatus
from mttp.workflows.evaluating.attempts import in_tasks, in_threads
from mttp.workflows.evaluating.outcome import (
    arguments_of,
    episode_target,
    result_fields,
    seconds,
    verdict_text,
)
from mttp.workflows.evaluating.progress_bar import bar
from mttp.workflows.evaluating.tasks import SAMPLE, Task, task_id

__all__ = ["OpenEvaluation"]


class OpenEvaluation(ScoredHandle):
    """
    An evaluation while its tasks run; `mttp.evaluate` opens one.

    Iterate over the tasks without a result and give each to `result`, or let `map` or `amap` run them:

        >>> import mttp
        >>> with mttp.configure("memory://"), mttp.evaluate("sums", tasks=["1+1", "2+2"]) as run:
        ...     for task in run:
        ...         _ = run.result(task, 0.5, passed=task == "1+1")
        >>> print(run.summary())
        2 tasks: 2 scored, mean 0.5, pass rate 0.5

    Results are available even when recording is off. After set-up no method raises for a wrong value: it is
    counted as a fault of the recording and logged once.
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
        recorder = None if session is None else session._recorder
        super().__init__(recorder, None)
        self._session = session
        self._recorder: RunRecorder | None = recorder
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
        self._started = clock.wall()

    def _begin(self, faults: Faults, metadata: Mapping[str, object] | None) -> None:
        """Start the span, and write a start marker at once in case the process dies."""
        recorder = cast(RunRecorder, self._recorder)
        self._span = recorder.span(f"{names.EVAL_RUN} {self._stated.suite}", values={}, start=self._started)
        self._span.note(faults)
        self._span.values |= self._span.checked(evals.encode, self._stated)
        self._describe(metadata, None)
        marker = recorder.span(
            names.EVAL_RUN_START,
            values=self._span.values.copy(),
            parent=self._span.identity,
            start=self._started,
        )
        marker.end_at_once()

    def __bool__(self) -> bool:
        """Return whether it is recorded."""
        return self._span is not None

    # State.

    @property
    def ended(self) -> bool:
        """Whether it has ended and accepts no further results."""
        return self._over

    @property
    def id(self) -> str:
        """The evaluation's id; a resumed evaluation keeps the id of the interrupted one."""
        return self._stated.id

    @property
    def trace_id(self) -> str:
        """The trace id of the evaluation, 32 hex digits; empty without recording."""
        return f"{self._span.trace_id:032x}" if self._span else ""

    @property
    def sample(self) -> int:
        """The index, from 0, of the sample that runs: in a function called by `map`, or in a loop's body."""
        return SAMPLE.get()

    @property
    def pending(self) -> list[Any]:
        """The tasks without a result as they were passed in, repeated for each missing sample."""
        return [task.given for task in self._left()]

    @property
    def results(self) -> dict[tuple[str, int], TaskResult]:
        """The latest result by (task, sample), including those kept by `resume`."""
        with self._lock:
            return dict(self._found)

    @property
    def value(self) -> Evaluation:
        """The evaluation so far as a value, including results kept by `resume`."""
        with self._lock:
            return replace(self._stated, results=(*self._earlier.values(), *self._kept))

    def summary(self, *, sizes: Sequence[int] = ()) -> EvalSummary:
        """Return counts, mean, pass rate and pass@k so far; `sizes` are further values of k."""
        return self.value.summary(sizes=sizes)

    def by_slice(self, *, sizes: Sequence[int] = ()) -> dict[str, EvalSummary]:
        """Return the summary so far of each slice's tasks; a task in several slices counts in each."""
        return self.value.by_slice(sizes=sizes)

    def __len__(self) -> int:
        return len(self._todo)

    def __iter__(self) -> Iterator[Any]:
        """Yield the tasks without a result, once for each missing sample."""
        for task in self._samples():
            if not self._over and (task.id, task.sample) not in self._found:
                self._begun[task.id] = task.sample, clock.seconds()
                SAMPLE.set(task.sample)
                yield task.given

    def _samples(self) -> Iterator[Task]:
        """Yield each task once for each of its samples."""
        for task in self._todo.values():
            for sample in range(self._stated.samples):
                yield replace(task, sample=sample)

    def _left(self) -> list[Task]:
        return [task for task in self._samples() if (task.id, task.sample) not in self._found]

    # Results.

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
        Set the result of a task; the last result of a sample counts, and all are recorded.

        `task` is a task of the suite or its id.
        `score` is a number, or any other value that a function called by `map` may return, such as the result
        of `spec.score`. `passed` (bool) is the verdict; without a score, it scores 1 or 0.
        `sample` (int, from 0) is the index of the sample: by default the one that iteration yielded, else the
        first without a result, else the last.
        `error` (an exception or text) explains a missing score. Without score, verdict and error the task is
        skipped.
        `outcome` is "scored", "abstained", "skipped", "errored" or "timed_out", by default derived from the
        other arguments.
        `duration` is in seconds, by default the time since iteration yielded the task.
        `episode` is the episode of the task: a handle, a value or a trace id.

        A score that is NaN, infinite or not a number makes the task errored. A task that is not in the suite
        is kept and counted as a fault. Returns the stored result, or None after the end. Never raises.
        """
        faults: Faults = []
        name = task_id(task)
        if not name:
            faults.append(f"task_invalid: {scalar_text(task):.80} has no id")
            name = scalar_text(task)[:80]
        arguments = {} if score is None else arguments_of(score, faults)
        details = {"passed": passed, "error": error, "outcome": outcome}
        details |= {"duration": duration, "episode": episode}
        arguments |= {key: value for key, value in details.items() if value is not None}
        index = _sample(sample, self._stated.samples, faults)
        index, since = self._iterated(name, index)
        return self._keep(name, {"duration": since, **arguments}, faults, sample=index)

    def _iterated(self, task: str, sample: int | None) -> tuple[int | None, float | None]:
        """Return the sample that iteration yielded, if the result is of it, and the seconds since then."""
        begun, since = self._begun.get(task, (None, 0.0))
        if begun is None or sample not in (None, begun):
            return sample, None
        del self._begun[task]
        return begun, clock.seconds() - since

    @quiet
    def _keep(
        self, task: str, arguments: dict[str, Any], faults: Faults, *, sample: int | None
    ) -> TaskResult | None:
        """
        Store and record the result of a task from the arguments of `result`.

        Without `sample` it is that of the first sample without one.
        """
        duration, episode, reward = (arguments.pop(name, None) for name in ("duration", "episode", "reward"))
        if self._todo and task not in self._todo:
            faults.append(f"task_unknown: {task:.80}")
        place = episode_target(episode, faults)
        draft = TaskResult(
            task=task,
            **result_fields(faults, **arguments),
            duration=seconds(duration, faults),
            slices=self._todo[task].slices if task in self._todo else (),
            episode="" if place is None else place.trace_id,
        )
        with self._lock:
            if self._over:
                self._fault("after_end", f"result of {task!r:.80} after the end of its evaluation")
                return None
            index = self._next_sample(task) if sample is None else sample
            result = replace(draft, sample=index, revision=feedback.now())
            result = self._recorded(result.against(self._baseline.get(task)), place, faults)
            self._found[result.key] = result
            self._kept.append(result)
        self._add_to_episode(episode, result, reward)
        return result

    def _next_sample(self, task: str) -> int:
        """Return the first sample of the task without a result, else the last."""
        lacking = (sample for sample in range(self._stated.samples) if (task, sample) not in self._found)
        return next(lacking, self._stated.samples - 1)

    def _recorded(self, result: TaskResult, place: Target | None, faults: Faults) -> TaskResult:
        """Record the result as a span at once, and return it with the span's ids."""
        if self._span is None or self._recorder is None:
            return replace(result, faults=tuple(faults))
        linked = None if place is None else link(place.trace_id, place.span_id)
        span = self._recorder.span(
            names.EVAL_RESULT,
            values={},
            parent=self._span.identity,
            start=result.revision - round(min((result.duration or 0.0) * 1e9, result.revision)),
            links=[linked] if linked else (),
        )
        span.note(faults)
        if result.outcome in (Outcome.ERRORED, Outcome.TIMED_OUT):
            span.fail(result.error_type or result.outcome, result.error or "")
        span.values |= span.checked(evals.encode_result, self._stated, result)
        span.end(max(result.revision, span.started + clock.MOMENT))
        return replace(
            result,
            faults=tuple(dict.fromkeys(span.faults)),
            trace_id=self.trace_id,
            span_id=f"{span.identity.span_id:016x}",
            start_time=span.start_time,
            end_time=span.end_time,
        )

    # Episodes.

    def _open_episode(self, task: Task) -> OpenEpisode | None:
        """Open an episode with the attributes of the evaluation; None without recording."""
        if self._session is None:
            return None
        opened = self._session.episode(task=task.id, slices=task.slices)
        self._mark(opened, sample=task.sample)
        return opened

    def _around(self) -> Context:
        """Return the context to run tasks in; episodes that start in it link to the evaluation."""
        return current() if self._span is None else self._as_context()

    def _as_context(self) -> Context:
        policy = evals.policy(self._stated)
        context = super()._as_context()
        return set_value(POLICY_KEY, policy, context) if policy else context

    def _mark(self, episode: OpenEpisode, *, sample: int = 0, result: TaskResult | None = None) -> None:
        span = episode._span
        if span is not None:
            span.forget(evals.ON_EPISODES)
            span.values |= evals.missing_policy(span.values, evals.policy(self._stated))
            span.values |= span.checked(evals.on_episode, self._stated, sample=sample, result=result)

    def _add_to_episode(self, episode: object, result: TaskResult, reward: Any) -> None:
        """Make the result, or the reward that it comes from, the reward of its episode, however late."""
        if not result.episode or self._span is None:
            return
        is_ours = isinstance(episode, OpenEpisode) and not isinstance(episode, RemoteEpisode)
        opened = cast(OpenEpisode, episode) if is_ours and not cast(OpenEpisode, episode).ended else None
        if opened is not None:
            self._join(opened)
            self._mark(opened, result=result)
        if result.outcome == Outcome.SKIPPED:
            return
        facts: dict[str, Any] = {"grader": self._stated.suite, "grader_version": self._stated.suite_version}
        scoring = _scoring(result, self._stated.spec) if reward is None else reward
        verdict = verdict_text(result.passed)
        if opened is None:
            feedback.score(episode, scoring, **facts, verdict=verdict, revision=result.revision)
            return
        last = opened._scored
        is_graded = result.outcome not in FAILED or result.error_type == INVALID_VALUE
        if is_graded or reward is not None or last is not None:  # a task that failed was never graded
            if reward is None and last is not None and (last.value, last.status) == (result.score, "ok"):
                scoring = replace(last, span_id=opened._scoring)  # the function has recorded it
            if scoring.span_id or scoring.spec is not None or scoring.grader is not None:
                facts = {}
            opened.reward(scoring, verdict=None if verdict == scoring.verdict else verdict, **facts)

    def _join(self, episode: OpenEpisode) -> None:
        """Link the episode to the evaluation, unless it is linked."""
        span, identity = cast(RecordingSpan, episode._span), cast(RecordingSpan, self._span).identity
        if all(_place(existing.context) != _place(identity) for existing in span.links):
            span.add_link(identity)

    # Running the tasks.

    def map(self, function: Callable[[Any], object], *, episodes: bool = True) -> list[TaskResult]:
        """
        Call `function(task)` in threads for each sample without a result, up to `concurrency` at once.

        The function returns the result: a number, a bool, a pair (score, passed), a reward, a dict of
        arguments of `result`, or None to skip the task. An exception is the error of its sample, and the
        others continue. A call that exceeds the time limit is `timed_out`: its thread is abandoned, and its
        return value is ignored.

        Each call runs in its own episode, `mttp.current_episode()`, unless `episodes` is False; `sample` has
        the index of its sample.
        Returns the new results in the order of tasks and samples.
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
        Await `function(task)` for each sample without a result, up to `concurrency` at once.

        As `map`, in the running event loop; a coroutine that exceeds the time limit is cancelled.
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
        results = self.results
        return [results[task.id, task.sample] for task in tasks if (task.id, task.sample) in results]

    # The end.

    @quiet
    def end(self, *, status: str = "completed") -> None:
        """End the evaluation with `status`, "completed" or "aborted"; tasks without a result stay pending."""
        if self._over:
            self._fault("after_end", f"end after the end of an evaluation of {self._stated.suite}")
        else:
            self._finish(status=status)

    def _end_open(self) -> None:
        """End it as aborted, because its session closes."""
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


def _sample(sample: object, samples: int, faults: Faults) -> int | None:
    """Return a valid sample index, else None; an invalid or unexpected one is added to `faults`."""
    index = count(sample)
    if index is None and sample is not None:
        faults.append(f"sample_invalid: {scalar_text(sample):.80}")
    if index is not None and index >= samples:
        faults.append(f"sample_unknown: {index}, of {samples} that are to be taken")
    return index


def _scoring(result: TaskResult, spec: Spec | None) -> Reward:
    """Return a result as a reward."""
    status = {Outcome.SCORED: RewardStatus.OK, Outcome.ABSTAINED: RewardStatus.ABSTAINED}
    return Reward(
        value=result.score,
        status=status.get(result.outcome, RewardStatus.ERROR),
        error=result.error,
        error_type=result.error_type,
        verdict=verdict_text(result.passed),
        spec=spec,
    )


def _place(context: SpanContext) -> tuple[int, int]:
    return context.trace_id, context.span_id
