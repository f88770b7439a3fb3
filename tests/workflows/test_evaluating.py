"""Evaluations: tasks and their results, baselines and resumed evaluations."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from opentelemetry import trace
from polling import SECONDS, eventually
from programs import told
from typer.testing import CliRunner

import mttp
from mttp import Reward
from mttp.cli.app import app
from mttp.errors import ConfigureError, ReadError
from mttp.model import Evaluation, Spec, TaskResult
from mttp.semconv import attributes as a
from mttp.study.rule_templates import TEMPLATES
from mttp.testing import OtlpReceiver
from mttp.workflows.evaluating.progress_bar import bar

FIVE = ["a", "b", "c", "d", "e"]


def read(session: mttp.Session) -> Evaluation:
    """Return the one evaluation of a session."""
    (found,) = mttp.read(session).evals
    return found


def outcomes(results: list[TaskResult]) -> dict[str, str]:
    """Return each task's outcome."""
    return {result.task: result.outcome for result in results}


def test_what_is_stated_is_read(session: mttp.Session):
    """
    The evaluation that is read equals the recorded one, results included.
    """
    spec = Spec(name="exact", version="1.2.0", sha256="ab" * 32)
    with mttp.evaluate(
        "gsm",
        "1",
        tasks=[{"id": "t1", "slices": ["easy", "日本"]}, "t2", "t3", "t4"],
        spec=spec,
        baseline={"t1": 0.5, "t2": 0.25},
        policy="tiny",
        policy_version=7,
        tags={"model": "tiny=4", "nightly": ""},
        metadata={"note": [1, None]},
    ) as run:
        run.metric("tokens", 12)
        run.result("t1", 0.75, passed=True, duration=1.5)
        run.result("t2", error=ValueError("no answer"))
        run.result("t3")
        run.result("t4", outcome="timed_out", error="too slow")

    found = read(session)

    assert found == Evaluation(
        id=run.id,
        suite="gsm",
        suite_version="1",
        run_id=session.run_id,
        run_name="test",
        tasks=("t1", "t2", "t3", "t4"),
        tags={"model": "tiny=4", "nightly": ""},
        spec=spec,
        policy="tiny",
        policy_version="7",
        status="completed",
        metrics={"tokens": 12.0},
        metadata={"note": [1, None]},
        results=tuple(run.results.values()),
    )
    assert [
        TaskResult(
            task="t1",
            score=0.75,
            passed=True,
            baseline_score=0.5,
            delta=0.25,
            duration=1.5,
            slices=("easy", "日本"),
            revision=found.results[0].revision,
        ),
        TaskResult(
            task="t2",
            outcome="errored",
            baseline_score=0.25,
            error="ValueError: no answer",
            error_type="ValueError",
            revision=found.results[1].revision,
        ),
        TaskResult(task="t3", outcome="skipped", revision=found.results[2].revision),
        TaskResult(task="t4", outcome="timed_out", error="too slow", revision=found.results[3].revision),
    ] == list(found.results)


def test_outcomes_are_kept_apart(session: mttp.Session):
    """
    Tasks without a score are counted by outcome and left out of mean and pass rate.
    """
    with mttp.evaluate("gsm", tasks=[*FIVE, "f"], baseline={"a": 0.5, "b": 1.0, "c": 0.0}) as run:
        run.result("a", 1.0, passed=True, duration=1)
        run.result("b", 0.5, passed=False, duration=2)
        run.result("c", error="no")
        run.result("d", outcome="skipped")
        run.result("e", outcome="timed_out", duration=3)
        summary = run.summary()

    shown = {
        name: getattr(summary, name) for name in ("scored", "errored", "skipped", "timed_out", "pending")
    }
    assert {"scored": 2, "errored": 1, "skipped": 1, "timed_out": 1, "pending": 1} == shown
    assert (6, 0.75, 0.5, 0.0, 6.0) == (
        summary.tasks,
        summary.mean,
        summary.pass_rate,
        summary.delta,
        summary.duration,
    )
    assert (2, 0.75, 1, 1) == (summary.compared, summary.baseline_mean, summary.higher, summary.lower)
    assert read(session).summary() == summary


def test_numbers_beyond_a_float_are_left_out(session: mttp.Session):
    """
    A mean is finite even if the sum of scores overflows; an infinite difference is None.
    """
    with mttp.evaluate("gsm", tasks=FIVE, baseline={"a": -1e308}) as run:
        run.result("a", 1e308, duration=1e308)
        run.result("b", 1.5e308, duration=1e308)

    assert (1.25e308, None) == (run.summary().mean, run.summary().delta)
    assert read(session).summary() == run.summary()


def test_the_root_says_what_came_of_it(session: mttp.Session):
    """
    The root span has counts and figures.
    """
    with mttp.evaluate("gsm", tasks=FIVE, baseline={"a": 0.5}) as run:
        run.result("a", 0.75, passed=True)
        run.result("b", error="no")

    root = next(span for span in mttp.scan(session) if span.name == "eval.run gsm")
    expected = {f"{a.EVAL_COUNT}.scored": 1, f"{a.EVAL_COUNT}.errored": 1, a.EVAL_RESULT_COUNT: 2}
    expected |= {a.EVAL_PASS_RATE: 1.0, a.EVAL_DELTA: 0.25, a.GEN_AI_EVALUATION_SCORE_VALUE: 0.75}
    assert expected == {key: root.attributes[key] for key in expected}


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "high", [1, 2]], ids=repr)
def test_a_score_that_is_no_number_is_an_error(session: mttp.Session, score: object):
    """
    The task is errored, with the text of the score.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", score)

    (result,) = read(session).results
    assert ("errored", None) == (result.outcome, result.score)
    assert str(score) in (result.error or "")
    assert Counter(score_invalid=1) == session.stats.faults


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"score": 0.5, "outcome": "skipped"}, ("skipped", None, "score_unused")),
        ({"score": 0.5, "error": "no"}, ("errored", None, "score_unused")),
        ({"outcome": "scored"}, ("errored", None, None)),
        ({"score": 0.5, "outcome": "great"}, ("scored", 0.5, "outcome_invalid")),
        ({"score": 0.5, "duration": -1}, ("scored", 0.5, "duration_invalid")),
        ({"score": 0.5, "episode": 7}, ("scored", 0.5, "target_invalid")),
        ({"passed": False}, ("scored", 0.0, None)),
    ],
    ids=repr,
)
def test_what_makes_no_sense_is_counted(session: mttp.Session, said: dict[str, Any], expected: Any):
    """
    Invalid arguments are faults, and the others are kept.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        result = run.result("a", **said)

    assert result is not None
    assert expected == (result.outcome, result.score, next(iter(session.stats.faults), None))


def test_a_second_result_counts_and_both_are_kept(session: mttp.Session):
    """
    The summary uses the last result of a task.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", 0.25)
        run.result("a", 0.75)

    found = read(session)
    assert [0.25, 0.75] == [result.score for result in found.results]
    assert (0.75, 1) == (found.summary().mean, found.summary().tasks)


def test_a_task_of_no_suite_is_kept(session: mttp.Session):
    """
    It is extra in the summary, and a fault.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", 1)
        run.result("other", 0)

    summary = read(session).summary()
    assert (("other",), 2, 0.5) == (summary.extra, summary.tasks, summary.mean)
    assert Counter(task_unknown=1) == session.stats.faults


def test_results_after_the_end_are_counted(session: mttp.Session):
    """
    They are faults, and nothing raises.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        pass
    run.end()

    assert run.result("a", 1) is None
    assert (2, ()) == (session.stats.faults["after_end"], read(session).results)


def test_nothing_records_and_the_results_are_there(monkeypatch: pytest.MonkeyPatch):
    """
    Results are available with recording off.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with mttp.evaluate("gsm", tasks=FIVE, resume=True) as run:
        run.map(lambda task: task == "a")

    assert (5, 0.2) == (run.summary().scored, run.summary().mean)
    assert not run


def test_what_is_current_stays_where_nothing_records(monkeypatch: pytest.MonkeyPatch):
    """
    A user's span is the parent of spans in a task.
    """
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    around = trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))
    with trace.use_span(around), mttp.evaluate("gsm", tasks=["a"]) as run:
        seen = run.map(lambda _: trace.get_current_span() is around)

    assert [True] == [result.passed for result in seen]


def test_results_of_many_threads_are_all_kept(session: mttp.Session):
    """
    The last result has the highest revision.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        threads = [threading.Thread(target=run.result, args=("a", number)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    found = read(session)
    assert set(range(20)) == {result.score for result in found.results}
    assert run.results == found.latest()


def test_it_starts_a_session_by_itself(capsys: pytest.CaptureFixture[str]):
    """
    `evaluate` starts one as `episode` does.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", 1)
    session = mttp.current_session()

    assert session is not None
    assert 1.0 == read(session).summary().mean
    assert "recording episodes to" in capsys.readouterr().err


def test_evaluating_loads_nothing_that_reads():
    """
    Reading modules are loaded only for a baseline or `resume`.
    """
    reading = told(
        """
        import json, sys
        import mttp
        with mttp.configure("memory://"), mttp.evaluate("gsm", tasks=["a"]) as run:
            run.map(lambda task: 1.0)
        print(json.dumps([name for name in sys.modules if name.startswith(("mttp.reading", "pydantic"))]))
        """
    )

    assert [] == reading


# Set-up.


@dataclass
class Question:
    """A task as an object."""

    id: int
    slices: str = "hard"


def test_tasks_are_names_or_have_ids(session: mttp.Session):
    """
    A function receives the task as passed in; results have its id.
    """
    tasks = ["a", 2, {"task": "three"}, {"name": "four"}, Question(5)]
    with mttp.evaluate("gsm", tasks=tasks) as run:
        seen = []
        for task in run:
            seen.append(task)
            run.result(task, 1)

    assert tasks == seen
    assert ["a", "2", "three", "four", "5"] == [task for task, _ in run.results]
    assert ("hard",) == run.results["5", 0].slices


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tasks": ["a", "a"]}, "several tasks have the id 'a'"),
        ({"tasks": [{"prompt": "x"}]}, "has no id"),
        ({"tasks": "abc"}, "is not a list of tasks"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"tags": {"a=b": "c"}}, "'a=b'"),
        ({"tags": ["a"]}, "is not a dict"),
        ({"spec": "exact"}, "is not a reward spec"),
        ({"baseline": {"a": "high"}}, "the baseline's score of 'a' is 'high'"),
    ],
    ids=repr,
)
def test_setting_up_fails_loudly(session: mttp.Session, options: dict[str, Any], said: str):
    """
    The error has the value and advice.
    """
    with pytest.raises(ConfigureError, match=said):
        mttp.evaluate("gsm", **options)


def test_a_spec_may_know_its_identity(session: mttp.Session):
    """
    An object with `identity` is recorded as name, version and digests.
    """

    class Document:
        identity = Spec(name="exact", version="1")

    with mttp.evaluate("gsm", spec=Document()):
        pass

    assert Document.identity == read(session).spec


# Doing the tasks.


def function(task: str) -> object:
    """A task's function with each kind of return value."""
    if task == "b":
        raise ValueError("no")
    return {"a": 0.75, "c": None, "d": (0.5, True), "e": Reward(value=0.25, verdict="fail")}[task]


async def coroutine_function(task: str) -> object:
    """The same as a coroutine function."""
    await asyncio.sleep(0)
    return function(task)


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_each_task_is_done_once(session: mttp.Session, *, is_async: bool, concurrency: int):
    """
    Each runs in its own episode; an exception does not stop the others.
    """
    with mttp.evaluate("gsm", "1", tasks=FIVE, concurrency=concurrency) as run:
        results = asyncio.run(run.amap(coroutine_function)) if is_async else run.map(function)

    assert FIVE == [result.task for result in results]
    assert [
        ("scored", 0.75, None, None),
        ("errored", None, None, "ValueError: no"),
        ("skipped", None, None, None),
        ("scored", 0.5, True, None),
        ("scored", 0.25, False, None),
    ] == [(result.outcome, result.score, result.passed, result.error) for result in results]
    recording = mttp.read(session)
    said = {episode.task: (episode.status, episode.outcome) for episode in recording}
    assert {
        "a": ("completed", "unknown"),
        "b": ("error", "unknown"),
        "c": ("completed", "unknown"),
        "d": ("completed", "success"),
        "e": ("completed", "failure"),
    } == said
    assert {result.task: (result,) for result in recording.evals[0].latest().values()} == {
        episode.task: episode.results for episode in recording
    }
    assert [] == recording.problems


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
def test_as_many_tasks_go_on_as_wanted(session: mttp.Session, *, is_async: bool):
    """
    Three run at once, and never four.
    """
    going, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3, timeout=SECONDS)

    def enter(step: int) -> None:
        nonlocal going, most
        with lock:
            going += step
            most = max(most, going)

    def work(task: int) -> int:
        enter(1)
        together.wait()
        enter(-1)
        return task

    async def awork(task: int) -> int:
        enter(1)
        for _ in range(5):
            await asyncio.sleep(0)
        enter(-1)
        return task

    with mttp.evaluate("gsm", tasks=range(9), concurrency=3) as run:
        results = asyncio.run(run.amap(awork)) if is_async else run.map(work)

    assert (3, list(range(9))) == (most, [result.score for result in results])


def test_a_thread_that_takes_too_long_is_left_alone(session: mttp.Session):
    """
    Its task is timed out, the others continue, and its return value is ignored.
    """
    go_on, returned = threading.Event(), threading.Event()

    def work(task: str) -> float:
        if task == "a":
            go_on.wait(SECONDS)
            mttp.current_episode().metric("late", 1)
            returned.set()
        return 1.0

    with mttp.evaluate("gsm", tasks=["a", "b", "c"], concurrency=1, timeout=0.2) as run:
        results = run.map(work)
        go_on.set()
        assert returned.wait(SECONDS)

    assert {"a": "timed_out", "b": "scored", "c": "scored"} == outcomes(results)
    assert "exceeded the time limit of 0.2 s" == results[0].error
    episode = next(episode for episode in mttp.read(session) if episode.task == "a")
    assert ("aborted", True, "timed_out") == (episode.status, episode.truncated, episode.stop_reason)
    assert {} == episode.metrics


def test_a_coroutine_that_takes_too_long_is_cancelled(session: mttp.Session):
    """
    Its task is timed out, and the others continue.
    """
    cancelled = []

    async def work(task: str) -> float:
        if task == "a":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(task)
                raise
        return 1.0

    async def main() -> list[TaskResult]:
        async with mttp.evaluate("gsm", tasks=["a", "b", "c"], concurrency=1, timeout=0.2) as run:
            return await run.amap(work)

    assert {"a": "timed_out", "b": "scored", "c": "scored"} == outcomes(asyncio.run(main()))
    assert ["a"] == cancelled
    assert {"aborted": 1, "completed": 2} == Counter(episode.status for episode in mttp.read(session))


def test_an_evaluation_that_is_cancelled_is_aborted(session: mttp.Session):
    """
    Finished tasks keep their results; running ones have none.
    """

    async def main() -> None:
        begun = asyncio.Event()

        async def work(task: str) -> float:
            if task == "b":
                begun.set()
                await asyncio.Event().wait()
            return 1.0

        async def evaluate() -> None:
            async with mttp.evaluate("gsm", tasks=["a", "b", "c"], concurrency=1) as run:
                await run.amap(work)

        task = asyncio.ensure_future(evaluate())
        await begun.wait()
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(main())
    found = read(session)
    assert ("aborted", ["a"], 2) == (found.status, [*found.scores()], found.summary().pending)
    assert {"a": "completed", "b": "aborted"} == {
        episode.task: episode.status for episode in mttp.read(session)
    }


def test_an_exception_of_the_block_ends_it(session: mttp.Session):
    """
    The exception propagates and is recorded.
    """

    def work(run: mttp.rewards.OpenEvaluation) -> None:
        with run:
            run.result("a", 1)
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk"):
        work(mttp.evaluate("gsm", tasks=FIVE))

    found = read(session)
    assert ("error", "OSError", "disk full") == (found.status, found.error_type, found.error_message)


def test_a_session_that_closes_ends_it():
    """
    An evaluation that was not ended is a fault; its results are kept.
    """
    with mttp.configure("file://runs/a.jsonl") as session:
        run = mttp.evaluate("gsm", tasks=FIVE)
        run.result("a", 1)

    (found,) = mttp.read("runs/a.jsonl").evals
    assert ("aborted", 1) == (found.status, len(found.results))
    assert Counter(evaluation_never_ended=1) == session.stats.faults


def test_a_foreign_result_is_understood(session: mttp.Session):
    """
    Invalid rewards, dicts and values of other types become outcomes.
    """

    class Odd:
        @property
        def value(self) -> float:
            raise RuntimeError("none of yours")

    answers = {
        "a": Reward(status="abstained"),
        "b": Reward(status="error", error="judge is down"),
        "c": {"score": 0.5, "passed": True, "duration": 2.0, "colour": "red"},
        "d": object(),
        "e": Odd(),
    }
    with mttp.evaluate("gsm", tasks=[*answers]) as run:
        results = run.map(answers.__getitem__)

    assert ["abstained", "errored", "scored", "errored", "errored"] == [result.outcome for result in results]
    assert ("judge is down", 2.0) == (results[1].error, results[2].duration)
    assert {"argument_unknown", "score_invalid"} == set(session.stats.faults)


def test_episodes_are_left_to_the_function(session: mttp.Session):
    """
    A function that starts its own episode returns it.
    """

    def work(task: str) -> dict[str, object]:
        with mttp.episode(env="toy", task=task) as episode:
            return {"score": 1.0, "episode": episode}

    with mttp.evaluate("gsm", tasks=["a", "b"]) as run:
        run.map(work, episodes=False)

    recording = mttp.read(session)
    assert ["toy", "toy"] == [episode.env for episode in recording]
    assert {result.episode for result in recording.evals[0].results} == {e.trace_id for e in recording}


# Episodes.


def test_an_open_episode_says_its_result(session: mttp.Session):
    """
    Its root has the result and one link to the evaluation, and no annotation.
    """
    with mttp.evaluate("gsm", "1", tasks=["a"]) as run, mttp.episode(task="a") as episode:
        run.result("a", 0.5, passed=True, episode=episode)
    root = next(span for span in mttp.scan(session, arrays=True) if span.name.split()[0] == "episode")

    said = {a.EVAL_ID: run.id, a.EVAL_SUITE_NAME: "gsm", a.EVAL_SUITE_VERSION: "1"}
    said |= {a.EVAL_OUTCOME: "scored", a.GEN_AI_EVALUATION_SCORE_VALUE: 0.5}
    said |= {a.TEST_CASE_RESULT_STATUS: "pass"}
    assert said == {key: root.attributes.get(key) for key in said}
    assert [(run.trace_id, run.span_id)] == [(link.trace_id, link.span_id) for link in root.links]
    (found,) = mttp.read(session)
    assert ({}, ()) == (found.extra, found.annotations)


def test_an_episode_outside_the_block_is_linked_once(session: mttp.Session):
    """
    Several results add one link.
    """
    run = mttp.evaluate("gsm", tasks=["a"])
    with mttp.episode(task="a") as episode:
        run.result("a", 0.5, episode=episode)
        run.result("a", 0.75, episode=episode)
    run.end()
    root = next(span for span in mttp.scan(session, arrays=True) if span.name.split()[0] == "episode")

    assert [run.trace_id] == [link.trace_id for link in root.links]


def test_an_episode_says_its_last_result(session: mttp.Session):
    """
    Attributes of an earlier result are removed.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run, mttp.episode(task="a") as episode:
        run.result("a", 0.5, passed=True, episode=episode)
        run.result("a", error="no", episode=episode)
    root = next(span for span in mttp.scan(session) if span.name.split()[0] == "episode")

    assert "errored" == root.attributes[a.EVAL_OUTCOME]
    assert not {a.GEN_AI_EVALUATION_SCORE_VALUE, a.TEST_CASE_RESULT_STATUS} & root.attributes.keys()


@pytest.mark.parametrize("how", ["handle", "value", "trace id"])
def test_an_ended_episode_is_scored_late(session: mttp.Session, how: str):
    """
    Its root is unchanged; the suite is the grader of a late score.
    """
    with mttp.episode(task="a") as episode:
        pass
    given = {"handle": episode, "value": mttp.read(session).episodes[0], "trace id": episode.trace_id}[how]
    with mttp.evaluate("gsm", "1", tasks=["a", "b"]) as run:
        run.result("a", 0.5, passed=False, episode=given)
        run.result("b", outcome="skipped", episode=given)

    (found,) = mttp.read(session)
    (statement,) = found.annotations
    assert (0.5, "fail", "1") == (
        found.scores["gsm"].value,
        found.scores["gsm"].verdict,
        found.scores["gsm"].grader_version,
    )
    assert statement.revision == found.results[0].revision
    assert ["a", "b"] == [result.task for result in found.results]


# One notion of score.

OF_KINDS: dict[str, Callable[[float], Any]] = {
    "numbers": lambda score: score,
    "verdicts": lambda score: score > 0.5,
    "pairs": lambda score: (score, score > 0.5),
    "scores": lambda score: mttp.rewards.Score(score, explanation="because"),
    "results": lambda score: scoring(score).score(),
    "values of results": lambda score: scoring(score).score().value,
    "rewards": lambda score: Reward(value=score, components={"right": score}),
}


def evaluated(path: str, returned: Callable[[float], Any], right: int) -> Any:
    """Record an evaluation of 60 tasks, of which the first `right` ones score 1 and the others 0."""
    tasks = [{"id": f"t{place:02}", "slices": [f"s{place % 2}"]} for place in range(60)]
    with (
        mttp.configure(f"file://{path}", run=path, kind="eval"),
        mttp.evaluate("sums", tasks=tasks, policy="small", policy_version=path) as run,
    ):
        run.map(lambda task: returned(float(int(task["id"][1:]) < right)))
    return run


@pytest.mark.parametrize("kind", OF_KINDS)
def test_every_study_has_the_score_of_the_evaluation(kind: str, tmp_path: Path) -> None:
    """
    A result is the reward and the return of its episode; comparison and gate agree to the last digit.
    """
    pytest.importorskip("scipy")
    base, new = str(tmp_path / "base.jsonl"), str(tmp_path / "new.jsonl")
    evaluated(base, OF_KINDS[kind], 30)
    run = evaluated(new, OF_KINDS[kind], 45)
    summary = run.value.against(mttp.read(base).evals[0]).summary()
    comparison = mttp.compare(base, new)
    rules = yaml.safe_load(TEMPLATES["llm"])
    recording = mttp.read(new)

    for episode in recording:
        (result,) = episode.results
        assert (result.score,) * 2 == (episode.reward.value, episode.return_)
        assert ("small", new) == (episode.policy, episode.policy_version_start)
        assert 1 == len(episode.rewards)
    for metric in (comparison["return"], comparison["reward"]):
        assert (summary.delta, summary.delta_interval, summary.delta_p, summary.comparison) == (
            metric.effect,
            metric.interval,
            metric.p_corrected,
            metric.verdict,
        )
    assert [("policy", "version")] == [(found.kind, found.name) for found in comparison.differences]
    assert "promote" == mttp.gate(new, baseline=base, rules=rules).verdict
    assert "missing_rewards" not in {finding.name for finding in mttp.diagnose(new).findings}
    assert summary.mean == mttp.summarize(new).returns.mean() == 0.75
    assert {"s0": 23 / 30, "s1": 22 / 30} == {name: part.mean for name, part in run.by_slice().items()}


def test_a_scoring_of_the_function_with_the_score_is_kept(session: mttp.Session) -> None:
    """
    With its components and its explanation; another score is a further scoring, which counts.
    """

    def work(task: str) -> float:
        mttp.current_episode().reward(0.5, components={"right": 0.5}, explanation="half")
        return 0.5 if task == "same" else 0.75

    with mttp.evaluate("sums", tasks=["same", "other"]) as run:
        run.map(work)
    same, other = sorted(mttp.read(session), key=lambda episode: episode.return_ or 0.0)

    assert (1, {"right": 0.5}, "half") == (len(same.rewards), same.reward.components, same.reward.explanation)
    assert (2, 0.75, {}) == (len(other.rewards), other.reward.value, other.reward.components)


def test_a_task_that_failed_leaves_no_reward_and_a_score_that_failed_does(session: mttp.Session) -> None:
    """
    An exception is no grading; a score that is no number, and an abstention, have a status.
    """
    answers = {
        "raised": ValueError("no"),
        "nan": math.nan,
        "none": mttp.rewards.Score(None),
        "true": mttp.rewards.Score(True),
    }
    with mttp.evaluate("sums", tasks=[*answers]) as run:
        outcomes = [result.outcome for result in run.map(answers.__getitem__)]

    assert ["errored", "errored", "abstained", "scored"] == outcomes
    statuses = {episode.task: (episode.reward.status, episode.outcome) for episode in mttp.read(session)}
    assert {
        "raised": ("missing", "unknown"),
        "nan": ("error", "unknown"),
        "none": ("abstained", "unknown"),
        "true": ("ok", "success"),
    } == statuses


def test_an_error_after_a_score_takes_the_reward_away(session: mttp.Session) -> None:
    """
    The last result counts, for the evaluation and for its episode.
    """
    with mttp.evaluate("sums", tasks=["a"]) as run, mttp.episode(task="a") as episode:
        run.result("a", 0.5, episode=episode)
        run.result("a", error="the answer was another one's", episode=episode)

    (found,) = mttp.read(session)
    assert ("error", None, None) == (found.reward.status, found.reward.value, found.return_)


def test_episodes_of_an_evaluation_have_its_policy(session: mttp.Session) -> None:
    """
    Wherever they start in it, unless they state another one; also a late score is the return.
    """

    def work(task: str) -> dict[str, Any]:
        with mttp.episode(task=task, env="inner") as inner, mttp.episode(policy="judge"):
            pass
        return {"score": 0.5, "episode": inner}

    with mttp.evaluate("sums", tasks=["a"], policy="small", policy_version=2) as run:
        run.map(work, episodes=False)
    outside = mttp.evaluate("sums", tasks=["b"], policy="large")
    with mttp.episode(task="b") as episode:
        outside.result("b", 1.0, episode=episode)
    outside.end()
    with mttp.episode(task="c"):
        pass

    assert {("small", "2", 0.5), ("judge", None, None), ("large", None, 1.0), (None, None, None)} == {
        (found.policy, found.policy_version_start, found.return_) for found in mttp.read(session)
    }


# Baselines.


def before(
    path: str, suite: str = "gsm", version: str = "1", spec: Spec | None = None, **scores: float
) -> str:
    """A recording of a previous evaluation."""
    with mttp.configure(f"file://{path}"), mttp.evaluate(suite, version, tasks=[*scores], spec=spec) as run:
        for task, score in scores.items():
            run.result(task, score)
        run.result("broken", error="no")
    return path


def test_scores_are_compared_with_a_recording():
    """
    A baseline is a path, a recording, or one of its evaluations.
    """
    path = before("before.jsonl", a=0.5, b=1.0)
    recording = mttp.read(path)
    for baseline in (path, Path(path), [path], recording, recording.evals[0]):
        with (
            mttp.configure("memory://") as session,
            mttp.evaluate("gsm", "1", tasks=FIVE, baseline=baseline) as run,
        ):
            results = run.map(lambda _: 0.75)

        assert [0.25, -0.25, None, None, None] == [result.delta for result in results]
        assert 0.0 == run.summary().delta
        assert session.stats.faults == {}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"suite": "other"}, "no evaluation of other 1 to compare with; it has: gsm 1, spec exact 1"),
        ({"suite_version": "2"}, "no evaluation of gsm 2"),
        ({"spec": Spec(name="exact", version="2")}, "no evaluation of gsm 1, spec exact 2"),
    ],
    ids=repr,
)
def test_what_can_not_be_compared_is_refused(session: mttp.Session, options: dict[str, Any], said: str):
    """
    The error lists the evaluations that there are, and how to compare with another.
    """
    session.close()
    path = before("before.jsonl", spec=Spec(name="exact", version="1"), a=0.5)

    with mttp.configure("memory://"), pytest.raises(ReadError, match=said):
        mttp.evaluate(**({"suite": "gsm", "suite_version": "1"} | options), tasks=FIVE, baseline=path)


@pytest.mark.parametrize("method", ["", "files:0:"])
def test_a_baseline_with_code_of_another_method_is_not_comparable(session: mttp.Session, method: str):
    """
    The digests of its spec's code do not say whether the code is the same; nothing says that it changed.
    """
    session.close()
    facts = {"name": "exact", "version": "1", "sha256": "ab"}
    path = before("before.jsonl", spec=Spec(**facts, code_sha256=f"{method}01", code_coverage="full"), a=0.5)
    said = "an evaluation of gsm 1, spec exact 1 that is not comparable: .* Evaluate the baseline again"

    with mttp.configure("memory://"), pytest.raises(ReadError, match=said):
        mttp.evaluate("gsm", "1", tasks=FIVE, baseline=path, spec=Spec(**facts, code_sha256="files:1:02"))


def test_the_last_that_ended_is_the_baseline():
    """
    An evaluation that was interrupted later is not chosen.
    """
    path = before("before.jsonl", a=0.5)
    before(path, a=0.25)
    with mttp.configure(f"file://{path}"), mttp.evaluate("gsm", "1", tasks=["a"]) as cut_off:
        cut_off.result("a", 0.0)
        cut_off.end(status="aborted")
    with mttp.configure("memory://"), mttp.evaluate("gsm", "1", tasks=["a"], baseline=path) as run:
        results = run.map(lambda _: 1.0)

    assert [0.25] == [result.baseline_score for result in results]


# Interruptions.


def test_what_was_scored_is_not_done_again():
    """
    Errored, timed-out and missing tasks run again, as part of one evaluation.
    """
    with mttp.configure("file://runs/a.jsonl", run_id="r"):
        first = mttp.evaluate("gsm", "1", tasks=FIVE, resume=True)
        first.result("a", 0.5)
        first.result("b", outcome="skipped")
        first.result("c", error="no")
        first.result("d", outcome="timed_out")
        first.end(status="aborted")
    with mttp.configure("file://runs/a.jsonl", run_id="r"):
        second = mttp.evaluate("gsm", "1", tasks=FIVE, resume=True)
        results = second.map(lambda _: 1.0)
        second.end()

    (found,) = mttp.read("runs/a.jsonl").evals
    assert ["c", "d", "e"] == [result.task for result in results]
    assert (first.id, "completed", 2) == (second.id, found.status, len(found.trace_ids))
    assert second.summary() == found.summary() == second.value.summary()
    assert (4, 1, 0.875) == (found.summary().scored, found.summary().skipped, found.summary().mean)
    assert 7 == len(found.results)


@pytest.mark.parametrize(
    ("options", "is_same"),
    [
        ({}, True),
        ({"suite_version": "2"}, False),
        ({"policy_version": "2"}, False),
        ({"spec": Spec(name="other")}, False),
    ],
    ids=repr,
)
def test_only_the_same_evaluation_goes_on(session: mttp.Session, options: dict[str, Any], *, is_same: bool):
    """
    Another version of suite, policy or spec starts a new one.
    """
    facts: dict[str, Any] = {"suite_version": "1", "policy_version": "1", "tasks": ["a", "b"]}
    with mttp.evaluate("gsm", **facts) as first:
        first.result("a", 1)
    with mttp.evaluate("gsm", **facts | options, resume=True) as second:
        left = second.pending

    assert (is_same, ["b"] if is_same else ["a", "b"]) == (first.id == second.id, left)


def test_an_evaluation_with_code_of_another_method_starts_anew(session: mttp.Session, caplog: Any):
    """
    A warning says why: whether the spec's code is the same is unknown.
    """
    for digest in ("01", "files:1:02"):
        with mttp.evaluate(
            "gsm", spec=Spec(name="exact", code_sha256=digest), tasks=["a"], resume=True
        ) as run:
            left = run.pending
            run.result("a", 1)

    assert ["a"] == left
    assert "the evaluation of gsm without a version, spec exact starts anew: the digest" in caplog.text


@pytest.mark.parametrize(
    ("names", "resume", "is_same"),
    [
        (("one", "one"), True, True),
        (("one", "two"), True, False),
        ((None, None), True, False),
        ((None, None), "runs", True),
        (("one", "two"), "runs", False),
    ],
    ids=repr,
)
def test_it_is_of_the_same_run(names: tuple[str | None, str | None], resume: Any, *, is_same: bool):
    """
    The run has the same id or name; for a run without a name, a path is trusted.
    """
    done = []
    for name, how in zip(names, (False, resume), strict=True):
        session = mttp.configure("file://runs/", run=name, run_id=f"run-{len(done)}")
        with session, mttp.evaluate("gsm", tasks=["a"], resume=how) as run:
            done.append(run.map(lambda _: 1.0))

    assert [1, 0 if is_same else 1] == [*map(len, done)]


def test_what_can_not_be_read_back_is_reported(session: mttp.Session):
    """
    A collector can't be read, and a path must exist.
    """
    session.close()
    with OtlpReceiver() as receiver, mttp.configure(receiver.http_address):
        with pytest.raises(ConfigureError, match="resume='PATH'"):
            mttp.evaluate("gsm", tasks=["a"], resume=True)
        with pytest.raises(ReadError, match=r"nowhere\.jsonl does not exist"):
            mttp.evaluate("gsm", tasks=["a"], resume="nowhere.jsonl")


KILLED = """
    import sys, time
    import mttp

    def work(task):
        if task >= 3:
            time.sleep(60)
        return task / 4

    with mttp.configure("file://runs/a.jsonl", run_id="r"):
        with mttp.evaluate("quarters", tasks=range(6), concurrency=1, resume=True) as run:
            run.map(work)
"""


def test_a_killed_evaluation_goes_on():
    """
    Written results are read as unfinished and not run again.
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED)], stderr=subprocess.PIPE)
    with process:
        file = Path("runs/a.jsonl")
        eventually(lambda: file.exists() and file.read_text().count('"eval.result"') == 3)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(SECONDS)
    cut_off = mttp.read("runs/a.jsonl")
    session = mttp.configure("file://runs/a.jsonl", run_id="r")
    with session, mttp.evaluate("quarters", tasks=range(6), resume=True) as run:
        results = run.map(lambda task: task / 4)

    (before_kill,) = cut_off.evals
    assert ("unfinished", 3) == (before_kill.status, before_kill.summary().pending)
    assert "unfinished_evaluation" in {problem.kind for problem in cut_off.problems}
    assert ["3", "4", "5"] == [result.task for result in results]
    (whole,) = mttp.read("runs/a.jsonl").evals
    assert ("completed", 6, 0.625) == (whole.status, whole.summary().scored, whole.summary().mean)


def test_a_collector_gets_the_same():
    """
    Its spans read as the recorded evaluation.
    """
    with OtlpReceiver() as receiver:
        session = mttp.configure(receiver.http_address, content=True)
        with session, mttp.evaluate("gsm", tasks=FIVE, baseline={"a": 0.5}) as run:
            run.map(function)
        recording = mttp.read(receiver)  # type: ignore[arg-type]  # it has records()

    assert [run.value.results] == [found.results for found in recording.evals]
    assert [] == recording.problems


def test_a_collector_gets_no_texts_of_errors_by_default():
    """
    Messages may quote completions; types and counts of errors are exported.
    """
    with OtlpReceiver() as receiver:
        with mttp.configure(receiver.http_address), mttp.evaluate("gsm", tasks=FIVE) as run:
            run.map(function)
        (found,) = mttp.read(receiver).evals  # type: ignore[arg-type]  # it has records()

    errored = [one for one in found.results if one.outcome == "errored"]
    assert [("ValueError", None)] == [(one.error_type, one.error) for one in errored]
    assert len(found.results) == len(run.value.results)


# Samples.


def by_sample(found: Evaluation) -> dict[tuple[str, int], float | None]:
    """Return the latest scores by task and sample."""
    return {key: result.score for key, result in found.latest().items()}


@pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])
@pytest.mark.parametrize("concurrency", [1, 8])
def test_each_task_is_sampled(session: mttp.Session, *, is_async: bool, concurrency: int):
    """
    Each sample runs in its own episode, which has its index, as `run.sample` does.
    """
    run = mttp.evaluate("gsm", tasks=["a", "b"], samples=3, concurrency=concurrency)

    async def coroutine(task: str) -> float:
        await asyncio.sleep(0)
        return run.sample / 4

    with run:
        results = asyncio.run(run.amap(coroutine)) if is_async else run.map(lambda _: run.sample / 4)

    expected = {(task, sample): sample / 4 for task in "ab" for sample in range(3)}
    assert list(expected.items()) == [((one.task, one.sample), one.score) for one in results]
    recording = mttp.read(session)
    assert (expected, 3) == (by_sample(recording.evals[0]), recording.evals[0].samples)
    assert expected == {(one.task, found.sample): found.score for one in recording for found in one.results}
    roots = [span for span in mttp.scan(session) if a.EPISODE_STEP_COUNT in span.attributes]
    assert sorted(expected) == sorted(
        (root.attributes[a.TASK_ID], root.attributes[a.EVAL_SAMPLE_INDEX]) for root in roots
    )
    assert [] == recording.problems
    assert {} == dict(session.stats.faults)


def test_one_sample_says_nothing_of_samples(session: mttp.Session):
    """
    Spans of an evaluation with one sample have no sample attributes.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.map(lambda _: 1.0)

    keys = {key for span in mttp.scan(session, arrays=True) for key in span.attributes}
    assert not {a.EVAL_SAMPLES, a.EVAL_SAMPLE_INDEX} & keys


def test_samples_are_stated_one_by_one(session: mttp.Session):
    """
    By index, or the next without a result; a revision changes only its sample.
    """
    with mttp.evaluate("gsm", tasks=["a"], samples=3) as run:
        run.result("a", 0.25, sample=1)
        run.result("a", 0.5)
        run.result("a", 0.75)
        run.result("a", 1.0, sample=0)

    found = read(session)
    assert {("a", 0): 1.0, ("a", 1): 0.25, ("a", 2): 0.75} == by_sample(found) == by_sample(run.value)
    assert 4 == len(found.results)


def test_a_loop_comes_to_every_sample(session: mttp.Session):
    """
    A sample without a result in the loop's body stays pending.
    """
    with mttp.evaluate("gsm", tasks=["a", "b"], samples=2) as run:
        for task in run:
            if (task, run.sample) != ("a", 0):
                run.result(task, run.sample)

        assert ["a"] == run.pending

    found = read(session)
    assert {("a", 1): 1, ("b", 0): 0, ("b", 1): 1} == by_sample(found)
    assert 1 == found.summary().pending


@pytest.mark.parametrize(
    ("sample", "kept", "fault"),
    [
        (-1, 0, "sample_invalid"),
        ("x", 0, "sample_invalid"),
        (True, 0, "sample_invalid"),
        (5, 5, "sample_unknown"),
    ],
    ids=repr,
)
def test_a_sample_that_is_none_is_a_fault(session: mttp.Session, sample: Any, kept: int, fault: str):
    """
    The result is kept, for the next sample or an unexpected one.
    """
    with mttp.evaluate("gsm", tasks=["a"], samples=2) as run:
        result = run.result("a", 0.5, sample=sample)

    assert result is not None
    assert (kept, Counter([fault])) == (result.sample, session.stats.faults)
    assert read(session).summary() == run.summary()


@pytest.mark.parametrize("samples", [0, -1, True, 1.5, "2"], ids=repr)
def test_samples_are_a_number(session: mttp.Session, samples: Any):
    """
    Other values raise.
    """
    with pytest.raises(ConfigureError, match=r"samples=.* is not a positive integer"):
        mttp.evaluate("gsm", tasks=["a"], samples=samples)


def test_samples_of_many_threads_are_all_kept(session: mttp.Session):
    """
    Results without an index get one each.
    """
    with mttp.evaluate("gsm", tasks=["a"], samples=20) as run:
        threads = [threading.Thread(target=run.result, args=("a", number)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert set(range(20)) == {*by_sample(read(session)).values()}


def test_a_sample_that_takes_too_long_is_timed_out_alone(session: mttp.Session):
    """
    The task's other samples are scored.
    """
    go_on = threading.Event()

    with mttp.evaluate("gsm", tasks=["a"], samples=3, timeout=0.2, concurrency=1) as run:
        run.map(lambda _: go_on.wait(SECONDS) if run.sample == 1 else 1.0)
        go_on.set()

    assert ["scored", "timed_out", "scored"] == [one.outcome for one in read(session).results]


def test_samples_that_are_missing_are_taken_later():
    """
    Failed samples run again, and further samples are added.
    """
    with mttp.configure("file://runs/a.jsonl", run_id="r"):
        first = mttp.evaluate("gsm", tasks=["a", "b"], samples=2)
        first.result("a", 0.0)
        first.result("a", error="no")
        first.result("b", 0.25, sample=1)
        first.end(status="aborted")
    with (
        mttp.configure("file://runs/a.jsonl", run_id="r"),
        mttp.evaluate("gsm", tasks=["a", "b"], samples=3, resume=True) as second,
    ):
        results = second.map(lambda _: 1.0)

    assert [("a", 1), ("a", 2), ("b", 0), ("b", 2)] == [(one.task, one.sample) for one in results]
    (found,) = mttp.read("runs/a.jsonl").evals
    scores = {("a", 0): 0.0, ("a", 1): 1.0, ("a", 2): 1.0, ("b", 0): 1.0, ("b", 1): 0.25, ("b", 2): 1.0}
    assert (3, scores) == (found.samples, by_sample(found))
    assert found.summary() == second.summary()


def test_an_open_evaluation_shows_itself_on_one_line(session: mttp.Session):
    """
    Its repr omits the delta, whose interval is slow to compute.
    """
    with mttp.evaluate("gsm", tasks=["a"], samples=2, baseline={"a": 0.5}) as run:
        run.result("a", 0.5)

        shown = "<OpenEvaluation of gsm, 1 task of 2 samples: 1 scored, 1 pending, mean 0.5 (1 of 2), open>"
        assert shown == repr(run)


def test_fewer_samples_than_before_are_refused():
    """
    Otherwise existing results would not count.
    """
    with mttp.configure("file://runs/a.jsonl", run_id="r"), mttp.evaluate("gsm", tasks=["a"], samples=2):
        pass
    with (
        mttp.configure("file://runs/a.jsonl", run_id="r"),
        pytest.raises(ConfigureError, match=r"samples=1 is lower than the 2 .*; pass samples=2 or more"),
    ):
        mttp.evaluate("gsm", tasks=["a"], resume=True)


def test_samples_are_compared_by_task():
    """
    The baseline is the mean of its samples, with the number of failed ones.
    """
    with mttp.configure("file://before.jsonl"), mttp.evaluate("gsm", tasks=["a", "b"], samples=2) as before:
        before.result("a", 1.0)
        before.result("a", 0.0)
        before.result("b", 0.25)
        before.result("b", error="no")
    with (
        mttp.configure("memory://") as session,
        mttp.evaluate("gsm", tasks=["a", "b"], samples=3, baseline="before.jsonl") as run,
    ):
        run.map(lambda _: 1.0)

    found = read(session)
    assert [0.5] * 3 + [0.75] * 3 == [one.delta for one in found.results]
    assert {"scored": 3, "errored": 1} == found.baseline_counts
    assert (0.625, 2, 1) == (found.summary().delta, found.summary().compared, found.summary().baseline_failed)
    assert run.summary() == found.summary()


SAMPLED = """
    import sys
    import mttp

    with mttp.configure("file://runs/", run="shared", run_id="r"):
        with mttp.evaluate("gsm", tasks=["a", "b"], samples=4, resume=True) as run:
            for task in ("a", "b"):
                for sample in map(int, sys.argv[1:]):
                    run.result(task, sample / 4, sample=sample)
"""


def test_samples_of_several_processes_are_one_evaluation():
    """
    Processes run some samples each, and a reader returns all.
    """
    for samples in ("02", "13"):
        subprocess.run(
            [sys.executable, "-c", textwrap.dedent(SAMPLED), *samples], check=True, timeout=SECONDS
        )

    (found,) = mttp.read("runs").evals
    assert {(task, sample): sample / 4 for task in "ab" for sample in range(4)} == by_sample(found)
    assert (0, 2) == (found.summary().pending, len(found.trace_ids))


def test_samples_travel_any_way():
    """
    As messages, converted or pushed, they are unchanged.
    """

    def evaluated(transport: str) -> mttp.Session:
        with (
            mttp.configure(transport, run="r", run_id="r") as session,
            mttp.evaluate("gsm", "1", tasks=["t"], samples=3, baseline={"t": 0.5}) as run,
        ):
            run.result("t", 0.75, passed=True)
            run.result("t", error=OSError("no"))
            run.result("t", outcome="abstained")
        return session

    def run_command(*names: str) -> None:
        result = CliRunner().invoke(app, names)
        assert 0 == result.exit_code, result.output

    def said(source: Any) -> list[Any]:
        (found,) = mttp.read(source).evals
        return [found.samples, *((one.sample, one.outcome, one.score, one.delta) for one in found.results)]

    expected = said(evaluated("memory://"))
    evaluated("mttp+file://a.mttp.jsonl")
    run_command("convert", "a.mttp.jsonl", "b.jsonl")
    run_command("convert", "b.jsonl", "c.parquet")
    run_command("convert", "c.parquet", "d.mttp.jsonl")
    with OtlpReceiver() as receiver:
        run_command("push", "b.jsonl", "--to", receiver.http_address, "--content")
        assert expected == said(receiver)

    assert [
        3,
        (0, "scored", 0.75, 0.25),
        (1, "errored", None, None),
        (2, "abstained", None, None),
    ] == expected
    assert [expected] * 4 == [said(name) for name in ("a.mttp.jsonl", "b.jsonl", "c.parquet", "d.mttp.jsonl")]
    assert types("a.mttp.jsonl") == types("d.mttp.jsonl")


# Scorings.


def scoring(answer: object, **fields: Any) -> mttp.RewardSpec:
    """Return a spec of one verifier that returns a value or raises."""

    def grade() -> object:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return mttp.RewardSpec(
        name="exact", version="1.0.0", components=[{"name": "it", "kind": "verifier", "use": grade}], **fields
    )


@pytest.mark.parametrize("how", ["result", "map"])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (scoring(1.0).score(), ("scored", 1.0, True, None)),
        (scoring(0.0).score(), ("scored", 0.0, False, None)),
        (scoring(ValueError("boom")).score(), ("errored", None, None, "ValueError")),
        (scoring(float("nan")).score(), ("errored", None, None, "invalid_value")),
        (scoring(None).score(), ("abstained", None, None, None)),
        (Reward(status="missing"), ("errored", None, None, "missing")),
        (Reward(value=0.5, status="partial"), ("errored", None, None, "partial")),
        (Reward(value=0.0, status="error", error_type="OSError"), ("errored", None, None, "OSError")),
        (Reward(value=-1.0, status="abstained"), ("abstained", None, None, None)),
        ((0.5, True), ("scored", 0.5, True, None)),
        ({"score": 0.5, "passed": False}, ("scored", 0.5, False, None)),
        ({"score": scoring(0.0).score(), "duration": 2}, ("scored", 0.0, False, None)),
        ({"score": scoring(ValueError("boom")).score()}, ("errored", None, None, "ValueError")),
        ((scoring(0.0).score(), True), ("scored", 0.0, True, None)),
        ((None, True), ("scored", 1.0, True, None)),
        (ValueError("no"), ("errored", None, None, "ValueError")),
        (True, ("scored", 1.0, True, None)),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_a_result_is_whatever_a_function_may_return(
    session: mttp.Session, how: str, given: Any, expected: tuple[Any, ...]
):
    """
    A reward with an error is errored, neither skipped nor zero, whatever its value.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        if how == "map":
            run.map(lambda _: given)
        else:
            run.result("a", given)

    (found,) = read(session).results
    assert expected == (found.outcome, found.score, found.passed, found.error_type)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (
            Reward(value=-1.0, status="error", error="judge is down"),
            "judge is down; the reward -1 does not count as a score",
        ),
        (
            Reward(value=5.0, status="partial", component_statuses={"y": "error"}),
            "no value of y; the reward 5 does not count as a score",
        ),
        (
            Reward(value=-1.0, status="abstained"),
            "the grader abstained; the reward -1 does not count as a score",
        ),
        (Reward(status="missing"), "the reward is missing"),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_what_was_rewarded_without_a_score_is_named(session: mttp.Session, given: Reward, error: str):
    """
    The error has the reason and the value that is not a score.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", given)

    assert error == read(session).results[0].error


def test_what_is_stated_beside_a_scoring_wins(session: mttp.Session):
    """
    Arguments override those from a reward.
    """
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        result = run.result("a", scoring(1.0).score(), passed=False, duration=2)

    assert result is not None
    assert ("scored", 1.0, False, 2.0) == (result.outcome, result.score, result.passed, result.duration)


def test_an_abstention_is_no_error_of_its_episode(session: mttp.Session):
    """
    Its late score abstains, and it is not run again.
    """
    with mttp.episode(task="a") as episode:
        pass
    with mttp.evaluate("gsm", tasks=["a"]) as run:
        run.result("a", outcome="abstained", error="don't know", episode=episode)
    with mttp.evaluate("gsm", tasks=["a"], resume=True) as again:
        assert [] == again.pending

    assert "abstained" == mttp.read(session).episodes[0].scores["gsm"].status


# The bar.


class Terminal:
    """A standard error stream that is a terminal."""

    def __init__(self) -> None:
        self.written = ""

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.written += text
        return len(text)

    def flush(self) -> None:
        return


def types(path: str) -> Counter[str]:
    """Return the number of messages by type in a file."""
    with mttp.mist.receive(f"mttp+file://{path}") as inbox:
        return Counter(message.type for message in inbox)


def test_native_transports_carry_it_too():
    """
    It is spans and messages, which count once and survive conversion.
    """

    def evaluated(transport: str) -> mttp.Session:
        with (
            mttp.configure(transport, run="r", run_id="r", content=True) as session,
            mttp.evaluate("gsm", "1", tasks=["t1", "t2"], baseline={"t1": 0.5}) as run,
        ):
            run.result("t1", 0.75, passed=True)
            run.result("t2", error="no")
        return session

    def convert(*names: str) -> None:
        assert 0 == CliRunner().invoke(app, ["convert", *names]).exit_code

    def said(source: Any) -> list[Any]:
        (found,) = mttp.read(source).evals
        return [
            (found.suite, found.status),
            *((one.task, one.outcome, one.score, one.delta, one.error) for one in found.results),
        ]

    expected = said(evaluated("memory://"))
    evaluated("mttp+file://a.mttp.jsonl")
    with mttp.mist.receive("chan://evaluated") as inbox:
        evaluated("chan://evaluated")
        assert expected == said(inbox)
    with mttp.mist.receive("mttp+http://127.0.0.1:0") as inbox:
        evaluated(inbox.address)
        inbox.close()
        assert expected == said(inbox)
    convert("a.mttp.jsonl", "b.jsonl")
    convert("b.jsonl", "c.parquet")
    convert("c.parquet", "d.mttp.jsonl")

    assert [expected] * 4 == [said(name) for name in ("a.mttp.jsonl", "b.jsonl", "c.parquet", "d.mttp.jsonl")]
    assert (1, 2) == (types("a.mttp.jsonl")["eval.run"], types("a.mttp.jsonl")["eval.result"])
    assert types("a.mttp.jsonl") == types("d.mttp.jsonl")


def test_a_terminal_shows_a_bar(session: mttp.Session, monkeypatch: pytest.MonkeyPatch):
    """
    The bar has the suite's name; it needs a terminal and `progress`.
    """
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    shown = []
    for progress in (False, True):
        with mttp.evaluate("gsm-mini", tasks=FIVE, progress=progress) as run:
            run.map(lambda _: 1.0)
        shown.append("gsm-mini" in terminal.written)

    assert [False, True] == shown


def test_a_bar_does_without_rich(monkeypatch: pytest.MonkeyPatch):
    """
    Without rich no bar is shown.
    """
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with bar("gsm", 1, wanted=True) as advance:
        advance()

    assert "" == terminal.written


@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("wrong", ["nothing", "error", "skipped", "nan"])
def test_a_baseline_is_compared_as_recordings_are(tmp_path: Path, samples: int, wrong: str) -> None:
    """
    Effect, interval, p value, verdict and reason are those of `mttp.compare`, whatever is missing.
    """
    pytest.importorskip("scipy")
    paths = [str(tmp_path / f"{name}.jsonl") for name in ("before", "after")]
    summaries = []
    for side, path in enumerate(paths):
        with (
            mttp.configure(f"file://{path}", run_id=f"side {side}", kind="eval"),
            mttp.evaluate("sums", samples=samples, baseline=paths[0] if side else None) as run,
        ):
            for place in range(24):
                for sample in range(samples):
                    score = float((7 * place + 3 * sample) % 10 < 3 + 5 * side)
                    _play_task(run, place, sample, score, wrong if place % 6 == side else "nothing")
        summaries.append(run.summary())
    found = mttp.compare(*paths, metrics=["reward"]).metrics[0]

    assert (found.effect, found.interval, found.p_value, found.verdict, found.reason) == (
        summaries[1].delta,
        summaries[1].delta_interval,
        summaries[1].delta_p,
        summaries[1].comparison,
        summaries[1].comparison_reason,
    )
    assert (wrong == "nothing") == (found.missing == (0, 0))


def _play_task(run: Any, place: int, sample: int, score: float, wrong: str) -> None:
    task = f"t{place:02}"
    try:
        with mttp.episode(env="sums", task=task) as episode:
            if wrong == "error":
                raise RuntimeError("gone")
            if wrong == "skipped":
                run.result(task, outcome="skipped", sample=sample, episode=episode)
                return
            value = float("nan") if wrong == "nan" else score
            episode.reward(value)
            run.result(task, value, sample=sample, episode=episode)
    except RuntimeError as error:
        run.result(task, error=error, sample=sample)
