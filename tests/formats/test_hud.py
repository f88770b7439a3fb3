"""HUD's spans: `files/hud.jsonl` was written by HUD 0.6.21."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp import formats
from mttp.formats import hud
from mttp.formats.records import UnreadableRecord

FILE = Path(__file__).parent / "files" / "hud.jsonl"
SPANS = [json.loads(line) for line in FILE.read_text().splitlines()]
STEPS = [span["attributes"]["hud.payload"] for span in SPANS]


def written(tmp_path: Path, *spans: Any) -> Path:
    """A file of spans; a text is a line as it is."""
    path = tmp_path / "spans.jsonl"
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in spans))
    return path


def graded(**changes: Any) -> mttp.Episode:
    """The episode of the file's run with another evaluation."""
    steps = copy.deepcopy(STEPS)
    steps[-1]["task_call"]["result"] |= changes
    return hud.episode({"trace_id": "run", "steps": steps})


def test_a_run_is_an_episode_with_a_step_for_each_turn_of_the_model() -> None:
    """
    What was asked, called and answered is in its place.
    """
    (episode,) = formats.read(FILE)

    assert isinstance(episode, mttp.Episode)

    first, second = episode.steps
    chat, tool = first.calls

    assert "hud" == formats.recognize(FILE)
    assert ("add", "scripted", "completed", 0.25, {"a": 3, "b": 3}) == (
        episode.task,
        episode.policy,
        episode.status,
        episode.return_,
        episode.inputs,
    )
    assert [{"role": "user", "content": "What is 3 + 3?"}] == first.observation
    assert ("chat", "scripted", 3, 2) == (chat.operation, chat.name, chat.input_tokens, chat.output_tokens)
    assert ("execute_tool", "add", "call-1", {"a": 2, "b": 2}, "4", None) == (
        tool.operation,
        tool.name,
        tool.id,
        tool.arguments,
        tool.result,
        tool.error_type,
    )
    assert first.tokens is not None
    assert first.tokens.logprobs is not None
    assert ([1, 2, 3], [4, 5], [-0.5, -0.25]) == (
        list(first.tokens.prompt_ids),  # type: ignore[arg-type]
        list(first.tokens.ids),  # type: ignore[arg-type]
        list(first.tokens.logprobs),
    )
    assert [{"role": "tool", "tool_call_id": "call-1", "content": "4"}] == second.observation
    assert {"role": "assistant", "content": "4", "done": True} == second.action
    assert 0.001 == episode.cost_usd


def test_subscores_are_a_tree_of_grades() -> None:
    """
    Those of the first level are the components, whose weighted sum is the reward.
    """
    reward = next(iter(formats.read(FILE))).reward  # type: ignore[union-attr]
    exact, form = reward.grades

    assert {"exact": 0.0, "form": 1.0} == reward.components
    assert {"exact": 0.75, "form": 0.25} == reward.weights
    assert {"right": 6} == exact.evidence
    assert [("digits", 1.0), ("word", 0.0)] == [(one.name, one.value) for one in form.parts]
    assert ("ok", 0.25, False) == (reward.status, reward.value, reward.mismatch)


def test_the_tree_is_recorded() -> None:
    """
    A recording has all levels.
    """
    value = graded()
    with mttp.configure("memory://") as session:
        session.record(value)
        (read,) = mttp.read(session)

    assert value.reward == read.reward


def test_a_failed_grade_is_an_error() -> None:
    """
    Its score of zero is none.
    """
    reward = graded(isError=True, content="no file", score=0.0).reward

    assert ("error", None, "no file") == (reward.status, reward.value, reward.error)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), "1", [1]])
def test_a_score_that_is_not_a_finite_number_is_an_error(score: object) -> None:
    """
    The raw value is kept.
    """
    reward = graded(score=score).reward

    assert ("error", None, str(score)) == (reward.status, reward.value, reward.raw)


def test_names_of_one_parent_are_numbered() -> None:
    """
    As HUD's `combine` numbers them; a value that is no number is missing.
    """
    reward = graded(
        subscores=[{"name": "a", "value": 1}, {"name": "a", "value": "x", "weight": -1}, {"value": 0}, 3]
    ).reward

    assert {"a": 1.0, "subscore": 0.0} == reward.components
    assert {"a-2": "missing", "subscore-2": "missing"} == reward.component_statuses
    assert ["rubric", "penalty", "rubric", "rubric"] == [one.kind for one in reward.grades]


@pytest.mark.parametrize(
    ("steps", "status", "reward"),
    [
        ([], "aborted", "missing"),
        (STEPS[:-1], "aborted", "missing"),
        ([*STEPS, {"source": "system", "error": "[agent loop] boom"}], "error", "ok"),
        ([*STEPS[:-1], {"source": "system", "error": "[grading] boom"}], "error", "error"),
        ([*STEPS, STEPS[0]], "completed", "missing"),
    ],
)
def test_statuses(steps: list[Any], status: str, reward: str) -> None:
    """
    A run that ended before its evaluation has no reward; a verifier's setup revokes the earlier grade.
    """
    episode = hud.episode({"trace_id": "run", "steps": steps})

    assert (status, reward) == (episode.status, episode.reward.status)


@pytest.mark.parametrize(("steps", "status"), [(STEPS, "completed"), (STEPS[:-1], "aborted")])
def test_a_truncated_run_that_was_rewarded_is_completed(steps: list[Any], status: str) -> None:
    """
    It was trained on; without a reward it was cut off.
    """
    episode = hud.episode({"trace_id": "run", "steps": steps, "stop_reason": "max_steps"})

    assert (status, True, "max_steps") == (episode.status, episode.truncated, episode.stop_reason)


def test_a_tool_s_error_is_the_call_s() -> None:
    """
    The turn itself has none.
    """
    result = {"isError": True, "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "way"}]}
    steps = [{"source": "agent", "content": "x"}, {"source": "tool", "call": {"name": "t"}, "result": result}]
    (step,) = hud.episode({"trace_id": "run", "steps": steps}).steps

    assert ("tool_error", "no\nway", None) == (
        step.calls[1].error_type,
        step.calls[1].error_message,
        step.error_type,
    )


def test_another_agent_is_a_call() -> None:
    """
    Its trace is the result.
    """
    steps = [
        {"source": "agent", "content": "x"},
        {"source": "subagent", "subagent": {"status": "error", "content": "y"}, "error": "timeout"},
    ]
    (step,) = hud.episode({"trace_id": "run", "steps": steps}).steps

    assert ("invoke_agent", {"status": "error", "content": "y"}, "timeout") == (
        step.calls[1].operation,
        step.calls[1].result,
        step.calls[1].error_message,
    )


def test_control_ticks_of_a_robot_are_steps() -> None:
    """
    A tick without an inference has no action, because it executes an earlier one.
    """
    state = {"arm": {"names": [".x"], "values": [0.5]}}
    steps = [
        {"source": "observation", "tick": 0, "state": state},
        {"source": "inference", "tick": 0, "chunk": [[1.0], [2.0]]},
        {"source": "observation", "tick": 1, "state": state},
        {"source": "video_segment", "camera": "c"},
    ]
    found = hud.episode({"trace_id": "run", "steps": steps}).steps

    assert [(state, [[1.0], [2.0]], {"tick": 0}), (state, None, {"tick": 1})] == [
        (one.observation, one.action, one.metadata) for one in found
    ]


def test_runs_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """
    Spans of functions are kept as metadata; other lines are named.
    """
    other = copy.deepcopy(SPANS[-1])
    other["attributes"]["hud.task_run_id"] = "not a uuid"
    function = {"name": "f", "attributes": {"hud.task_run_id": SPANS[0]["trace_id"]}}
    *unreadable, first, second = formats.read(written(tmp_path, SPANS[0], other, function, "{", "3", {}))

    assert ["line 4", "line 5", "line 6"] == [
        one.place for one in unreadable if isinstance(one, UnreadableRecord)
    ]
    assert isinstance(first, mttp.Episode)
    assert isinstance(second, mttp.Episode)
    assert SPANS[0]["trace_id"] == first.trace_id
    assert [function] == first.metadata["hud"]["spans"]
    assert {"trace_id": "not a uuid"} == second.metadata["hud"]


@pytest.mark.parametrize("value", [None, 3, "x", [], [3], {}, float("nan")])
def test_fields_of_other_types_raise_nothing(value: object) -> None:
    """
    What can't be read is missing.
    """
    steps = [dict.fromkeys(step, value) | {"source": step["source"]} for step in STEPS]

    assert 2 == len(hud.episode({"trace_id": "run", "steps": steps}).steps)


def test_a_run_needs_an_id() -> None:
    """
    Else nothing says what it is.
    """
    with pytest.raises(ValueError, match="trace_id"):
        hud.episode({"steps": STEPS})
