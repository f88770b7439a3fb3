"""OpenAI clients: requests within a step, and token ids from the server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, patch

import pydantic
import pytest

openai = pytest.importorskip("openai")

from integrations.models import QUESTION, serving  # noqa: E402
from integrations.specimen import only  # noqa: E402

import mttp  # noqa: E402
from mttp.errors import InstrumentError  # noqa: E402


@pytest.fixture
def client() -> Any:
    """Return a client of a server on this machine."""
    with serving() as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as opened:
        yield opened


def ask(client: Any, **more: Any) -> Any:
    """Send a request."""
    return client.chat.completions.create(model="tiny", messages=QUESTION, **more)


def test_a_call_within_a_step_is_a_model_call(session: mttp.Session, client: Any) -> None:
    """
    With parameters, model, finish reason and usage.
    """
    with mttp.instrument(client), mttp.episode(), mttp.step():
        answer = ask(client, temperature=0.5, max_completion_tokens=8)

    assert "4" == answer.choices[0].message.content
    (call,) = only(session).steps[0].calls
    assert ("chat", "tiny", "openai") == (call.operation, call.name, call.provider)
    assert {"temperature": 0.5, "max_tokens": 8} == call.parameters
    assert ("tiny-2026", "chatcmpl-1", ("stop",), 11, 2) == (
        call.response_model,
        call.id,
        call.finish_reasons,
        call.input_tokens,
        call.output_tokens,
    )


def test_token_ids_and_log_probabilities_are_the_step_s(session: mttp.Session, client: Any) -> None:
    """
    Where the server returns them, as vLLM does on request.
    """
    with mttp.instrument(client), mttp.episode(), mttp.step():
        ask(client, logprobs=True, extra_body={"return_token_ids": True})

    tokens = only(session).steps[0].tokens
    assert tokens is not None
    assert ([7, 8], [1, 2, 3], [-0.25, -0.5]) == (
        tokens.ids.tolist(),
        tokens.prompt_ids.tolist(),
        tokens.logprobs.tolist(),
    )


def test_a_completion_of_text_is_a_call_too(session: mttp.Session, client: Any) -> None:
    """
    Its log probabilities have another form.
    """
    with mttp.instrument(client), mttp.episode(), mttp.step():
        client.completions.create(model="tiny", prompt="2+2=", extra_body={"return_token_ids": True})

    (step,) = only(session).steps
    assert "text_completion" == step.calls[0].operation
    assert [-0.125, -0.0625] == step.tokens.logprobs.tolist()


def test_a_call_outside_a_step_is_a_step(session: mttp.Session, client: Any) -> None:
    """
    The messages are the observation, and the response is the action.
    """
    with mttp.instrument(client), mttp.episode():
        ask(client)

    (step,) = only(session).steps
    assert QUESTION == step.observation
    assert {"role": "assistant", "content": "4"} == step.action
    assert 1 == len(step.calls)


def test_an_answer_that_is_parsed_is_a_call_too(
    session: mttp.Session, client: Any, recwarn: pytest.WarningsRecorder
) -> None:
    """
    Its action is the message as received.
    """
    if not hasattr(client.chat.completions, "parse"):
        pytest.skip("this version parses elsewhere")

    class Sum(pydantic.RootModel[int]):
        """The schema of a parsed response."""

    with mttp.instrument(client), mttp.episode():
        answer = client.chat.completions.parse(model="tiny", messages=QUESTION, response_format=Sum)

    (step,) = only(session).steps
    assert Sum(4) == answer.choices[0].message.parsed
    assert ({"role": "assistant", "content": "4"}, 2) == (step.action, step.calls[0].output_tokens)
    assert [] == list(recwarn)


def test_texts_can_be_left_out(session: mttp.Session, client: Any) -> None:
    """
    By the options of every library.
    """
    with mttp.instrument(client, observations=False, actions=False), mttp.episode():
        ask(client)

    (step,) = only(session).steps
    assert (None, None) == (step.observation, step.action)


def test_outside_an_episode_nothing_is_recorded(session: mttp.Session, client: Any) -> None:
    """
    A client may serve other purposes.
    """
    with mttp.instrument(client):
        ask(client)

    assert [] == mttp.read(session).episodes


def test_a_call_that_fails_ends_in_error(session: mttp.Session, client: Any) -> None:
    """
    The client's exception propagates.
    """
    with mttp.instrument(client), mttp.episode(), mttp.step(), pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model="broken", messages=QUESTION)

    (call,) = only(session).steps[0].calls
    assert "openai.BadRequestError" == call.error_type


def test_an_asynchronous_client(session: mttp.Session) -> None:
    """
    Several requests at once, each in a step of its own.
    """

    async def play(client: Any) -> None:
        with mttp.episode():
            await asyncio.gather(ask(client), ask(client))

    async def main(address: str) -> None:
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as client:
            with mttp.instrument(client):
                await play(client)

    with serving() as address:
        asyncio.run(main(address))

    assert [1, 1] == [len(step.calls) for step in only(session).steps]


def test_all_clients(session: mttp.Session, client: Any) -> None:
    """
    `instrument()` records every client, and `detach` restores the library.
    """
    with mttp.instrument(), mttp.episode():
        ask(client)
    with mttp.episode():
        ask(client)

    assert [1, 0] == sorted((len(episode.steps) for episode in mttp.read(session)), reverse=True)


def test_a_client_is_recorded_once(session: mttp.Session, client: Any) -> None:
    """
    Also where it is instrumented twice, and together with all clients.
    """
    with mttp.instrument(), mttp.instrument(client), mttp.instrument(client), mttp.episode():
        ask(client)

    (step,) = only(session).steps
    assert 1 == len(step.calls)


def test_an_earlier_response_message_in_a_prompt(session: mttp.Session, client: Any) -> None:
    """
    A message object of an earlier response is that response, and is not recorded again.
    """
    with mttp.instrument(client), mttp.episode():
        said = ask(client).choices[0].message
        client.chat.completions.create(model="tiny", messages=[*QUESTION, said])

    first, second = only(session).steps
    assert (QUESTION, None) == (first.observation, second.observation)
    assert ((0, 1), (0, 2)) == (first.calls[0].history, second.calls[0].history)
    assert {} == dict(session.stats.faults)


def test_a_raw_response_is_recorded(session: mttp.Session, client: Any) -> None:
    """
    The user parses it as before.
    """
    with mttp.instrument(client), mttp.episode():
        raw = client.chat.completions.with_raw_response.create(model="tiny", messages=QUESTION)

    assert "4" == raw.parse().choices[0].message.content
    (step,) = only(session).steps
    assert ("4", 11) == (step.action["content"], step.calls[0].input_tokens)


def test_completions_that_the_official_instrumentation_does_not_record(
    session: mttp.Session, client: Any
) -> None:
    """
    It records chats only, so that text completions are recorded by mttp.
    """
    official = pytest.importorskip("opentelemetry.instrumentation.genai.openai").OpenAIInstrumentor()
    official.instrument()
    try:
        with mttp.instrument(client), mttp.episode():
            client.completions.create(model="tiny", prompt="2+2=")
    finally:
        official.uninstrument()

    assert [["tiny"]] == [[call.name for call in step.calls] for step in only(session).steps]


def test_the_official_instrumentation_records_the_call_itself(session: mttp.Session, client: Any) -> None:
    """
    The call is its span, and mttp adds to the step what was new, the answer and the tokens.
    """
    official = pytest.importorskip("opentelemetry.instrumentation.genai.openai").OpenAIInstrumentor()
    official.instrument()
    try:
        with mttp.instrument(client), mttp.episode(), mttp.step():
            ask(client, logprobs=True, extra_body={"return_token_ids": True})
    finally:
        official.uninstrument()

    (step,) = only(session).steps
    assert ([7, 8], 1) == (step.tokens.ids.tolist(), len(step.calls))
    assert (QUESTION, "4") == (step.observation, step.action["content"])


def test_what_is_no_client_is_refused(client: Any) -> None:
    """
    The message says what can be instrumented.
    """
    with pytest.raises(InstrumentError, match="Completions is not a client; instrument an OpenAI"):
        mttp.instrument(client.chat.completions)


SAID = SimpleNamespace(
    model="patched",
    id="1",
    usage=None,
    choices=[SimpleNamespace(finish_reason="stop", message={"role": "assistant", "content": "patched"})],
)


@pytest.mark.parametrize("is_library", [False, True])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_patched_class_is_called(
    session: mttp.Session, client: Any, is_library: bool, is_first: bool
) -> None:
    """
    A test that patches `Completions`, before or after instrumenting, sends nothing to the network.
    """
    kind = type(client.chat.completions)
    before = vars(kind)["create"]
    handle = mttp.instrument(None if is_library else client) if is_first else None
    with patch.object(kind, "create", return_value=SAID) as patched:
        handle = handle or mttp.instrument(None if is_library else client)
        with mttp.episode():
            assert SAID is ask(client)
            assert 1 == patched.call_count
    ask(client)
    handle.detach()

    assert ("create" in vars(client.chat.completions), before is vars(kind)["create"]) == (False, True)


def test_a_patched_class_of_an_asynchronous_client_is_called(session: mttp.Session) -> None:
    """
    An AsyncMock replaces the method that is awaited.
    """
    opened = openai.AsyncOpenAI(base_url="http://127.0.0.1:9", api_key="none", max_retries=0)
    kind = type(opened.chat.completions)

    async def play() -> Any:
        with mttp.episode():
            return await ask(opened)

    with mttp.instrument(opened), patch.object(kind, "create", new_callable=AsyncMock) as patched:
        patched.return_value = SAID
        assert SAID is asyncio.run(play())

    assert (1, "patched") == (patched.await_count, only(session).steps[0].action["content"])


def test_a_patch_that_outlasts_the_instrumentation_leaves_nothing_recorded(
    session: mttp.Session, client: Any
) -> None:
    """
    Our wrapper, which that patch restores, only calls the original, and the client can be instrumented again.
    """
    handle = mttp.instrument(client)
    with patch.object(client.chat.completions, "create", return_value=SAID):
        handle.detach()
    with mttp.episode():
        ask(client)
    with mttp.instrument(client) as again, mttp.episode():
        ask(client)

    assert again is not handle
    assert [0, 1] == [len(episode.steps) for episode in mttp.read(session).episodes]


@pytest.mark.parametrize("is_client_first", [False, True])
def test_a_client_and_its_library_are_released_in_any_order(
    session: mttp.Session, client: Any, is_client_first: bool
) -> None:
    """
    Each request is recorded once while one of them is attached.
    """
    handles = [mttp.instrument(client), mttp.instrument()]
    for handle in handles if is_client_first else reversed(handles):
        with mttp.episode():
            ask(client)
        handle.detach()
    with mttp.episode():
        ask(client)

    assert [1, 1, 0] == [len(episode.steps) for episode in mttp.read(session).episodes]


def test_every_choice_is_recorded(session: mttp.Session, client: Any) -> None:
    """
    With `n=2` the action is a list of both choices, and the call has both finish reasons.
    """
    with mttp.instrument(client), mttp.episode():
        ask(client, n=2)

    (step,) = only(session).steps
    assert ["4", "4"] == [message["content"] for message in step.action]
    assert (("stop", "stop"), ()) == (step.calls[0].finish_reasons, step.faults)


@pytest.mark.parametrize("is_stream", [False, True])
def test_tokens_of_several_choices_are_named_as_not_recorded(
    session: mttp.Session, client: Any, is_stream: bool
) -> None:
    """
    A step has one token block, so that a fault is recorded instead.
    """
    with mttp.instrument(client), mttp.episode():
        answer = ask(client, n=2, extra_body={"return_token_ids": True}, stream=is_stream)
        for _ in answer if is_stream else ():
            pass

    (step,) = only(session).steps
    assert (None, 2) == (step.tokens, len(step.action))
    assert ("tokens_unrecorded: 2 choices have token ids, a step has one block",) == step.faults
    assert {"tokens_unrecorded": 1} == dict(session.stats.faults)


@pytest.mark.parametrize("is_async", [False, True])
def test_messages_of_a_generator_reach_model_and_recording(
    session: mttp.Session, client: Any, is_async: bool
) -> None:
    """
    Both get all messages.
    """

    def messages() -> Iterator[Any]:
        yield {"role": "system", "content": "Add."}
        yield from QUESTION

    async def play() -> Any:
        async with openai.AsyncOpenAI(base_url=client.base_url, api_key="none") as opened:
            with mttp.instrument(opened):
                return await opened.chat.completions.create(model="counts", messages=messages())

    with mttp.instrument(client), mttp.episode():
        answer = (
            asyncio.run(play())
            if is_async
            else client.chat.completions.create(model="counts", messages=messages())
        )

    assert "2" == answer.choices[0].message.content
    (step,) = only(session).steps
    assert ["Add.", "2+2=?"] == [message["content"] for message in step.observation]


def test_what_a_generator_of_messages_raises_is_the_caller_s(session: mttp.Session, client: Any) -> None:
    """
    The call ends in error, and the exception propagates.
    """

    def messages() -> Iterator[Any]:
        yield from QUESTION
        raise LookupError("no more")

    with mttp.instrument(client), mttp.episode(), pytest.raises(LookupError, match="no more"):
        client.chat.completions.create(model="tiny", messages=messages())

    assert ["LookupError"] == [call.error_type for call in only(session).steps[0].calls]


def test_messages_of_a_generator_are_not_touched_where_nothing_is_recorded(client: Any) -> None:
    """
    Outside an episode the client gets the generator itself.
    """
    given = iter(QUESTION)
    with mttp.instrument(client), patch.object(type(client.chat.completions), "create") as patched:
        client.chat.completions.create(model="tiny", messages=given)

    assert given is patched.call_args.kwargs["messages"]


@pytest.mark.parametrize(("model", "raised"), [("page", None), ("garbled", ValueError)])
@pytest.mark.parametrize("is_raw", [False, True])
def test_a_response_that_is_not_a_completion_is_a_fault(
    session: mttp.Session, client: Any, model: str, raised: Any, is_raw: bool
) -> None:
    """
    For a body that is not JSON, the caller gets what the client returns.
    """
    with mttp.instrument(client), mttp.episode():
        asking = client.chat.completions.with_raw_response if is_raw else client.chat.completions
        if raised is not None and not is_raw:
            with pytest.raises(raised):
                asking.create(model=model, messages=QUESTION)
        else:
            answer = asking.create(model=model, messages=QUESTION)
            assert "<html>" in (answer.text if is_raw else answer)

    (step,) = only(session).steps
    assert 1 == len(step.calls)
    if raised is None or is_raw:
        assert ["answer_unrecorded"] == [fault.partition(":")[0] for fault in step.faults]
        assert {"answer_unrecorded": 1} == dict(session.stats.faults)
    else:
        assert step.calls[0].error_type == "json.decoder.JSONDecodeError"


def test_a_response_that_the_caller_reads_is_a_fault(session: mttp.Session, client: Any) -> None:
    """
    With `with_streaming_response` the caller gets the whole body; the call is recorded without it.
    """
    with (
        mttp.instrument(client),
        mttp.episode(),
        client.chat.completions.with_streaming_response.create(model="tiny", messages=QUESTION) as response,
    ):
        body = response.read()

    assert b"chatcmpl-1" in body
    (step,) = only(session).steps
    assert (["tiny"], 1) == ([call.name for call in step.calls], len(step.faults))
    assert step.faults[0].startswith("answer_unrecorded: ")


@pytest.mark.parametrize("is_raw", [False, True])
def test_a_stream_of_several_choices_is_recorded(session: mttp.Session, client: Any, is_raw: bool) -> None:
    """
    Streamed, raw or not: each choice is assembled separately.
    """
    with mttp.instrument(client), mttp.episode():
        asking = client.chat.completions.with_raw_response if is_raw else client.chat.completions
        found = asking.create(model="tiny", messages=QUESTION, n=2, stream=True)
        pieces = list(found.parse() if is_raw else found)

    assert pieces
    (step,) = only(session).steps
    assert ["It is 4", "It is 4"] == [message["content"] for message in step.action]
    assert ("stop", "stop") == step.calls[0].finish_reasons
