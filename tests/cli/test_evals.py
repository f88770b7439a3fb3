"""`mttp eval show`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app


def invoke(*arguments: str, code: int = 0) -> Any:
    """The command's result, which exits so."""
    result = CliRunner().invoke(app, ["eval", "show", *arguments], prog_name="mttp")

    assert code == result.exit_code, result.output
    return result


def recorded(path: str, *scores: float, end: bool = True) -> str:
    """A recording of an evaluation in which one more task failed."""
    tasks = [f"t{place}" for place in range(len(scores))]
    with mttp.configure(f"file://{path}", run=Path(path).stem) as session:
        run = mttp.evaluate("gsm", "1", tasks=[*tasks, "broken", "left"])
        for task, score in zip(tasks, scores, strict=True):
            run.result(task, score, passed=score >= 0.5)
        run.result("broken", error="connection refused")
        if end:
            run.end()
        else:
            session.flush()
            Path("cut.jsonl").write_bytes(Path(path).read_bytes())
    return path if end else "cut.jsonl"


@pytest.fixture
def after() -> str:
    return recorded("after.jsonl", 0.75, 0.25, 1.0)


def cells(output: str) -> dict[str, str]:
    """The first row of a table by column."""
    header, row = (re.split(r"\s{2,}", line.strip()) for line in output.splitlines()[:2])
    return dict(zip(header, row, strict=True))


def test_a_row_is_an_evaluation(after: str):
    """
    Tasks by outcome, and the figures of those that were scored.
    """
    output = invoke(after).stdout
    shown = cells(output)

    assert ("completed", "5", "3", "1", "1", "0.6667", "3 of 5") == tuple(
        shown[name] for name in ("status", "tasks", "scored", "errored", "pending", "mean", "mean of")
    )
    assert "skipped" not in output
    assert "66.7% [20.8%, 93.9%]" in output
    assert "Wilson" in output


def test_every_task_is_listed(after: str):
    """
    Each task has its outcome; tasks without a result are listed too.
    """
    lines = invoke(after, "--tasks").stdout.splitlines()

    assert ["t0", "t1", "t2", "broken", "left"] == [line.split()[0] for line in lines[-5:]]
    assert "connection refused" in lines[-2]
    assert ["left", "pending"] == lines[-1].split()[:2]


def test_deltas_are_marked(after: str):
    """
    Which way each task went, and how many went which way.
    """
    output = invoke(after, "--tasks", "--baseline", recorded("before.jsonl", 0.5, 0.5, 1.0)).stdout

    assert "+0  inconclusive" in output
    assert all(mark in output for mark in ("+0.25 ▲", "-0.25 ▼", "+0 ="))


def test_a_delta_has_its_interval(after: str):
    """
    By which method, over how many tasks, and that errors on either side may bias it.
    """
    output = invoke(after, "--baseline", recorded("before.jsonl", 0.5, 0.5, 1.0)).stdout

    assert (
        "delta +0 [-0.621, +0.621]: inconclusive, 3 of 5 tasks compared, 1 higher and 1 lower "
        "(paired t over 3 differences; p by exact permutation of signs, p = 1); "
        "errors may bias it: 1 here, 1 in the baseline"
    ) in " ".join(output.split())


def sampled(path: str, *passes: int) -> str:
    """A recording of an evaluation of as many tasks, of whose four samples as many passed."""
    tasks = [{"id": f"t{place}", "slices": ["odd" if place % 2 else "even"]} for place in range(len(passes))]
    with mttp.configure(f"file://{path}"), mttp.evaluate("gsm", "1", tasks=tasks, samples=4) as run:
        for task, count in zip(tasks, passes, strict=True):
            for sample in range(4):
                run.result(task, sample < count)
    return path


def test_samples_are_shown_by_task():
    """
    pass@k and pass^k with the number of tasks, a row for each slice, and one for each sample.
    """
    path = sampled("a.jsonl", 4, 2, 0)
    output = invoke(path, "--tasks").stdout

    assert "gsm 1, 3 tasks of 4 samples" in output
    assert "pass@2 0.6111, pass^2 0.3889, mean of 3 of 3 tasks" in output
    assert ["even", "2", "8", "0.5"] == next(line for line in output.splitlines() if "even" in line).split()[
        :4
    ]
    assert "50.0% [0.0%, 100.0%]" in output
    assert "Student t, 95 %, clustered by task" in output
    assert ["t1", "3", "scored"] == next(
        line for line in output.splitlines() if "t1  " in line and " 3 " in line
    ).split()[:3]


def test_other_sizes_are_asked_for():
    """
    In words and in the document, for each slice, too.
    """
    path = sampled("a.jsonl", 4, 2, 0)
    output = invoke(path, "--k", "3").stdout
    (found,) = json.loads(invoke(path, "--json", "--k", "3", "--k", "5").stdout)["evals"]

    assert "pass@3 0.6667, pass^3 0.3333" in output
    assert "pass@2" not in output
    assert [(3, 3), (5, 0)] == [(one["k"], one["tasks"]) for one in found["summary"]["pass_estimates"]]
    assert [3, 5] == [one["k"] for one in found["slices"]["odd"]["pass_estimates"]]
    assert 12 == len(found["results"])


def test_outcomes_without_a_score_are_reported():
    """
    How much was answered, and the errors by type.
    """
    with mttp.configure("file://a.jsonl"), mttp.evaluate("gsm", tasks=["a", "b", "c"]) as run:
        run.result("a", 1)
        run.result("b", outcome="abstained")
        run.result("c", TimeoutError())
    output = invoke("a.jsonl").stdout

    assert "1 of 3" in output
    assert "coverage 50.0%: 1 of 2 answered" in output
    assert "errors: TimeoutError 1" in output


def test_times_of_calls_are_shown():
    """
    Until the first piece, and for each token after it.
    """

    def answer(_: object) -> float:
        with mttp.step() as step, step.model_call("policy") as call:
            call.response(output_tokens=3, time_to_first_chunk=0.25)
        return 1.0

    with mttp.configure("file://a.jsonl"), mttp.evaluate("gsm", tasks=["a", "b"]) as run:
        run.map(answer)
    output = invoke("a.jsonl").stdout

    assert "first token: median 250 ms, 95th percentile 250 ms, of 2 calls" in output
    assert "per output token: median 0 s" in output


def test_the_document_has_everything(after: str):
    """
    The evaluation, its summary and the results that count.
    """
    before = recorded("before.jsonl", 0.5, 0.5, 0.5)
    (found,) = json.loads(invoke(after, "--json", "--baseline", before).stdout)["evals"]

    summary = found["summary"]
    assert ("gsm", "completed", 5) == (found["suite"], found["status"], summary["tasks"])
    assert (3, 1, 1, 2) == tuple(summary[name] for name in ("scored", "errored", "pending", "passed"))
    interval = summary["pass_rate_interval"]
    assert pytest.approx([2 / 3, 0.2077, 0.9385], abs=1e-4) == [
        summary["pass_rate"],
        interval["low"],
        interval["high"],
    ]
    assert ("Wilson, 95 %", 3) == (interval["method"], interval["tasks"])
    assert ("inconclusive", 1, "errors may bias it: 1 here, 1 in the baseline") == (
        summary["comparison"],
        summary["baseline_failed"],
        summary["bias"],
    )
    assert {"low", "high", "method", "tasks"} == summary["delta_interval"].keys()
    assert [0.25, -0.25, 0.5, None] == [result["delta"] for result in found["results"]]


def test_a_baseline_of_nothing_that_is_shown_is_an_error(after: str):
    """
    The message says what there is.
    """
    with mttp.configure("file://other.jsonl"), mttp.evaluate("other", tasks=["a"]) as run:
        run.result("a", 1)
    result = invoke(after, "--baseline", "other.jsonl", code=2)

    assert "other.jsonl has no evaluation of gsm 1" in result.stderr
    assert "it has: other without a version" in result.stderr


def test_an_evaluation_that_was_cut_off_is_a_problem():
    """
    It is shown, and under --strict the exit code is 1.
    """
    path = recorded("a.jsonl", 0.5, end=False)
    result = invoke(path, "--strict", code=1)

    assert "unfinished" == cells(result.stdout)["status"]
    assert "has no end: 2 of 3 tasks have a result" in result.stdout


def test_a_recording_without_evaluations_says_so():
    """
    That is no error.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode():
        pass

    assert "no evaluations\n" == invoke("a.jsonl").stdout
    assert [] == json.loads(invoke("a.jsonl", "--json").stdout)["evals"]


def test_an_episode_shows_its_result():
    """
    `mttp show` has it in the tree, and counts the evaluations.
    """
    session = mttp.configure("file://a.jsonl")
    with session, mttp.evaluate("gsm", tasks=["t"], baseline={"t": 0.5}) as run:
        run.map(lambda _: (0.75, True))
    (episode,) = mttp.read("a.jsonl")
    shown = CliRunner().invoke(app, ["show", "a.jsonl", "--episode", episode.trace_id]).stdout

    assert "result of task t  scored, score 0.75, baseline score 0.5, delta 0.25, passed" in shown
    for command in ("show", "summary"):
        assert "1 evaluation" in CliRunner().invoke(app, [command, "a.jsonl"]).stdout


def test_the_health_of_graders_is_shown():
    """
    Of the total and each component: what is valid and its mean, what failed and how, verdicts, failed checks.
    """

    def right(answer: str) -> float:
        if answer == "down":
            raise ConnectionError("no judge")
        return float("nan") if answer == "odd" else 1.0

    components = [
        mttp.rewards.verifier(right, name="right"),
        mttp.rewards.check(lambda answer: answer != "leak", name="safe"),
    ]
    spec = mttp.RewardSpec(name="exact", version="1.0.0", components=components)
    tasks = ["fine", "down", "odd", "leak"]
    with mttp.configure("file://a.jsonl"), mttp.evaluate("gsm", tasks=tasks) as run:
        run.map(lambda task: spec.score(answer=task))
        with mttp.episode():  # of no evaluation
            spec.score(answer="fine")
    output = invoke("a.jsonl").stdout
    (found,) = json.loads(invoke("a.jsonl", "--json").stdout)["evals"]

    total, component, safe = found["graders"]
    assert ("exact 1.0.0", "", 4, 1, 1, 2, 0.5) == tuple(
        total[name] for name in ("grader", "component", "of", "error", "invalid", "count", "mean")
    )
    assert ({"ConnectionError": 1}, {"safe": 1}) == (total["errors"], total["failed_checks"])
    assert ("safe", 4, "right", 2) == (
        safe["component"],
        safe["count"],
        component["component"],
        component["count"],
    )
    assert "2 of 4" in output
    assert "safe 1" in output
