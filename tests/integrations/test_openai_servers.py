"""Answers of other servers than OpenAI's: odd chunks and types are recorded, and the program gets them."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

openai = pytest.importorskip("openai")
httpx = pytest.importorskip("httpx")

from pydantic import BaseModel  # noqa: E402

import mttp  # noqa: E402

QUESTION = [{"role": "user", "content": "q"}]
HEAD = {"id": "1", "created": 1, "model": "m"}


class Answer(BaseModel):
    """A type that a program asks for."""

    total: int


def whole(message: Any, **more: Any) -> dict[str, Any]:
    """Return a response that is not streamed."""
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return {**HEAD, "object": "chat.completion", "choices": [choice], **more}


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """Return a chunk with one choice."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**HEAD, "object": "chat.completion.chunk", "choices": [choice], **more}


def reply(answers: Sequence[Any], *, is_stream: bool) -> Any:
    """Return the server's response."""
    if not is_stream:
        return httpx.Response(200, json=answers[0])
    events = [*map(json.dumps, answers), "[DONE]"]
    body = "".join(f"data: {event}\n\n" for event in events).encode()
    return httpx.Response(200, content=body, headers={"content-type": "text/event-stream"})


class Recorded:
    """The recording of one request, and the chunks that the program got."""

    def __init__(self, *answers: Any, method: str = "create", raw: bool = False, **options: Any) -> None:
        is_stream = bool(options.get("stream"))
        transport = httpx.MockTransport(lambda _: reply(answers, is_stream=is_stream))
        client = openai.OpenAI(
            base_url="http://here/v1", api_key="-", http_client=httpx.Client(transport=transport)
        )
        session = mttp.configure("memory://", provenance=False)
        with session, mttp.instrument(client), mttp.episode():
            asking = client.chat.completions.with_raw_response if raw else client.chat.completions
            response = getattr(asking, method)(model="m", messages=QUESTION, **options)
            response = response.parse() if raw else response
            self.chunks = list(response) if is_stream else [response]
        (self.step,) = mttp.read(session).episodes[0].steps
        self.faults = dict(session.stats.faults)
        self.action = self.step.action


def streamed(*chunks: Any, **options: Any) -> Recorded:
    """Record a streamed answer."""
    return Recorded(*chunks, stream=True, **options)


def call(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    """Return a tool call, or its fragment."""
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def rest(arguments: str, **more: Any) -> dict[str, Any]:
    """Return a later fragment of a tool call."""
    return {**more, "function": {"arguments": arguments}}


A, B = '{"q": "A"}', '{"q": "B"}'
PARALLEL = {
    "index 0 and two ids, in two chunks": [
        [call("f", A, index=0, id="a")],
        [call("f", B, index=0, id="b")],
    ],
    "index 0 and two ids, in one chunk": [[call("f", A, index=0, id="a"), call("f", B, index=0, id="b")]],
    "index 0 and two ids, in fragments without id": [
        [call("f", "", index=0, id="a")],
        [rest(A, index=0)],
        [call("f", "", index=0, id="b")],
        [rest(B[:4], index=0)],
        [rest(B[4:], index=0)],
    ],
    "index 0, with the id in each fragment, by turns": [
        [call("f", A[:3], index=0, id="a"), call("f", B[:3], index=0, id="b")],
        [rest(A[3:], index=0, id="a"), rest(B[3:], index=0, id="b")],
    ],
    "no index": [[call("f", A, id="a")], [call("f", B, id="b")]],
    "no index, in one chunk": [[call("f", A, id="a"), call("f", B, id="b")]],
    "no index, in fragments without id": [
        [call("f", "", id="a")],
        [rest(A)],
        [call("f", "", id="b")],
        [rest(B)],
    ],
    "names that are repeated": [
        [call("f", A[:3], index=0, id="a")],
        [call("f", A[3:], index=0)],
        [call("f", "", index=0)],
        [call("f", B[:3], index=1, id="b")],
        [call("f", B[3:], index=1, id="b")],
    ],
    "an id that comes late": [
        [call("f", "", index=0)],
        [rest(A, index=0, id="a")],
        [call("f", B, index=1)],
        [rest("", index=1, id="b")],
    ],
    "a call that is sent once more at its end": [
        [call("f", A[:3], index=0, id="a")],
        [rest(A[3:], index=0)],
        [call("f", A, index=0, id="a"), call("f", B, index=1, id="b")],
    ],
    "an index only later": [[call("f", "", id="a")], [rest(A, index=0)], [call("f", B, index=1, id="b")]],
    "the second call first": [[call("f", B, index=1, id="b")], [call("f", A, index=0, id="a")]],
}


@pytest.mark.parametrize("form", PARALLEL)
def test_parallel_tool_calls_are_told_apart(form: str) -> None:
    """
    By id, else by index, else by their order; the message is that of an answer that is not streamed.
    """
    expected = {"role": "assistant", "tool_calls": [call("f", A, id="a"), call("f", B, id="b")]}
    deltas = [{"role": "assistant", "tool_calls": fragments} for fragments in PARALLEL[form]]
    recorded = streamed(*map(chunk, deltas), chunk({}, "tool_calls"))

    assert (expected, expected) == (recorded.action, Recorded(whole(expected)).action)
    assert {} == recorded.faults


def test_calls_without_id_and_index_are_told_apart() -> None:
    """
    A name after complete arguments begins a call.
    """
    recorded = streamed(*(chunk({"tool_calls": [call("f", text)]}) for text in (A, B)))

    assert {"tool_calls": [call("f", A), call("f", B)]} == recorded.action


def test_a_name_in_fragments_is_one_name() -> None:
    """
    One that is repeated is one, too.
    """
    fragments = [
        call("se", "", index=0, id="a"),
        {"index": 0, "function": {"name": "arch"}},
        rest(A, index=0),
    ]
    recorded = streamed(*(chunk({"tool_calls": [fragment]}) for fragment in fragments))

    assert {"tool_calls": [call("search", A, id="a")]} == recorded.action


THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm so"}]}
IMAGE = {"type": "image_url", "image_url": {"url": "https://here/a.png"}}
MESSAGES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "parts": (
        {"role": "assistant", "content": [THOUGHT, {"type": "text", "text": "4 is it"}, IMAGE]},
        [
            {"role": "assistant", "content": ""},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm "}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "so"}]}]},
            {"content": "4 "},
            {"content": [{"type": "text", "text": "is it"}]},
            {"content": [IMAGE]},
        ],
    ),
    "reasoning": (
        {"role": "assistant", "reasoning_content": "hm so", "content": "4", "refusal": "no."},
        [
            {"role": "assistant", "reasoning_content": "hm "},
            {"role": "assistant", "reasoning_content": "so", "content": None},
            {"role": "assistant", "content": "4"},
            {"refusal": "no"},
            {"refusal": "."},
        ],
    ),
    "a function call of earlier versions": (
        {"role": "assistant", "function_call": {"name": "f", "arguments": A}},
        [
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
            {"function_call": {"arguments": A[:5]}},
            {"function_call": {"arguments": A[5:]}},
        ],
    ),
    "arguments that are an object": (
        {"role": "assistant", "tool_calls": [call("f", {"q": 1, "none": None}, id="a")]},
        [{"role": "assistant", "tool_calls": [call("f", {"q": 1, "none": None}, id="a", index=0)]}],
    ),
    "an object after an empty text": (
        {"role": "assistant", "tool_calls": [call("f", {"q": 1}, id="a")]},
        [
            {"role": "assistant", "tool_calls": [call("f", "", id="a", index=0)]},
            {"tool_calls": [{"index": 0, "function": {"arguments": {"q": 1}}}]},
        ],
    ),
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("form", MESSAGES)
def test_a_message_of_any_form_is_recorded_streamed_or_not(form: str, strict: bool) -> None:
    """
    No warning reaches the program, and where warnings are errors the recording is the same.
    """
    message, deltas = MESSAGES[form]
    with warnings.catch_warnings(record=not strict) as caught:
        warnings.simplefilter("error" if strict else "always")
        records = [
            Recorded(whole(message)),
            streamed(*map(chunk, deltas)),
            Recorded(whole(message), raw=True),
        ]
        records.append(streamed(*map(chunk, deltas), raw=True))

    assert [message] * 4 == [record.action for record in records]
    assert [{}] * 4 == [record.faults for record in records]
    assert not caught


def test_an_answer_that_is_parsed_is_recorded_as_it_came() -> None:
    """
    Also the arguments of its tool calls.
    """
    if not hasattr(openai.resources.chat.completions.Completions, "parse"):
        pytest.skip("this version of openai has no `parse`")
    tool = openai.pydantic_function_tool(Answer, name="f")
    message = {
        "role": "assistant",
        "content": '{"total": 4}',
        "tool_calls": [call("f", '{"total": 4}', id="a")],
    }
    recorded = Recorded(whole(message), method="parse", response_format=Answer, tools=[tool])

    assert Answer(total=4) == recorded.chunks[0].choices[0].message.parsed
    assert (message, {}) == (recorded.action, recorded.faults)


ODD: list[dict[str, Any]] = [
    {**HEAD, "choices": []},
    {**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}},
    {**HEAD, "choices": None},
    HEAD,
    chunk(None),
    {**HEAD, "choices": [{"index": 0}]},
    {**HEAD, "choices": [{"delta": {}}]},
    {**HEAD, "choices": [None, 3, "x"]},
    {**HEAD, "choices": [{"index": "0", "delta": {"tool_calls": None}}]},
    chunk({"tool_calls": [None, "x"], "content": None}),
    chunk({"tool_calls": {}}),
    chunk({}, error=None),
    chunk({"role": "assistant"}),
    chunk({}, None, usage={"prompt_tokens": 3}),
    {"choices": 3},
    chunk("x"),
    chunk(["x"]),
    {**HEAD, "choices": [{"index": 0, "delta": {}, "token_ids": 3, "logprobs": [1]}]},
    {**HEAD, "choices": [{"index": 0, "delta": {}, "logprobs": {"content": 3}}]},
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("place", range(3))
def test_an_odd_chunk_costs_nothing_but_itself(odd: dict[str, Any], place: int) -> None:
    """
    The program gets it as it would without recording; the answer is recorded without it.
    """
    chunks = [chunk({"role": "assistant", "content": "It "}), chunk({"content": "is 4"}, "stop")]
    chunks.insert(place, odd)
    recorded = streamed(*chunks)

    assert 3 == len(recorded.chunks)
    assert "It is 4" == recorded.action["content"]
    assert ("stop",) == recorded.step.calls[0].finish_reasons
    assert "integration_error" not in recorded.faults


def test_choices_that_alternate_are_assembled_apart() -> None:
    """
    Each with its own tool calls and finish reason.
    """
    pieces = [
        {"index": place, "delta": delta}
        for first, second in (("a", "x"), ("b", "y"))
        for place, delta in ((1, {"content": first}), (0, {"content": second}))
    ]
    ends = [
        {"index": place, "delta": {}, "finish_reason": reason}
        for place, reason in ((1, "length"), (0, "stop"))
    ]
    recorded = streamed(*({**HEAD, "choices": [piece]} for piece in pieces), {**HEAD, "choices": ends}, n=2)

    assert [{"content": "xy"}, {"content": "ab"}] == recorded.action
    assert ("stop", "length") == recorded.step.calls[0].finish_reasons


def test_usage_and_finish_reason_may_come_at_any_time() -> None:
    """
    And may be repeated; the last usage counts.
    """
    usages = [{"prompt_tokens": 3, "completion_tokens": count, "total_tokens": 3 + count} for count in (1, 2)]
    recorded = streamed(
        chunk({"content": "4"}, usage=usages[0]),
        chunk({}, "stop"),
        chunk({}, "stop", usage=usages[1]),
        chunk({"content": ""}),
    )

    (made,) = recorded.step.calls
    assert (("stop",), 3, 2, "4") == (
        made.finish_reasons,
        made.input_tokens,
        made.output_tokens,
        recorded.action["content"],
    )


def test_a_cancelled_stream_is_recorded_as_far_as_it_came() -> None:
    """
    With what had arrived.
    """

    async def body() -> AsyncIterator[bytes]:
        yield f"data: {json.dumps(chunk({'content': 'It is'}))}\n\n".encode()
        await asyncio.Event().wait()

    async def run() -> None:
        headers = {"content-type": "text/event-stream"}
        transport = httpx.MockTransport(lambda _: httpx.Response(200, content=body(), headers=headers))
        http = httpx.AsyncClient(transport=transport)
        client = openai.AsyncOpenAI(base_url="http://here/v1", api_key="-", http_client=http)
        arrived = asyncio.Event()

        async def read() -> None:
            with mttp.episode():
                async for _ in await client.chat.completions.create(
                    model="m", messages=QUESTION, stream=True
                ):
                    arrived.set()

        with mttp.instrument(client):
            task = asyncio.create_task(read())
            await arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    with mttp.configure("memory://", provenance=False) as session:
        asyncio.run(run())
    (episode,) = mttp.read(session).episodes
    assert "It is" == episode.steps[0].action["content"]
    assert {} == session.stats.faults


# Any calls, cut anywhere.

NAMES = st.sampled_from(["f", "search", "add"])
ARGUMENTS = st.dictionaries(st.text(max_size=3), st.text(max_size=5) | st.integers(0, 9), max_size=3).map(
    json.dumps
)
STYLES = ("index", "index 0", "no index", "id each time", "name each time", "by turns")


def cut(text: str, places: Sequence[int]) -> list[str]:
    """Cut a text at places."""
    ends = sorted({place % (len(text) + 1) for place in places})
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def fragments_of(position: int, name: str, pieces: Sequence[str], style: str) -> Iterator[dict[str, Any]]:
    """Yield the fragments of a call in a server's style."""
    index = {} if style == "no index" else {"index": 0 if style in ("index 0", "id each time") else position}
    identity = {"id": f"call-{position}"}
    yield call(name, pieces[0], **index, **identity)
    for piece in pieces[1:]:
        later = rest(piece, **index, **(identity if style == "id each time" else {}))
        if style == "name each time":
            later["function"]["name"] = name
        yield later


@settings(max_examples=60, deadline=None)
@given(
    calls=st.lists(
        st.tuples(NAMES, ARGUMENTS, st.lists(st.integers(0, 50), max_size=4)), min_size=1, max_size=4
    ),
    style=st.sampled_from(STYLES),
    sizes=st.lists(st.integers(1, 3), max_size=12),
    content=st.text(max_size=8),
)
def test_any_calls_in_any_fragments_are_the_whole(
    calls: Sequence[tuple[str, str, Sequence[int]]], style: str, sizes: Sequence[int], content: str
) -> None:
    """
    However they are cut, styled, and gathered in chunks.
    """
    cuts = [
        [*fragments_of(position, name, cut(arguments, places), style)]
        for position, (name, arguments, places) in enumerate(calls)
    ]
    flat = [fragment for fragments in cuts for fragment in fragments]
    if style == "by turns":
        longest = max(map(len, cuts))
        flat = [fragments[turn] for turn in range(longest) for fragments in cuts if turn < len(fragments)]
    deltas = [{"role": "assistant", "content": content}]
    rest_of = iter(flat)
    for size in [*sizes, *[1] * len(flat)]:
        deltas.append({"tool_calls": [*islice(rest_of, size)]})
    message = {
        "role": "assistant",
        "content": content,
        "tool_calls": [
            call(name, arguments, id=f"call-{position}")
            for position, (name, arguments, _) in enumerate(calls)
        ],
    }

    recorded = streamed(*map(chunk, deltas), chunk({}, "tool_calls"))

    assert (message, {}) == (recorded.action, recorded.faults)
    assert message == Recorded(whole(message)).action
