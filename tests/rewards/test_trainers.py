"""Reward functions for trainers."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import mttp
from mttp.errors import MissingExtra, NeedsGroup, SpecError


def starts(completion: str, answer: str) -> float:
    """Whether the text starts with the answer; None without text."""
    return float(completion.startswith(answer)) if completion else None  # type: ignore[return-value]


def longest(completion: list[str]) -> list[float]:
    """1 for the longest of a group."""
    most = max(map(len, completion))
    return [float(len(one) == most) for one in completion]


def spec(**entry: Any) -> mttp.RewardSpec:
    """A spec of one component."""
    entry = {"name": "only", "kind": "rubric", "use": starts, "range": [0, 1], **entry}
    inputs = {"completion": "string", "answer": "string"}
    return mttp.RewardSpec(
        name="one", version="1.0.0", inputs=inputs, components=[entry], combine="weighted_sum"
    )


def test_a_batch_is_rewarded_as_trl_calls_it():
    """
    Lists are columns, other arguments are ignored; an invalid sample is None.
    """
    function = spec().for_trl(concurrency=2)

    paid = function(
        prompts=["p"] * 3,
        completions=["4", "5", ""],
        answer=["4"] * 3,
        completion_ids=[[1]] * 3,
        trainer_state=7,
    )

    assert ("one", [1.0, 0.0, None]) == (function.__name__, paid)
    assert ["ok", "ok", "abstained"] == [result.status for result in paid.results]


def test_messages_are_read_by_their_last():
    """
    An input of type `string` gets the content of the last message.
    """
    answers = [[{"role": "assistant", "content": "5"}, {"role": "assistant", "content": "4 it is"}]]

    assert [1.0] == spec().for_trl()(prompts=[[]], completions=answers, answer=["4"])


def test_what_a_spec_lacks_is_reported_at_set_up(monkeypatch: pytest.MonkeyPatch):
    """
    Missing code and packages raise before the first batch.
    """
    with pytest.raises(SpecError, match="no module no_such_module is"):
        spec(use="no_such_module:graders").for_trl()

    monkeypatch.setitem(sys.modules, "rfc8785", None)
    with pytest.raises(MissingExtra, match=r"pip install 'mttp\[spec\]'"):
        spec().for_trl()


def test_a_relative_component_needs_the_groups_size():
    """
    Set-up raises without it; a partial group raises as well.
    """
    ranked = spec(use=longest, kind="judge", relative=True, arity="batch")
    with pytest.raises(NeedsGroup, match=r"for_trl\(group_size=...\)"):
        ranked.for_trl()

    function = ranked.for_trl(group_size=2)
    given = {"prompts": ["p"] * 4, "answer": ["4"] * 4}

    assert [0.0, 1.0, 1.0, 0.0] == function(completions=["a", "aa", "aa", "a"], **given)
    with pytest.raises(ValueError, match="3 completions are not a multiple of group_size=2"):
        function(completions=["a"] * 3, prompts=["p"] * 3, answer=["4"] * 3)


def test_without_stated_inputs_a_sample_has_every_column():
    """
    All columns of TRL are inputs.
    """
    seen: list[Any] = []

    def look(**sample: Any) -> float:
        seen.append(sample)
        return 1.0

    loose = mttp.RewardSpec(
        name="loose",
        version="1.0.0",
        components=[{"name": "look", "kind": "rubric", "use": look, "version": "1"}],
    )
    messages = [{"role": "user", "content": "4"}]
    loose.for_trl()(prompts=[messages], completions=[messages], answer=["4"], log_extra=print)

    assert [{"prompt": messages, "completion": messages, "answer": "4"}] == seen
