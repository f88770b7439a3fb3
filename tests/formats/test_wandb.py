"""W&B's tables of completions, and calls that Weave exports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp import formats
from mttp.formats.records import UnreadableRecord

TRL = {
    "columns": ["step", "prompt", "completion", "correct", "advantage"],
    "data": [["1", "2+2?", "4", 1.0, 0.7], ["1", "2+2?", "5", 0.0, -0.7]],
    "ncols": 5,
    "nrows": 2,
}
VERL = {
    "columns": ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"],
    "data": [[10, "2+2?", "4", 1.0, "3+3?", "7", 0.0]],
}
TRACE = "01a20919-ac19-75ec-9d3a-cbcac97b3c3a"


def call(name: str, second: int, parent: str | None = None, **fields: Any) -> dict[str, Any]:
    """A call as Weave exports it."""
    return {
        "id": f"c{second}",
        "trace_id": TRACE,
        "parent_id": parent,
        "op_name": f"weave:///team/project/op/{name}:abc",
        "started_at": f"2026-11-23T10:00:{second:02}.000000Z",
        "ended_at": f"2026-11-23T10:00:{second + 1:02}.000000Z",
        "inputs": {},
        "output": None,
        "exception": None,
        **fields,
    }


def answered(text: str) -> dict[str, Any]:
    """The output of a model call."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"model": "gpt-x", "choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}


def read(tmp_path: Path, *rows: Any) -> list[Any]:
    """What a file with these JSON lines holds."""
    path = tmp_path / "a.json"
    path.write_text("\n".join(map(json.dumps, rows)))

    assert "wandb" == formats.recognize(path)
    return list(formats.read(path))


def test_a_table_of_trl(tmp_path: Path) -> None:
    """
    Its rows are read as those of TRL's own files; samples of a prompt are a group.
    """
    first, second = read(tmp_path, TRL)

    assert (1.0, {"correct": 1.0}, 0.7) == (first.return_, first.reward.components, first.advantage)
    assert "5" == second.steps[0].action["content"]
    assert first.group == second.group


def test_a_table_of_verl(tmp_path: Path) -> None:
    """
    A row has several samples.
    """
    found = read(tmp_path, VERL)

    assert [("2+2?", 1.0, 10), ("3+3?", 0.0, 10)] == [
        (one.task, one.return_, one.policy_update_index) for one in found
    ]


def test_a_trace_of_weave_is_an_episode_of_its_model_calls(tmp_path: Path) -> None:
    """
    Observations are what is new since the call before.
    """
    asked = [{"role": "user", "content": "2+2?"}]
    more = [*asked, {"role": "assistant", "content": "hm"}, {"role": "user", "content": "well?"}]
    (found,) = read(
        tmp_path,
        call("solve", 0, inputs={"question": "2+2?"}, output="4"),
        call("create", 1, "c0", inputs={"model": "gpt-x", "messages": asked}, output=answered("hm")),
        call("lookup", 2, "c0", output={"rows": 3}),
        call("create", 3, "c0", inputs={"model": "gpt-x", "messages": more}, output=answered("4")),
    )

    assert ("solve", {"question": "2+2?"}, "gpt-x", "missing") == (
        found.env,
        found.inputs,
        found.policy,
        found.reward.status,
    )
    assert [asked, [{"role": "user", "content": "well?"}]] == [step.observation for step in found.steps]
    assert ["hm", "4"] == [step.action["content"] for step in found.steps]
    assert (9, 3, ("stop",)) == (
        found.steps[0].calls[0].input_tokens,
        found.steps[0].calls[0].output_tokens,
        found.steps[0].calls[0].finish_reasons,
    )
    assert 1.0 == found.duration


def test_an_exception_of_the_root_is_an_error(tmp_path: Path) -> None:
    """
    With its text.
    """
    (found,) = read(
        tmp_path,
        call("solve", 0, exception="ValueError: no"),
        call("create", 1, "c0", output=answered("4")),
    )

    assert ("error", "ValueError: no") == (found.status, found.error_message)


@pytest.mark.parametrize("data", [[[1]], [3], [["1", "2+2?", "4", "x", None]], [[None] * 5]])
def test_rows_of_another_shape(data: Any, tmp_path: Path) -> None:
    """
    A row is an episode or is named.
    """
    first, second = read(tmp_path, {**TRL, "data": [*data, TRL["data"][0]]})

    assert isinstance(first, (mttp.Episode, UnreadableRecord))
    assert 1.0 == second.return_


@pytest.mark.parametrize(
    "value", [None, 1, "x", [], {}, [None], {"choices": [None]}, {"choices": [{"message": 3}]}]
)
@pytest.mark.parametrize("name", sorted(call("a", 0).keys() - {"trace_id"}))
def test_any_type_of_a_field_of_weave(name: str, value: object, tmp_path: Path) -> None:
    """
    The trace is read.
    """
    found = read(
        tmp_path,
        call("create", 0, output=answered("4")),
        call("create", 1, **{"output": answered("4"), name: value}),
    )

    assert isinstance(found[0], mttp.Episode)
