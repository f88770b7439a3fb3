"""Streamed responses of OpenAI clients: the user gets every chunk, the recording has the whole response."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

openai = pytest.importorskip("openai")

from integrations.models import QUESTION, serving  # noqa: E402
from integrations.specimen import COMPLETIONS, completed, only, pay, started  # noqa: E402

import mttp  # noqa: E402
from mttp.integrations import openai as integration  # noqa: E402

USAGE = {"include_usage": True}
TOKENS = {"return_token_ids": True}


@pytest.fixture
def client() -> Iterator[Any]:
    """Return a recorded client of a server on this machine."""
    with connected() as opened, mttp.instrument(opened):
        yield opened


@contextmanager
def connected() -> Iterator[Any]:
    """Return a client of a server on this machine."""
    with serving() as address, openai.OpenAI(base_url=address, api_key="none", max_retries=0) as opened:
        yield opened


@asynccontextmanager
async def asynchronous() -> AsyncIterator[Any]:
    """Return a recorded asynchronous client."""
    with serving() as address:
        async with openai.AsyncOpenAI(base_url=address, api_key="none", max_retries=0) as opened:
            with mttp.instrument(opened):
                yield opened


def stream(client: Any, model: str = "tiny", **more: Any) -> Any:
    """Send a request for a streamed response."""
    return client.chat.completions.create(model=model, messages=QUESTION, stream=True, **more)


def contents(pieces: Any) -> list[str]:
    """Return the texts of a chat's chunks."""
    return [choice.delta.content for piece in pieces for choice in piece.choices if choice.delta.content]


def test_a_stream_that_is_read_is_a_complete_response(session: mttp.Session, client: Any) -> None:
    """
    With model, finish reason and requested usage, and without a step of its own.
    """
    with mttp.episode(), mttp.step():
        assert ["It is", " 4"] == contents(stream(client, stream_options=USAGE))

    (step,) = only(session).steps
    (call,) = step.calls
    assert ("tiny-2026", "chatcmpl-1", ("stop",), 11, 2, None) == (
        call.response_model,
        call.id,
        call.finish_reasons,
        call.input_tokens,
        call.output_tokens,
        call.error_type,
    )
    assert {} == dict(session.stats.faults)


def test_the_first_chunk_is_timed(session: mttp.Session, client: Any) -> None:
    """
    From the request on; a response that is not streamed has no such time.
    """
    with mttp.episode(), mttp.step():
        contents(stream(client))
        client.chat.completions.create(model="tiny", messages=QUESTION)

    streamed, whole = only(session).steps[0].calls
    duration = (streamed.end_time - streamed.start_time) / 1e9
    assert 0 < streamed.time_to_first_chunk <= duration
    assert whole.time_to_first_chunk is None


def test_usage_that_was_not_asked_for_is_absent(session: mttp.Session, client: Any) -> None:
    """
    The request is not changed, and no numbers are estimated.
    """
    with mttp.episode(), mttp.step():
        contents(stream(client))

    (call,) = only(session).steps[0].calls
    assert (None, None, ("stop",)) == (call.input_tokens, call.output_tokens, call.finish_reasons)


def test_tokens_of_all_chunks_are_one_block(session: mttp.Session, client: Any) -> None:
    """
    With their log probabilities, and the prompt's ids from the first chunk.
    """
    with mttp.episode(), mttp.step():
        contents(stream(client, logprobs=True, extra_body=TOKENS))

    tokens = only(session).steps[0].tokens
    assert tokens is not None
    assert ([7, 8], [1, 2, 3], [-0.25, -0.5]) == (
        tokens.ids.tolist(),
        tokens.prompt_ids.tolist(),
        tokens.logprobs.tolist(),
    )


def test_a_streamed_text_completion(session: mttp.Session, client: Any) -> None:
    """
    Its log probabilities and prompt ids have another form.
    """
    with mttp.episode():
        answer = client.completions.create(
            model="tiny", prompt="2+2=", stream=True, logprobs=1, extra_body=TOKENS
        )
        assert "It is 4" == "".join(piece.choices[0].text for piece in answer)

    (step,) = only(session).steps
    assert ("2+2=", "It is 4", "text_completion") == (step.observation, step.action, step.calls[0].operation)
    assert ([7, 8], [1, 2, 3], [-0.25, -0.5]) == (
        step.tokens.ids.tolist(),
        step.tokens.prompt_ids.tolist(),
        step.tokens.logprobs.tolist(),
    )


@pytest.mark.parametrize("streamed", [False, True])
def test_the_specimen(session: mttp.Session, client: Any, streamed: bool) -> None:
    """
    The shared completions read back, streamed or not.
    """
    for number, asked in enumerate(COMPLETIONS):
        with mttp.episode() as episode:
            answer = client.completions.create(
                model=f"specimen-{number}", prompt=asked.prompt, stream=streamed, extra_body=TOKENS
            )
            choices = [piece.choices[0] for piece in (answer if streamed else [answer])]
            text = "".join(choice.text for choice in choices)
            episode.reward(pay(asked.prompt, text))
            ended = choices[-1].finish_reason == "stop"
            episode.end(terminated=ended, truncated=not ended)

    assert list(COMPLETIONS) == [completed(episode) for episode in started(session)]


def test_outside_a_step_a_stream_is_a_step_until_its_end(session: mttp.Session, client: Any) -> None:
    """
    Its action is the assembled message, and it is not current while the stream is read.
    """
    with mttp.episode():
        pieces = stream(client)
        assert not mttp.current_step()
        contents(pieces)

    (step,) = only(session).steps
    assert {"role": "assistant", "content": "It is 4"} == step.action
    assert only(session).complete


def test_chunks_of_tool_calls_are_assembled(session: mttp.Session, client: Any) -> None:
    """
    As in a message that is not streamed.
    """
    with mttp.episode():
        list(stream(client, "talker"))

    function = {"name": "add", "arguments": '{"a": 2}'}
    assert [{"id": "call-1", "type": "function", "function": function}] == only(session).steps[0].action[
        "tool_calls"
    ]


@pytest.mark.parametrize("leave", ["close", "with", "break"])
def test_a_stream_that_is_left_is_recorded_as_far_as_it_was_read(
    session: mttp.Session, client: Any, leave: str
) -> None:
    """
    Closed, or abandoned until its step ends: it has no finish reason.
    """
    with mttp.episode(), mttp.step():
        pieces = stream(client, logprobs=True, extra_body=TOKENS)
        if leave == "with":
            with pieces:
                next(pieces), next(pieces)
        else:
            next(pieces), next(pieces)
        if leave == "close":
            pieces.close()

    (step,) = only(session).steps
    assert ([7], (), None) == (
        step.tokens.ids.tolist(),
        step.calls[0].finish_reasons,
        step.calls[0].error_type,
    )
    assert (True, {}) == (only(session).complete, dict(session.stats.faults))


def test_an_unread_stream_ends_with_its_episode(session: mttp.Session, client: Any) -> None:
    """
    Only its prompt is recorded.
    """
    with mttp.episode():
        pieces = stream(client)

    (step,) = only(session).steps
    assert (QUESTION, None, 1, True) == (
        step.observation,
        step.action,
        len(step.calls),
        only(session).complete,
    )
    assert ["It is", " 4"] == contents(pieces)
    assert {} == dict(session.stats.faults)


def test_a_stream_that_breaks_ends_its_call_in_error(session: mttp.Session, client: Any) -> None:
    """
    The reader gets the exception after the received chunks.
    """
    with mttp.episode():
        pieces = stream(client, "breaks", extra_body=TOKENS)
        with pytest.raises(openai.APIError, match="out of memory"):
            list(pieces)

    (step,) = only(session).steps
    assert ("openai.APIError", "openai.APIError") == (step.error_type, step.calls[0].error_type)
    assert ("It is 4", [7, 8]) == (step.action["content"], step.tokens.ids.tolist())


def test_a_stream_that_never_begins_ends_its_call_in_error(session: mttp.Session, client: Any) -> None:
    """
    As a failed request without streaming.
    """
    with mttp.episode(), mttp.step(), pytest.raises(openai.BadRequestError):
        stream(client, "broken")

    assert "openai.BadRequestError" == only(session).steps[0].calls[0].error_type


def test_asynchronous_streams_at_once(session: mttp.Session) -> None:
    """
    Each is a step of its own, whichever way it is read.
    """

    async def read(client: Any) -> None:
        async for _ in await stream(client, stream_options=USAGE):
            await asyncio.sleep(0)

    async def leave(client: Any) -> None:
        async with await stream(client) as pieces:
            await anext(pieces)
            await anext(pieces)

    async def fail(client: Any) -> None:
        with pytest.raises(openai.APIError):
            async for _ in await stream(client, "breaks"):
                pass

    async def main() -> None:
        async with asynchronous() as client:
            with mttp.episode():
                await asyncio.gather(read(client), leave(client), fail(client))

    asyncio.run(main())

    steps = sorted(only(session).steps, key=lambda step: str(step.error_type) + step.action["content"])
    assert [
        ("It is", None, (), None),
        ("It is 4", None, ("stop",), 2),
        ("It is 4", "openai.APIError", (), None),
    ] == [
        (
            step.action["content"],
            step.error_type,
            step.calls[0].finish_reasons,
            step.calls[0].output_tokens,
        )
        for step in steps
    ]
    assert (True, {}) == (only(session).complete, dict(session.stats.faults))


def test_a_task_that_is_cancelled_in_a_stream_ends_its_call(session: mttp.Session) -> None:
    """
    The cancellation propagates.
    """

    async def main() -> None:
        async with asynchronous() as client:
            with mttp.episode():
                pieces = await stream(client, "hangs")
                await anext(pieces)
                reading = asyncio.ensure_future(anext(pieces))
                await asyncio.sleep(0)
                reading.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await reading
                assert mttp.current_episode()

    asyncio.run(main())

    (step,) = only(session).steps
    assert ({"role": "assistant", "content": ""}, 1) == (step.action, len(step.calls))
    assert (True, {}) == (only(session).complete, dict(session.stats.faults))


def test_the_library_s_own_stream_reader_is_recorded(session: mttp.Session, client: Any) -> None:
    """
    `chat.completions.stream` sends its request by `create`, and assembles the chunks itself.
    """
    with mttp.episode(), mttp.step():
        chats = [client.chat.completions, client.beta.chat.completions]  # versions have it here or there
        (reader, *_) = [chat.stream for chat in chats if hasattr(chat, "stream")]
        with reader(model="tiny", messages=QUESTION, stream_options=USAGE) as events:
            assert "It is 4" == events.get_final_completion().choices[0].message.content

    (call,) = only(session).steps[0].calls
    assert (("stop",), 2) == (call.finish_reasons, call.output_tokens)


def test_the_stream_is_the_library_s_own(session: mttp.Session, client: Any) -> None:
    """
    It keeps its class and its response.
    """
    with mttp.episode():
        pieces = stream(client)
        assert (openai.Stream, 200) == (type(pieces), pieces.response.status_code)
        assert 4 == len([*pieces])
        assert [] == [*pieces]


def test_an_error_in_a_listener_is_counted_and_the_chunks_arrive(
    session: mttp.Session, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An error in a hook costs only the recording.
    """
    monkeypatch.setattr(integration.ResponseAssembler, "add", lambda *_: 1 / 0)
    with mttp.episode(), mttp.step():
        assert ["It is", " 4"] == contents(stream(client))

    assert {"integration_error"} == set(session.stats.faults)
    assert 1 == len(only(session).steps[0].calls)


def official() -> Any:
    """Activate OpenTelemetry's own instrumentation."""
    return pytest.importorskip("opentelemetry.instrumentation.genai.openai").OpenAIInstrumentor()


def test_tokens_of_the_official_instrumentation_s_stream_are_recorded(session: mttp.Session) -> None:
    """
    Its span is the call, also inside its stream wrapper.
    """
    theirs = official()
    theirs.instrument()
    try:
        with connected() as client, mttp.instrument(client), mttp.episode(), mttp.step():
            contents(stream(client, logprobs=True, extra_body=TOKENS))
    finally:
        theirs.uninstrument()

    (step,) = only(session).steps
    assert ([7, 8], 1) == (step.tokens.ids.tolist(), len(step.calls))


def test_the_official_instrumentation_may_come_later(session: mttp.Session, client: Any) -> None:
    """
    A client that is already recorded does not call through it, so that mttp records the call.
    """
    theirs = official()
    theirs.instrument()
    try:
        with mttp.episode(), mttp.step():
            contents(stream(client))
    finally:
        theirs.uninstrument()

    assert 1 == len(only(session).steps[0].calls)
