"""`mttp compare`: output, options and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import mttp


def record(path: Path, solved: int, *, tasks: int = 20) -> None:
    with mttp.configure(f"file://{path}", run_id=path.stem, config={"solved": solved}):
        for task in range(tasks):
            is_solved = task < solved
            with mttp.episode(
                env="maths", task=f"t{task:02}", split="easy" if task % 2 else "hard"
            ) as episode:
                with episode.step() as step:
                    step.reward(float(is_solved))
                episode.end(outcome="success" if is_solved else "failure")


@pytest.fixture
def sides(tmp_path: Path) -> tuple[str, str]:
    """A base, and a candidate that solves ten tasks more."""
    record(tmp_path / "base.jsonl", 5)
    record(tmp_path / "new.jsonl", 15)
    return str(tmp_path / "base.jsonl"), str(tmp_path / "new.jsonl")


def run(*arguments: str, width: int | None = None) -> tuple[int, str, str]:
    env = {**os.environ, **({"COLUMNS": str(width)} if width else {})}
    command = [sys.executable, "-m", "mttp", "compare", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    return done.returncode, done.stdout, done.stderr


def test_what_differs_comes_before_the_verdict(sides: tuple[str, str]) -> None:
    """
    Then the metrics, and the tasks that changed sides.
    """
    code, out, _ = run(*sides, "--metric", "success")

    assert 0 == code
    differing = next(line for line in out.splitlines() if line.split() == ["config", "solved", "5", "15"])
    assert out.index(differing) < out.index("success: better (+0.5, 95% interval")
    assert "10 tasks gained, 0 tasks lost" in out


def test_json_is_one_document(sides: tuple[str, str]) -> None:
    """
    With the same verdict.
    """
    code, out, _ = run(*sides, "--json", "--by", "split")

    found = json.loads(out)
    assert (0, "better") == (code, found["verdict"])
    assert {"easy", "hard"} == set(found["slices"])
    assert 10 == len(found["flips"])


def test_markdown_has_a_table(sides: tuple[str, str]) -> None:
    """
    For a pull request.
    """
    _, out, _ = run(*sides, "--markdown", "--metric", "return")

    assert "\n**return: better" in out
    assert "| metric | verdict | effect | interval | base | candidate |" in out


def test_strict_fails_unless_better_or_equivalent(sides: tuple[str, str]) -> None:
    """
    The other way round it is worse.
    """
    assert 0 == run(*sides, "--strict")[0]
    code, _, error = run(*reversed(sides), "--strict")

    assert 1 == code
    assert "return: worse" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "sucess"], "did you mean 'success'"),
        (["--by", "colour"], "no slice by 'colour'"),
        (["--allow", "all"], "is not a kind of difference"),
    ],
)
def test_a_wrong_question_exits_with_2(sides: tuple[str, str], arguments: list[str], message: str) -> None:
    """
    In one line, with the nearest that there is.
    """
    code, _, error = run(*sides, *arguments)

    assert (2, 1) == (code, len(error.strip().splitlines()))
    assert message in error


def test_other_tasks_are_refused(tmp_path: Path, sides: tuple[str, str]) -> None:
    """
    Until they are allowed.
    """
    record(tmp_path / "other.jsonl", 5, tasks=10)
    other = str(tmp_path / "other.jsonl")

    code, _, error = run(sides[0], other)
    assert (2, True) == (code, "--allow tasks" in error)
    assert 0 == run(sides[0], other, "--allow", "tasks")[0]


def test_it_is_readable_at_80_columns(sides: tuple[str, str]) -> None:
    """
    No line is longer than the terminal.
    """
    env = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1", "TTY_COMPATIBLE": "1"}
    command = [sys.executable, "-m", "mttp", "compare", *(Path(side).name for side in sides)]
    where = Path(sides[0]).parent
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=where, check=True)

    import re

    assert max(len(re.sub("\x1b\\[[0-9;]*m", "", line)) for line in done.stdout.splitlines()) <= 80
