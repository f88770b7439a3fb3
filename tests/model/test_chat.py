"""Chat messages in observations and actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from awkward import AWKWARD

from mttp.model.chat import from_text, message_lines, messages, new_messages, speaker

USER = {"role": "user", "content": "hi"}
ASSISTANT = {"role": "assistant", "content": "yes"}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (USER, [USER]),
        ([USER, ASSISTANT], [USER, ASSISTANT]),
        ((USER,), [USER]),
        ({"messages": [USER]}, [USER]),
        ({"messages": [USER], "tools": []}, None),
        ({"role": 3}, None),
        ([], None),
        ([USER, "hi"], None),
        ("hi", None),
        (None, None),
        (3, None),
        ({"obs": [1, 2]}, None),
    ],
)
def test_a_chat_is_found(content: object, expected: object):
    """
    Where nothing else would be lost by showing it as one.
    """
    assert expected == messages(content)


def test_an_array_is_no_chat():
    """
    Nor is it compared with anything.
    """
    assert None is messages(np.zeros(3))


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"content": "a\nb"}, ["a\nb"]),
        ({"content": ""}, []),
        ({"content": None}, []),
        ({}, []),
        ({"content": 3}, ["3"]),
        ({"content": np.zeros(2)}, ["[0.0, 0.0]"]),
        ({"content": {"a": [1]}}, ['{"a": [1]}']),
        ({"content": [{"type": "text", "text": "a"}, "b", {"type": "image", "url": "x"}, 4]},
         ['a\nb\n[picture x]\n4']),
        ({"parts": [{"type": "text", "content": "a"}]}, ["a"]),
        ({"content": "a", "reasoning_content": "hm"}, ["(thinks) hm", "a"]),
        ({"content": None, "refusal": "no"}, ["(refuses) no"]),
        ({"tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]}, ['calls f {"x": 1}']),
        ({"tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}, ['calls f {"x": 1}']),
        ({"tool_calls": [{"name": "f"}]}, ["calls f"]),
        ({"tool_calls": ["odd", {"function": None}]}, ['calls "odd"', 'calls {"function": null}']),
        ({"tool_calls": None, "content": "a"}, ["a"]),
        ({"tool_calls": 3}, []),
    ],
)  # fmt: skip
def test_a_message_is_reported_in_lines(message: dict[str, Any], expected: list[str]):
    """
    Whatever form its content has.
    """
    assert expected == message_lines({"role": "assistant", **message})


def test_a_speaker_has_a_role_and_maybe_a_name():
    """
    Of a tool it is the tool's.
    """
    assert ["user", "tool add"] == [speaker(USER), speaker({"role": "tool", "name": "add"})]


@pytest.mark.parametrize(
    ("shown", "before", "expected"),
    [
        ([USER, ASSISTANT], [USER], [ASSISTANT]),
        ([USER], [USER, ASSISTANT], []),
        ([USER], [], [USER]),
        ([ASSISTANT, USER], [USER, ASSISTANT], [ASSISTANT, USER]),
        ([{**ASSISTANT, "refusal": None, "tool_calls": []}, USER], [ASSISTANT], [USER]),
    ],
)
def test_messages_that_came_before_are_not_new(shown: Any, before: Any, expected: Any):
    """
    As far as they are the same from the beginning on; fields that say nothing don't matter.
    """
    assert expected == new_messages(shown, before)


def test_arguments_whose_class_raises_are_not_taken_for_json():
    value = AWKWARD["raising class"]()

    assert value is from_text(value)
    assert {"a": 1} == from_text('{"a": 1}')
