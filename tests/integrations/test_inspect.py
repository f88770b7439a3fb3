"""Inspect AI itself: hooks, logs, and its scorers in `mttp.evaluate`."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")
pytestmark = pytest.mark.filterwarnings("default")  # the library has warnings of its own

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))
import inspect_sums  # noqa: E402
from inspect_ai import eval as run_eval  # noqa: E402

import mttp  # noqa: E402
from mttp import formats  # noqa: E402
from mttp.errors import ConfigureError  # noqa: E402
from mttp.formats import inspect_ai as format_  # noqa: E402
from mttp.integrations.inspect_ai import InspectSuite, attach_all  # noqa: E402

FIELDS = (
    "steps",
    "reward",
    "rewards",
    "metadata",
    "inputs",
    "task",
    "attempt",
    "policy",
    "return_",
    "status",
    "outcome",
    "terminated",
    "truncated",
    "start_time",
    "end_time",
)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Free the library's streams, which warn that they were not closed, while warnings are shown only."""
    yield
    gc.collect()


def run(folder: Path, log_format: str = "json", **options: Any) -> Any:
    """Run the example's task, and return its log."""
    (log,) = run_eval(
        options.pop("task", None) or inspect_sums.sums(),
        model=inspect_sums.scripted(),
        display="none",
        log_dir=str(folder),
        log_format=log_format,
        **options,
    )
    return log


def essence(log: Any) -> Any:
    """What does not differ from run to run: scores, messages and metrics."""
    document = log.model_dump(mode="json", exclude_none=True)
    return (
        document["results"]["scores"],
        [
            ([message["content"] for message in one["messages"]], one["scores"])
            for one in sorted(document["samples"], key=lambda one: (one["id"], one["epoch"]))
        ],
    )


@pytest.mark.parametrize("log_format", ["json", "eval"])
def test_what_is_recorded_live_is_what_the_log_holds(log_format: str, tmp_path: Path) -> None:
    """
    Each sample as an episode with messages, calls, scores and times; the task as an evaluation with metrics.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl", kind="eval") as session, attach_all() as handle:
        assert {"hooks": True} == handle.status()

        run(tmp_path / "logs", log_format)
    (path,) = (tmp_path / "logs").iterdir()
    *imported, evaluation = formats.read(path)
    recording = mttp.read(tmp_path / "run.jsonl")
    recorded = {episode.trace_id: episode for episode in recording}

    assert "inspect" == formats.recognize(path)
    assert {} == session.stats.faults
    assert 4 == len(recorded) == len(imported)
    for episode in imported:
        assert isinstance(episode, mttp.Episode)

        found = recorded[episode.trace_id]

        assert [getattr(episode, name) for name in FIELDS] == [getattr(found, name) for name in FIELDS]

    (live,) = recording.evals

    assert ("sums", 2, ("1", "2"), 4) == (live.suite, live.samples, live.tasks, len(live.results))
    assert 0.5 == live.metrics["includes_accuracy"] == evaluation.metrics["includes/accuracy"]


def test_scores_steps_and_calls(tmp_path: Path) -> None:
    """
    Letters are the numbers that Inspect makes of them; a score of several values has components.
    """
    with mttp.configure("memory://") as session, attach_all(metadata={"mine": 1}):
        log = run(tmp_path)
        episodes = sorted(mttp.read(session), key=lambda one: (one.task, one.attempt))
    by_id = {sample.uuid: sample for sample in log.samples}
    first, last = episodes[0], episodes[-1]
    used = next(one for one in episodes if one.step_count == 2)

    assert [1.0, 1.0, 0.0, 0.0] == [episode.return_ for episode in episodes]
    assert ["success", "success", "failure", "failure"] == [episode.outcome for episode in episodes]
    assert {"C", "I"} == {str(episode.reward.label) for episode in episodes}
    assert ["style", "includes"] == [scoring.grader for scoring in last.rewards]
    assert {"polite": 0.5, "short": 0.6} == pytest.approx(dict(last.rewards[0].components))
    assert ("easy", 1) == (first.metadata["level"], first.metadata["mine"])
    assert ["chat", "execute_tool", "chat"] == [call.operation for step in used.steps for call in step.calls]
    assert ({"a": 2, "b": 2}, "4") == (used.steps[0].calls[1].arguments, used.steps[0].calls[1].result)
    for episode in episodes:
        usage = by_id[episode.id].model_usage["mockllm/model"]

        assert usage.output_tokens == sum(
            call.output_tokens or 0 for step in episode.steps for call in step.calls
        )


def test_the_log_is_the_same_with_recording_and_without(tmp_path: Path) -> None:
    """
    Scores, messages and metrics.
    """
    bare = run(tmp_path / "bare")
    with mttp.configure("memory://"), attach_all():
        recorded = run(tmp_path / "recorded")

    assert essence(bare) == essence(recorded)


def test_a_sample_that_fails_is_an_error(tmp_path: Path) -> None:
    """
    Its result in the evaluation too, and the other samples are recorded.
    """
    task = inspect_sums.sums()
    task.dataset[1].target = "6"
    task.solver = inspect_sums.generate()

    def broken(_: Any) -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            if state.sample_id == 2:
                raise KeyError("no tool")
            return await generate(state)

        return solve

    from inspect_ai.solver import solver

    with mttp.configure("memory://") as session, attach_all():
        run(tmp_path, task=task, solver=solver(broken)(None), fail_on_error=False)
        recording = mttp.read(session)
    failed = [episode for episode in recording if episode.task == "2"]
    (evaluation,) = recording.evals

    assert {("error", "KeyError", None)} == {(one.status, one.error_type, one.return_) for one in failed}
    assert ["errored", "errored", "scored", "scored"] == sorted(one.outcome for one in evaluation.results)


def test_a_failing_hook_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The log is complete; the failures are counted.
    """

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(format_, "episode", broken)
    with mttp.configure("memory://") as session, attach_all():
        log = run(tmp_path)

    assert ("success", 4) == (log.status, len(log.samples))
    assert {"integration_error": 4} == session.stats.faults


def test_after_a_detach_nothing_is_recorded(tmp_path: Path) -> None:
    """
    A session that is open does not change that.
    """
    handle = attach_all()
    handle.detach()
    with mttp.configure("memory://") as session:
        run(tmp_path)

    assert {"hooks": False} == handle.status()
    assert 0 == len(mttp.read(session))


def test_an_evaluation_uses_the_data_set_and_the_scorers() -> None:
    """
    Each score is recorded; a scorer that raises is an error, and the first scorer decides.
    """
    suite = InspectSuite(inspect_sums.sums())

    async def solve(task: dict[str, Any]) -> dict[str, Any]:
        answer = "It is 4." if task["id"] == "1" else "It is, as far as I know, 4."
        return await suite.score(task, answer)

    with mttp.configure("memory://") as session:
        with mttp.evaluate(suite.name, tasks=suite.tasks) as evaluation:
            results = asyncio.run(evaluation.amap(solve))
        episodes = {str(episode.task): episode for episode in mttp.read(session)}

    assert [(1.0, True), (0.0, False)] == [(one.score, one.passed) for one in results]
    assert [("style", "missing"), ("includes", "ok")] == [
        (one.grader, one.status) for one in episodes["1"].rewards
    ]
    assert ("style", "error", "the answer is too long") == (
        episodes["2"].rewards[0].grader,
        episodes["2"].rewards[0].status,
        episodes["2"].rewards[0].error,
    )


def test_a_task_without_scorers_is_refused() -> None:
    """
    The message names the task.
    """
    task = inspect_sums.sums()
    task.scorer = None

    with pytest.raises(ConfigureError, match="the task sums of Inspect has no scorers"):
        InspectSuite(task)


def test_the_example_runs(tmp_path: Path) -> None:
    """
    It takes seconds and needs no model.
    """
    script = str(EXAMPLES / "inspect_sums.py")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert "2 tasks: 2 scored, mean 1, pass rate 1" in done.stdout
    assert "<Recording of 6 episodes" in done.stdout


def test_a_variable_alone_records(tmp_path: Path) -> None:
    """
    Inspect loads the hooks by their entry point; the program does not mention mttp.
    """
    code = f"""
import sys

sys.path.insert(0, {str(EXAMPLES)!r})
import inspect_sums
from inspect_ai import eval

eval(inspect_sums.sums(), model=inspect_sums.scripted(), display="none", log_dir="logs")
"""
    environment = {**os.environ, "MTTP_TRANSPORT": f"file://{tmp_path}/run.jsonl"}
    subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, capture_output=True
    )

    assert 4 == len(mttp.read(tmp_path / "run.jsonl"))
