"""`mttp convert --as`: data sets for training from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import mttp
from mttp.cli.app import app


def run(*arguments: str) -> Result:
    """Run `mttp convert`."""
    return CliRunner(env={"COLUMNS": "80"}).invoke(app, ["convert", *arguments], prog_name="mttp")


@pytest.fixture(autouse=True)
def recording() -> None:
    """Two chats of a group, one of them without a reward, and an episode that is no chat."""
    with mttp.configure("file://a.jsonl"):
        for number, reward in enumerate((1.0, 0.0, None)):
            with mttp.episode(task=f"t{number}", group="g") as episode, episode.step() as step:
                step.observation("text" if reward is None else [{"role": "user", "content": "hi"}])
                step.action(f"answer {number}")
                if reward is not None:
                    episode.reward(reward)


def test_rows_are_written_and_the_rest_is_counted():
    """
    On standard output.
    """
    result = run("a.jsonl", "b.jsonl", "--as", "sft", "--min-reward", "0.5")
    rows = [json.loads(line) for line in Path("b.jsonl").read_text().splitlines()]

    assert 0 == result.exit_code
    assert [["answer 0"]] == [[one["content"] for one in row["completion"]] for row in rows]
    assert [
        "wrote 1 row to b.jsonl",
        "left out episodes below the least reward: 1",
        "left out episodes without chat messages: 1",
    ] == [line.partition(" (")[0] for line in result.stdout.splitlines()]


def test_conditions_choose_episodes():
    """
    As for `mttp show`; text is taken on request.
    """
    result = run("a.jsonl", "b.jsonl", "--as", "grpo", "--where", "task=t2", "--text")

    assert 0 == result.exit_code
    assert {"prompt": [{"role": "user", "content": "text"}], "task": "t2"} == json.loads(
        Path("b.jsonl").read_text()
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--as", "sft", "--where", "task=none"),
            "there is nothing to write as sft: none of 3 episodes matches",
        ),
        (("--as", "sft", "--where", "task=t2"), "--text takes text for messages"),
        (("--text",), "--text needs --as"),
        (("--as", "sft", "--to", "parquet"), "can't be combined"),
        (("--as", "sft", "--pairs", "groups"), "pairs='groups' is for dpo, not for sft"),
        (("--as", "skyrl"), "'skyrl' is not one of"),
    ],
)
def test_wrong_usage_exits_with_2(arguments: tuple[str, ...], message: str):
    """
    With what to change, and without a file.
    """
    result = run("a.jsonl", "b.jsonl", *arguments)

    assert (2, True) == (result.exit_code, message in " ".join(result.output.split()))
    assert not Path("b.jsonl").exists()


def test_a_file_is_replaced_on_request():
    """
    Without --overwrite it stays as it is.
    """
    Path("b.jsonl").write_text("mine")
    refused = run("a.jsonl", "b.jsonl", "--as", "dpo")
    before = Path("b.jsonl").read_text()
    replaced = run("a.jsonl", "b.jsonl", "--as", "dpo", "--pairs", "groups", "--overwrite")

    assert (2, "mine", 0) == (refused.exit_code, before, replaced.exit_code)
    assert "rejected" in Path("b.jsonl").read_text()
