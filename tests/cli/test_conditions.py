"""Conditions of `--where`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.cli.conditions import COLUMNS, as_sql, matching
from mttp.errors import ReadError

HOUR = 3_600_000_000_000
FULL = "ab" * 16
EMPTY = "cd" * 16
ALWAYS = ("episode", "run", "status", "outcome", "reward_status", "length", "duration", "complete", "start")


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A recording of an episode with a value in many columns, and of one with few."""
    file = tmp_path_factory.mktemp("conditions") / "run.jsonl"
    full = mttp.Episode(
        trace_id=FULL,
        env="CartPole-v1",
        task="train/17",
        slices=["hard", "long"],
        seed=7,
        status="error",
        outcome="failure",
        error_type="ValueError",
        terminated=False,
        return_=0.5,
        length=12,
        metrics={"kl": 0.25},
        metadata={"level": "3", "flag": True, "none": None},
        reward=mttp.Reward(value=0.5, components={"format": 1.0}, failed_checks=("leak",)),
        start_time=12 * HOUR,
        end_time=12 * HOUR + 2_000_000_000,
    )
    with mttp.configure(f"file://{file}") as session:
        session.record(full)
        session.record(mttp.Episode(trace_id=EMPTY))
    return [str(file)]


@pytest.mark.parametrize(
    "text",
    [
        "status=error",
        " status = error ",
        "status!=completed",
        "episode~^abab",
        "env=CartPole-v1",
        "task~^train/",
        "task!=train/1",
        "slice=hard",
        "slice!=easy",
        "slice~lon",
        "failed_check=leak",
        "return=0.5",
        "return=.50",
        "return>0.4",
        "return>=0.5",
        "return<=0.5",
        "return<1e3",
        "length~^1",
        "duration>1.9",
        "seed=7",
        "seed=7.0",
        "seed<8",
        "terminated=false",
        "terminated~false",
        "truncated=none",
        "verdict=none",
        "status!=none",
        "metrics.kl<0.3",
        "metrics.none=none",
        "metadata.level=3",
        "metadata.flag=true",
        "components.format=1",
        "start>=1970-01-01",
        "start<1970-01-01T12:00:01",
        "start=1970-01-01T13:00:00+01:00",
    ],
)
def test_a_condition_holds(text: str, episodes: list[str]) -> None:
    assert FULL in matching(episodes, [text])


@pytest.mark.parametrize(
    "text",
    [
        "return>0",
        "return<0",
        "return=0",
        "advantage>=-inf",
        "task~.",
        "terminated=true",
        "terminated=false",
        "metrics.kl<0.3",
        "slice=hard",
        "metadata.level>2",
    ],
)
def test_an_unknown_value_is_neither_less_nor_greater_and_matches_no_text(
    text: str, episodes: list[str]
) -> None:
    assert EMPTY not in matching(episodes, [text])


@pytest.mark.parametrize("name", COLUMNS)
def test_every_column_is_compared_with_none(name: str, episodes: list[str]) -> None:
    without = matching(episodes, [f"{name}=none"])

    assert EMPTY in without or name in ALWAYS
    assert without ^ matching(episodes, [f"{name}!=none"]) == {FULL, EMPTY}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a condition; write one such as status=error"),
        ("status", "is not a condition"),
        ("=error", "is not a condition"),
        ("colour=red", "there is no column 'colour'; the columns are episode, run, env,"),
        ("steps.kl=1", "metrics.NAME, metadata.NAME, components.NAME"),
        ("return>high", "'return>high': 'high' is not a number"),
        ("return=nan", "'nan' is not a number"),
        ("seed>x", "'x' is not a number"),
        ("outcome<success", "< compares numbers and times; text is compared by =, != and ~"),
        ("terminated=yes", "'yes' is neither true nor false"),
        ("task~[", "'[' is not a regular expression"),
        ("start>today", "'today' is not a time; write 2026-01-31"),
    ],
)
def test_a_wrong_condition_says_what_there_is(text: str, message: str) -> None:
    with pytest.raises(ReadError) as caught:
        as_sql(text)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "holds"),
    [("task = 'train/17'", True), ("env = 'CartPole-v1' and length > 20", False), ("seed in ('7')", True)],
)
def test_a_quoted_value_is_sql(text: str, holds: bool, episodes: list[str]) -> None:
    assert (FULL in matching(episodes, [text])) is holds


def test_nan_is_neither_less_nor_greater(tmp_path: Path) -> None:
    with mttp.configure(f"file://{tmp_path}/run.jsonl") as session:
        session.record(mttp.Episode(metrics={"kl": math.nan}))
    assert matching([str(tmp_path)], ["metrics.kl>0"]) == matching([str(tmp_path)], ["metrics.kl<0"]) == set()


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
        ("statis='error'", '"statis" not found'),
        ("nonsense", "is not a condition"),
        ("1) from episodes; drop table spans; --", "nor is it SQL"),
    ],
)
def test_a_condition_that_is_neither_is_an_error_of_both(path: str, where: str, message: str) -> None:
    done = CliRunner().invoke(app, ["show", path, "--where", where])

    assert done.exit_code == 2
    assert message in " ".join((done.output + str(done.exception)).split())


def test_a_summary_is_of_the_episodes_that_match(path: str) -> None:
    done = CliRunner().invoke(app, ["summary", path, "--json", "--where", "task=two"])

    document = json.loads(done.stdout)
    assert (document["totals"]["episodes"], document["totals"]["return"]["mean"]) == (1, 1.0)
    assert document["problems"] == []  # what a condition leaves out is not missing
