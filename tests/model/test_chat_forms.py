"""Messages of any form are read as chat APIs have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mttp.model.chat_forms import chat_messages

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
CALLED = {"role": "assistant", "content": "", "tool_calls": [CALL]}
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
DATA = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def part(type: str, **fields: Any) -> dict[str, Any]:
    """A part of a message."""
    return {"type": type, **fields}


def user(*parts: Any) -> list[dict[str, Any]]:
    """A message of the conventions."""
    return [{"role": "user", "parts": [*parts]}]


def answered(content: Any, identity: str = "c1") -> dict[str, Any]:
    """A tool's answer."""
    return {"role": "tool", "tool_call_id": identity, "content": content}


FORMS: dict[str, tuple[Any, list[dict[str, Any]]]] = {
    "text": ("hi", [{"role": "user", "content": "hi"}]),
    "text that is other JSON": ('{"a":1}', [{"role": "user", "content": '{"a":1}'}]),
    "list of numbers as text": ("[1,2]", [{"role": "user", "content": "[1,2]"}]),
    "nothing": (None, []),
    "number": (5, [{"role": "user", "content": "5"}]),
    "parts": (
        user(part("text", content="a"), part("text", content="b")),
        [{"role": "user", "content": "a\nb"}],
    ),
    "text of null": (user(part("text", content=None)), [{"role": "user", "content": ""}]),
    "object as text": (user(part("text", content={"a": 1})), [{"role": "user", "content": '{"a": 1}'}]),
    "call": (
        [
            {
                "role": "assistant",
                "parts": [part("tool_call", id="c1", name="weather", arguments={"city": "Oslo"})],
            }
        ],
        [CALLED],
    ),
    "call as block": (
        [
            {
                "role": "assistant",
                "content": [part("tool_use", id="c1", name="weather", input={"city": "Oslo"})],
            }
        ],
        [CALLED],
    ),
    "call of Responses": (
        [part("function_call", call_id="c1", name="weather", arguments='{"city": "Oslo"}')],
        [CALLED],
    ),
    "call of Bedrock": (
        [
            {
                "role": "assistant",
                "content": [{"toolUse": {"toolUseId": "c1", "name": "weather", "input": {"city": "Oslo"}}}],
            }
        ],
        [CALLED],
    ),
    "call of LangChain": (
        [
            {
                "type": "ai",
                "content": "",
                "tool_calls": [
                    {"id": "c1", "name": "weather", "args": {"city": "Oslo"}, "type": "tool_call"}
                ],
            }
        ],
        [CALLED],
    ),
    "call of a chat API": (
        [{"role": "assistant", "content": None, "tool_calls": [CALL]}],
        [{**CALLED, "content": None}],
    ),
    "call with an object": (
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{**CALL, "function": {"name": "weather", "arguments": {"city": "Oslo"}}}],
            }
        ],
        [CALLED],
    ),
    "earlier call": (
        [{"role": "assistant", "content": "", "function_call": {"name": "f"}}],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}],
            }
        ],
    ),
    "several answers": (
        [
            {
                "role": "tool",
                "parts": [
                    part("tool_call_response", id="c1", response={"a": 1}),
                    part("tool_call_response", id="c2", response=None),
                ],
            }
        ],
        [answered('{"a": 1}'), answered("", "c2")],
    ),
    "answer and text": (
        [
            {
                "role": "user",
                "content": [part("tool_result", tool_use_id="c1", content="rain"), part("text", text="so?")],
            }
        ],
        [answered("rain"), {"role": "user", "content": "so?"}],
    ),
    "answer of blocks": (
        [
            {
                "role": "tool",
                "parts": [part("tool_call_response", id="c1", response=[part("text", text="rain")])],
            }
        ],
        [answered("rain")],
    ),
    "answer of a chat API": ([answered("rain")], [answered("rain")]),
    "answer that is an object": ([answered({"sky": "rain"})], [answered('{"sky": "rain"}')]),
    "reasoning": (
        [{"role": "assistant", "parts": [part("reasoning", content="hm"), part("text", content="4")]}],
        [{"role": "assistant", "content": "4", "reasoning_content": "hm"}],
    ),
    "thinking": (
        [{"role": "assistant", "content": [part("thinking", thinking="hm"), part("text", text="4")]}],
        [{"role": "assistant", "content": "4", "reasoning_content": "hm"}],
    ),
    "image": (
        user(part("text", content="?"), part("uri", modality="image", uri="https://example.org/a.png")),
        [{"role": "user", "content": [part("text", text="?"), IMAGE]}],
    ),
    "image as data": (
        user(part("blob", modality="image", mime_type="image/png", content="AA==")),
        [{"role": "user", "content": [DATA]}],
    ),
    "image of bytes": (
        user(part("blob", modality="image", mime_type="image/png", content=b"\0")),
        [{"role": "user", "content": [DATA]}],
    ),
    "image of a chat API": ([{"role": "user", "content": [IMAGE]}], [{"role": "user", "content": [IMAGE]}]),
    "unknown part": (user(part("odd", x=1)), [{"role": "user", "content": [part("odd", x=1)]}]),
    "refusal": (
        [{"role": "assistant", "content": [part("refusal", refusal="no")]}],
        [{"role": "assistant", "content": "", "refusal": "no"}],
    ),
    "other fields": (
        [{"role": "user", "content": "a", "name": "ada", "audio": None}],
        [{"role": "user", "content": "a", "name": "ada"}],
    ),
    "role of Google": (
        [{"role": "model", "parts": [{"text": "a"}]}],
        [{"role": "assistant", "content": "a"}],
    ),
    "object": ([{"role": "user", "content": {"a": 1}}], [{"role": "user", "content": '{"a": 1}'}]),
    "request": (
        {"model": "m", "messages": [{"role": "user", "content": "q"}]},
        [{"role": "user", "content": "q"}],
    ),
    "batch": ([[{"role": "user", "content": "q"}]], [{"role": "user", "content": "q"}]),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read_as_chat_apis_have_it(form: str) -> None:
    """
    As values and as JSON.
    """
    value, expected = FORMS[form]

    assert expected == chat_messages(value)
    if isinstance(value, (list, dict)) and form != "image of bytes":
        assert expected == chat_messages(json.dumps(value))
        assert expected == chat_messages({"messages": value} if isinstance(value, list) else value)


ODD: list[Any] = [None, 1, True, "", "x", "{", [], {}, [None], [[]], {"a": None}, b"x", float("nan")]


@pytest.mark.parametrize("value", ODD, ids=repr)
@pytest.mark.parametrize("name", ["role", "content", "parts", "tool_calls", "function_call", "type", "name"])
def test_any_value_of_any_field_is_read(name: str, value: Any) -> None:
    """
    Nothing becomes the text `None`, and other messages stay.
    """
    good = {"role": "user", "content": "q"}
    for odd in (
        {"role": "assistant", name: value},
        {"role": "assistant", "parts": [{"type": "text", name: value}]},
    ):
        messages = chat_messages([good, odd, {"role": "user", "parts": [value]}])

        assert good == messages[0]
        assert '"None"' not in json.dumps(messages, default=repr)
        assert all(isinstance(one["role"], str) for one in messages)
