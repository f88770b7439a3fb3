"""Conditions of `--where` that are SQL, or about what was said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A recording of two episodes, one of which apologizes."""
    file = tmp_path / "run.jsonl"
    with mttp.configure(f"file://{file}"):
        for task, answer, reward in (("one", "I'm sorry", 0.0), ("two", "It is 4", 1.0)):
            with mttp.episode(env="chat", task=task) as episode:
                with episode.step() as step:
                    step.observation([{"role": "user", "content": "What is 2 + 2?"}])
                    step.action(answer)
                episode.reward(reward)
    return str(file)


def tasks(path: str, *where: str) -> list[str]:
    """The tasks of the episodes that `mttp show` has with these conditions."""
    options = [part for condition in where for part in ("--where", condition)]
    done = CliRunner().invoke(app, ["show", path, "--json", *options])
    assert done.exit_code == 0, done.output
    return [episode["task"] for episode in json.loads(done.stdout)["episodes"]]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["completion like '%sorry%'"], ["one"]),
        (["completion~^It"], ["two"]),
        (["completion=It is 4"], ["two"]),
        (["completion!=It is 4"], ["one"]),
        (["completion=I'm sorry"], ["one"]),
        (["prompt~2 . 2"], ["one", "two"]),
        (["reward > 0.5 and counts"], ["two"]),
        (["task in ('one', 'two')", "reward=0"], ["one"]),
        (["task in ('one')", "completion~^It"], []),
    ],
)
def test_a_condition_may_be_sql_or_about_content(path: str, where: list[str], expected: list[str]) -> None:
    assert tasks(path, *where) == expected


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("statis='error'", "there is no column 'statis'"),
        ("nonsense", "is not a condition"),
        ("1) from episodes; drop table spans; --", "nor is it SQL"),
    ],
)
def test_a_condition_that_is_neither_is_an_error_of_both(path: str, where: str, message: str) -> None:
    done = CliRunner().invoke(app, ["show", path, "--where", where])

    assert done.exit_code == 2
    assert message in " ".join((done.output + str(done.exception)).split())
