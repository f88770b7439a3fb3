"""Data sets for training from recordings."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp.errors import ConfigureError
from mttp.model import Annotation, Call
from mttp.reading import Recording, training_dataset

USER = {"role": "user", "content": "2+2?"}
FOUR = {"role": "assistant", "content": "4"}
FIVE = {"role": "assistant", "content": "5"}


def episode(number: int, *steps: mttp.Step, reward: float | None = 1.0, **more: Any) -> mttp.Episode:
    """An episode of these steps, by default one turn."""
    return mttp.Episode(
        trace_id=f"{number:032x}",
        run_id="r",
        steps=steps or (mttp.Step(observation=[USER], action=FOUR),),
        reward=mttp.Reward(value=reward),
        **more,
    )


def of(*episodes: mttp.Episode, **more: Any) -> Recording:
    """A recording of these episodes."""
    return Recording(episodes=list(episodes), **more)


def test_a_chat_is_a_prompt_and_a_completion():
    """
    An action may be text, where the observation is a chat.
    """
    found = training_dataset(of(episode(1), episode(2, mttp.Step(observation=[USER], action="4"))), "sft")

    assert [{"prompt": [USER], "completion": [FOUR]}] * 2 == list(found)
    assert "<TrainingDataset for sft: 2 rows>" == repr(found)


@pytest.mark.parametrize("is_whole", [False, True], ids=["new-messages", "whole-conversation"])
def test_turns_are_one_completion(is_whole: bool):
    """
    A later observation has only the new messages, or the whole conversation again.
    """
    call = {"id": "c", "type": "function", "function": {"name": "sum", "arguments": '{"a": 2}'}}
    asks = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "name": "sum", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}]}
    steps = (
        mttp.Step(observation=[USER], action=asks),
        mttp.Step(index=1, observation=[USER, asks, result] if is_whole else [result], action=FOUR),
    )
    (row,) = training_dataset(of(episode(1, *steps)), "sft")
    expected = {**call, "function": {"name": "sum", "arguments": {"a": 2}}}

    assert [USER] == row["prompt"]
    assert [{**asks, "content": "", "tool_calls": [expected]}, {**result, "content": "4"}, FOUR] == row[
        "completion"
    ]


def called(new: list[Any], answer: Any, *history: int) -> mttp.Step:
    """A step as an instrumented client records it: with what was new, and the ranges of what it sent."""
    call = Call(operation="chat", arguments=new, result=answer, history=history)
    return mttp.Step(observation=new, action=answer, calls=(call,))


def test_a_request_has_the_messages_of_its_history():
    """
    A message that is said twice is there twice, and one that was left out is not.
    """
    again = {"role": "user", "content": "And?"}
    steps = [called([USER], FOUR, 0, 1), called([again], FIVE, 0, 3), called([again], FOUR, 0, 1, 3, 5)]
    whole, _ = training_dataset(of(episode(1, *steps[:2]), episode(2, *steps)), "sft")
    _, rewritten = training_dataset(of(episode(1, *steps[:2]), episode(2, *steps)), "sft")

    assert [FOUR, again, FIVE] == whole["completion"]
    assert [FIVE, again, FOUR] == rewritten["completion"]


def test_what_the_program_set_is_the_conversation():
    """
    Whatever its calls had.
    """
    step = called([{"role": "user", "content": "Judge it."}], FIVE, 0, 1)
    own = mttp.Step(observation=[USER], action=FOUR, calls=step.calls)
    (row,) = training_dataset(of(episode(1, own)), "sft")

    assert {"prompt": [USER], "completion": [FOUR]} == row


def test_a_conversation_is_as_the_policy_saw_it_last():
    """
    An earlier answer that is repeated without its reasoning is not a second answer.
    """
    thinks = {**FOUR, "reasoning_content": "hm"}
    again = {"role": "user", "content": "sure?"}
    steps = (
        mttp.Step(observation=[USER], action=thinks),
        mttp.Step(index=1, observation=[USER, FOUR, again], action=FOUR),
    )

    assert [FOUR, again, FOUR] == training_dataset(of(episode(1, *steps)), "sft").rows[0]["completion"]


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (episode(1, status="error"), "episodes that were not completed"),
        (episode(1, mttp.Step(observation="2+2?", action="4")), "episodes without chat messages"),
        (episode(1, mttp.Step(observation=[USER])), "episodes whose last message is not the policy's"),
        (mttp.Episode(trace_id="1" * 32), "episodes without chat messages"),
        (
            episode(
                1, mttp.Step(observation=[{"role": "user", "content": [{"type": "image"}]}], action=FOUR)
            ),
            "episodes with content other than text",
        ),
        (
            episode(1, mttp.Step(agent="a", observation=[USER]), mttp.Step(agent="b", observation=[USER])),
            "episodes of several agents",
        ),
        (
            episode(
                1,
                mttp.Step(observation=[{"role": "system", "content": "a"}, USER], action=FOUR),
                mttp.Step(observation=[{"role": "system", "content": "b"}, USER], action=FOUR),
            ),
            "episodes whose prompt changes between steps",
        ),
    ],
)
def test_what_is_left_out_is_counted(left: mttp.Episode, reason: str):
    """
    By reason, and in the repr.
    """
    found = training_dataset(of(left), "sft")

    assert ((), {reason: 1}) == (found.rows, found.left_out)
    assert f"<TrainingDataset for sft: 0 rows; left out {reason}: 1>" == repr(found)


def test_text_is_a_chat_on_request():
    """
    Observations are the user's, actions the assistant's.
    """
    found = training_dataset(of(episode(1, mttp.Step(observation="2+2?", action="4"))), "sft", text=True)

    assert [{"prompt": [USER], "completion": [FOUR]}] == list(found)


def test_least_reward_needs_a_valid_one():
    """
    A failed reward is not a low one, and a return counts where there is no reward.
    """
    failed = mttp.Episode(
        trace_id="9" * 32, steps=episode(1).steps, return_=1.0, reward=mttp.Reward(status="error")
    )
    by_steps = episode(4, reward=None, return_=1.0)
    found = training_dataset(of(episode(1), episode(2, reward=0.0), failed, by_steps), "sft", min_reward=0.5)

    assert {"episodes below the least reward": 1, "episodes without a valid reward": 1} == found.left_out
    assert 2 == len(found)


def test_pairs_are_preferences():
    """
    Where the recording has any.
    """
    worse = episode(2, mttp.Step(observation=[USER], action=FIVE))
    other = episode(3, mttp.Step(observation=[FIVE], action=FIVE))
    notes = [
        Annotation(kind="preference", episode=f"{1:032x}", rejected=(f"{2:032x}", f"{3:032x}")),
        Annotation(kind="preference", episode=f"{1:032x}", rejected=(f"{1:032x}", "f" * 32)),
    ]
    found = training_dataset(of(episode(1), worse, other, annotations=notes), "dpo")

    assert [{"prompt": [USER], "chosen": [FOUR], "rejected": [FIVE]}] == list(found)
    assert {
        "pairs whose prompts differ": 1,
        "pairs whose answers are equal": 1,
        "pairs of which an episode can't be used": 1,
    } == found.left_out


def test_pairs_are_the_best_and_worst_of_groups():
    """
    Equal rewards make no pair, and neither does a single episode.
    """
    turns = [mttp.Step(observation=[USER], action=f"{n}") for n in range(3)]
    members = [episode(n, turns[n], reward=float(n), group="a") for n in range(3)]
    equal = [episode(n, turns[n % 3], reward=1.0, group="b") for n in (3, 4)]
    alone = [episode(5, group="c"), episode(6, group="c", reward=None), episode(7)]
    found = training_dataset(of(*members, *equal, *alone), "dpo")

    assert ["2", "0"] == [found.rows[0][name][0]["content"] for name in ("chosen", "rejected")]
    assert {
        "groups whose rewards are all equal": 1,
        "groups with fewer than two usable episodes": 1,
    } == found.left_out
    assert {"pairs whose chosen episode is below the least reward": 1} == training_dataset(
        of(*members), "dpo", min_reward=3
    ).left_out


def test_prompts_have_columns_of_inputs():
    """
    Each once, with the same columns; a column of several types is text.
    """
    inputs = [{"answer": "4", "prompt": 1}, {"answer": 4}, {"answer": "4", "prompt": 1}, None]
    found = training_dataset(of(*(episode(n, task="t", inputs=one) for n, one in enumerate(inputs))), "grpo")

    assert [
        {"prompt": [USER], "task": "t", "answer": "4", "inputs_prompt": 1},
        {"prompt": [USER], "task": "t", "answer": "4", "inputs_prompt": None},
        {"prompt": [USER], "task": "t", "answer": None, "inputs_prompt": None},
    ] == list(found)
    assert {"episodes with the prompt and inputs of another one": 1} == found.left_out


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_rows_are_written(tmp_path: Path, suffix: str):
    """
    As JSON lines or Parquet, with the text unchanged.
    """
    text = "日本\u2028\n<b>\x1b"
    step = mttp.Step(observation=[{"role": "user", "content": text}], action=FOUR)
    path = tmp_path / f"a{suffix}"
    training_dataset(of(episode(1, step, inputs={"x": [1, 2]})), "grpo").write(path)
    if suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    else:
        from pyarrow import parquet

        rows = parquet.read_table(path).to_pylist()

    assert [{"prompt": [{"role": "user", "content": text}], "x": [1, 2]}] == rows


def test_tool_calls_are_not_written_to_parquet(tmp_path: Path):
    """
    Each call would get the arguments of the others.
    """
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}
    step = mttp.Step(observation=[USER], action={"role": "assistant", "content": "", "tool_calls": [call]})

    with pytest.raises(ConfigureError, match=r"write a .jsonl file"):
        training_dataset(of(episode(1, step)), "sft").write(tmp_path / "a.parquet")
    with pytest.raises(ConfigureError, match=r"ends in .jsonl or .parquet"):
        training_dataset(of(episode(1)), "sft").write(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "ppo"}, "format='ppo' is not one of sft, dpo, grpo"),
        ({"format": "dpo", "pairs": "all"}, "pairs='all' is not one of preferences, groups"),
        ({"format": "sft", "pairs": "groups"}, "pairs='groups' is for dpo, not for sft"),
        ({"format": "grpo", "min_reward": 1.0}, "min_reward=1.0: give a number, for sft or dpo"),
        ({"format": "sft", "min_reward": math.nan}, "min_reward=nan"),
    ],
)
def test_a_wrong_argument_is_an_error(arguments: dict[str, Any], message: str):
    """
    It names the argument, the value and the alternatives.
    """
    with pytest.raises(ConfigureError, match=message):
        training_dataset(of(episode(1)), **arguments)
