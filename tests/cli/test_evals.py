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
        run = mttp.eval_run("gsm", "1", tasks=[*tasks, "broken", "left"])
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

    assert ("completed", "5", "3", "1", "1", "0.6667") == tuple(
        shown[name] for name in ("status", "tasks", "scored", "errored", "pending", "mean")
    )
    assert "skipped" not in output
    assert "66.7% [20.8%, 93.9%]" in output
    assert "Wilson" in output


def test_every_task_is_listed(after: str):
    """
    With what became of it, and those that have no result.
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

    assert "+0 = (1▲ 1▼ of 3)" in output
    assert all(mark in output for mark in ("+0.25 ▲", "-0.25 ▼", "+0 =\n".strip()))


def test_the_document_has_everything(after: str):
    """
    The evaluation, its summary and the results that count.
    """
    before = recorded("before.jsonl", 0.5, 0.5, 0.5)
    (found,) = json.loads(invoke(after, "--json", "--baseline", before).stdout)["evals"]

    summary = found["summary"]
    assert ("gsm", "completed", 5) == (found["suite"], found["status"], summary["tasks"])
    assert (3, 1, 1, 2) == tuple(summary[name] for name in ("scored", "errored", "pending", "passed"))
    assert pytest.approx([2 / 3, 0.2077, 0.9385], abs=1e-4) == [
        summary["pass_rate"],
        *summary["pass_rate_interval"].values(),
    ]
    assert [0.25, -0.25, 0.5, None] == [result["delta"] for result in found["results"]]


def test_a_baseline_of_nothing_that_is_shown_is_an_error(after: str):
    """
    The message says what there is.
    """
    with mttp.configure("file://other.jsonl"), mttp.eval_run("other", tasks=["a"]) as run:
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
    with session, mttp.eval_run("gsm", tasks=["t"], baseline={"t": 0.5}) as run:
        run.map(lambda _: (0.75, True))
    (episode,) = mttp.read("a.jsonl")
    shown = CliRunner().invoke(app, ["show", "a.jsonl", "--episode", episode.trace_id]).stdout

    assert "result of task t  scored, score 0.75, baseline score 0.5, delta 0.25, passed" in shown
    for command in ("show", "summary"):
        assert "1 evaluation" in CliRunner().invoke(app, [command, "a.jsonl"]).stdout
