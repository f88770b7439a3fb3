"""HUD's local telemetry: `files/hud.jsonl` was written by HUD 0.6.21."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import mttp
from mttp import formats
from mttp.formats import hud
from mttp.formats.records import UnreadableRecord

FILE = Path(__file__).parent / "files" / "hud.jsonl"
PAYLOADS = [json.loads(line)["attributes"]["hud.payload"] for line in FILE.read_text().splitlines()]


def test_a_run_is_an_episode_of_its_agent_s_steps() -> None:
    """
    With tools, tokens and the task's arguments.
    """
    (found,) = formats.read(FILE)
    assert isinstance(found, mttp.Episode)

    first, second = found.steps

    assert "hud" == formats.recognize(FILE)
    assert ("sums", {"a": 2}, "tiny") == (found.task, found.inputs, found.policy)
    assert [{"role": "user", "content": "2+2?"}] == first.observation
    assert [{"role": "tool", "tool_call_id": "t1", "content": "4"}] == second.observation
    assert ([1, 2], [7, 8], [-0.1, -0.2]) == tuple(
        list(getattr(first.tokens, name)) for name in ("prompt_ids", "ids", "logprobs")
    )
    assert ({"a": 2, "b": 2}, "4") == (first.calls[1].arguments, first.calls[1].result)
    assert {"role": "assistant", "content": "It is 4.", "reasoning_content": "easy"} == second.action
    assert 9.0 == found.duration


def test_subscores_are_components_and_grades_with_children() -> None:
    """
    Their weights and values are those of the tree.
    """
    reward = hud.episode("r", PAYLOADS).reward

    assert (0.85, "ok", "good") == (reward.value, reward.status, reward.explanation)
    assert {"correct": 1.0, "style": 0.25} == reward.components
    assert {"correct": 0.8, "style": 0.2} == reward.weights
    assert [("correct", 0.8, ("exact",)), ("style", 0.05, ())] == [
        (one.name, pytest.approx(one.contribution), tuple(part.name for part in one.parts))
        for one in reward.grades
    ]


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"isError": True}, "error"), ({"score": None}, "error"), ({"score": float("nan")}, "error")],
)
def test_an_evaluation_that_failed_is_an_error(changes: dict[str, Any], status: str) -> None:
    """
    Whatever its score is.
    """
    *before, last = PAYLOADS
    call = {**last["task_call"], "result": {**last["task_call"]["result"], **changes}}
    reward = hud.episode("r", [*before, {**last, "task_call": call}]).reward

    assert (None, status) == (reward.value, reward.status)


def test_a_run_without_an_evaluation_has_no_reward() -> None:
    """
    It is missing, and not zero.
    """
    found = hud.episode("r", PAYLOADS[:-1])

    assert ("missing", None) == (found.reward.status, found.return_)


def test_an_imported_run_reads_back() -> None:
    """
    Without a fault.
    """
    value = hud.episode("r", PAYLOADS)
    with mttp.configure("memory://", provenance=False) as session:
        session.record(value)
    (found,) = mttp.read(session)

    assert {} == session.stats.faults
    assert (value.steps, value.reward) == (found.steps, found.reward)


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, [None], {"a": None}])
@pytest.mark.parametrize("number", range(len(PAYLOADS)))
def test_any_type_of_a_field(number: int, value: object, tmp_path: Path) -> None:
    """
    The run is read or is named.
    """
    for name in PAYLOADS[number]:
        changed = [*PAYLOADS[:number], {**PAYLOADS[number], name: value}, *PAYLOADS[number + 1 :]]
        rows = [
            {
                "span_id": "1",
                "attributes": {"hud.task_run_id": "r", "hud.schema": "hud.step.v1", "hud.payload": one},
            }
            for one in changed
        ]
        path = tmp_path / "a.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "3\n")
        found = list(formats.read(path))

        assert any(isinstance(one, UnreadableRecord) for one in found)
