"""Agents with tools on an OpenAI client: what was said, done and asked is in each step, once."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

openai = pytest.importorskip("openai")

from integrations.adders import Answer, Server, adding, question  # noqa: E402
from integrations.specimen import only  # noqa: E402

import mttp  # noqa: E402

TOOLS: list[Any] = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
MORE: dict[str, Any] = {"logprobs": True, "extra_body": {"return_token_ids": True}}
ASKED = question(3, 4)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server whose model adds with a tool."""
    with adding() as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """A recorded client of that server."""
    with openai.OpenAI(base_url=server.url, api_key="-", max_retries=0) as opened, mttp.instrument(opened):
        yield opened


class Chat:
    """A conversation over chat completions."""

    def __init__(self, client: Any, asked: str, method: str = "create", **more: Any) -> None:
        self.client, self.method, self.more = client, method, more
        self.messages: list[Any] = [{"role": "user", "content": asked}]

    def ask(self) -> Any:
        """Send what was said so far, and return the calls and the text of the answer."""
        chat, more = self.client.chat.completions, {**MORE, **self.more}
        chat = chat if hasattr(chat, self.method) else self.client.beta.chat.completions  # earlier versions
        if self.method == "stream":
            with chat.stream(model="adder", messages=self.messages, **more) as stream:
                message = stream.get_final_completion().choices[0].message
        else:
            reply = getattr(chat, self.method)(model="adder", messages=self.messages, **more)
            message = reply.choices[0].message
        self.messages.append(message)
        return [
            (call.function.name, call.id, call.function.arguments) for call in message.tool_calls or ()
        ], message.content

    def answer(self, id: str, result: str) -> None:
        """Add a tool's answer."""
        self.messages.append({"role": "tool", "tool_call_id": id, "content": result})


class Responses(Chat):
    """A conversation over the Responses API."""

    def ask(self) -> Any:
        """Send what was said so far, and return the calls and the text of the answer."""
        api, more = self.client.responses, {"include": ["message.output_text.logprobs"], **self.more}
        if self.method == "stream":
            with api.stream(model="adder", input=self.messages, **more) as stream:
                reply = stream.get_final_response()
        else:
            reply = getattr(api, self.method)(model="adder", input=self.messages, **more)
        self.messages += reply.output
        calls = [item for item in reply.output if item.type == "function_call"]
        return [(call.name, call.call_id, call.arguments) for call in calls], reply.output_text

    def answer(self, id: str, result: str) -> None:
        """Add a tool's answer."""
        self.messages.append({"type": "function_call_output", "call_id": id, "output": result})


def run_tool(arguments: str) -> str:
    """Run the tool."""
    return str(sum(json.loads(arguments).values()))


def play(chat: Any, *, has_steps: bool = True, task: str = "t1") -> None:
    """Play an episode: requests and their tool calls until there is none."""
    with mttp.episode(env="calculator", task=task) as episode:
        calls: Any = [()]
        while calls:
            with episode.step() if has_steps else nullcontext(episode) as turn:
                calls, _ = chat.ask()
                for name, id, arguments in calls:
                    with turn.tool_call(name, id=id, arguments=arguments) as tool:
                        tool.result(result := run_tool(arguments))
                    chat.answer(id, result)


def expected(asked: str, answers: list[Answer]) -> list[Any]:
    """Return what the steps of an episode say, by the server's log."""
    call, said = answers
    result = {"role": "tool", "tool_call_id": call.call_id, "content": said.text.split()[2]}
    function = {"name": "add", "arguments": json.dumps(call.arguments)}
    return [
        ([{"role": "user", "content": asked}], None, [(call.call_id, function)], call.reasoning),
        ([result], said.text, [], None),
    ]


def said(step: mttp.Step) -> Any:
    """Return what a step says."""
    action = step.action
    calls = [(call["id"], call["function"]) for call in action.get("tool_calls", ())]
    return step.observation, action.get("content") or None, calls, action.get("reasoning_content")


@pytest.mark.parametrize("has_steps", [True, False])
@pytest.mark.parametrize("kind", [Chat, Responses])
@pytest.mark.parametrize("method", ["create", "parse", "stream"])
def test_each_step_has_what_was_new_and_what_was_answered(
    session: mttp.Session, client: Any, server: Server, kind: Any, method: str, has_steps: bool
) -> None:
    """
    With the tool calls, their results, usage and model; a request without a step is a step.
    """
    if kind is Responses and method != "create" and openai.VERSION.startswith("1.66."):
        pytest.skip("this version has no such method, or one that fails with a newer pydantic")
    server.log.clear()

    play(kind(client, ASKED, method), has_steps=has_steps)

    episode = only(session)
    assert expected(ASKED, server.log[ASKED]) == [said(step) for step in episode.steps]
    (asking, adding), (answering,) = (step.calls for step in episode.steps)
    assert ("add", "call-7", {"a": 3, "b": 4}, "7") == (
        adding.name,
        adding.id,
        adding.arguments,
        adding.result,
    )
    assert ["adder-1"] * 2 == [asking.response_model, answering.response_model]
    assert ({}, ()) == (dict(session.stats.faults), episode.faults)
    assert asking.start_time <= asking.end_time <= adding.start_time <= answering.start_time


@pytest.mark.parametrize("method", ["create", "stream"])
def test_tokens_are_those_of_the_answer(
    session: mttp.Session, client: Any, server: Server, method: str
) -> None:
    """
    Their ids, log probabilities and texts, where the server gives them.
    """
    server.log.clear()
    play(Chat(client, ASKED, method))
    play(Responses(client, ASKED))

    first, second = mttp.read(session)
    answers = server.log[ASKED]
    steps = [*first.steps, second.steps[1]]
    assert [(one.ids, one.logprobs, tuple(one.texts)) for one in (*answers[:2], answers[3])] == [
        (step.tokens.ids.tolist(), step.tokens.logprobs.tolist(), step.tokens.texts) for step in steps
    ]


def test_log_probabilities_need_no_token_ids(session: mttp.Session, client: Any, server: Server) -> None:
    """
    As OpenAI's own server returns them.
    """
    server.log.clear()
    play(Chat(client, ASKED, extra_body={}))

    tokens = only(session).steps[1].tokens
    answer = server.log[ASKED][1]
    assert (None, len(answer.ids), answer.logprobs, tuple(answer.texts)) == (
        tokens.ids,
        tokens.count,
        tokens.logprobs.tolist(),
        tokens.texts,
    )


def test_usage_of_the_responses_api(session: mttp.Session, client: Any) -> None:
    """
    With the tokens of reasoning apart.
    """
    play(Responses(client, ASKED))

    (call, _), _ = (step.calls for step in only(session).steps)
    assert ("chat", 9, 4, 3, "resp") == (
        call.operation,
        call.input_tokens,
        call.output_tokens,
        call.reasoning_tokens,
        call.id,
    )


def test_instructions_are_the_first_message(session: mttp.Session, client: Any) -> None:
    """
    Once, although each request has them; what the server keeps is not sent again.
    """
    with mttp.episode():
        first = client.responses.create(model="adder", instructions="Add.", input=ASKED)
        result = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "7"}
        more = {"instructions": "Add.", "previous_response_id": first.id}
        client.responses.create(model="adder", input=[{"role": "user", "content": "And?"}, result], **more)

    steps = only(session).steps
    assert [["system", "user"], ["user", "tool"]] == [
        [message["role"] for message in step.observation] for step in steps
    ]
    assert [(0, 2), (0, 5)] == [step.calls[0].history for step in steps]


def test_messages_are_written_once(tmp_path: Path, client: Any) -> None:
    """
    However many requests send them again.
    """
    with mttp.configure(f"file://{tmp_path}/run.jsonl"):
        chat = Chat(client, "A word: heliotrope. What is 3 + 4?")
        play(chat)
        chat.messages = [json.loads(json.dumps(message, default=dict)) for message in chat.messages]
        with mttp.episode(), mttp.step():
            for count in (3, 4):
                client.chat.completions.create(model="adder", messages=chat.messages[:count])

    assert 2 == (tmp_path / "run.jsonl").read_text().count("heliotrope")


@pytest.mark.parametrize("is_first", [True, False])
def test_what_the_program_sets_stays(session: mttp.Session, client: Any, is_first: bool) -> None:
    """
    Before or after the request, whose messages are then those of the call only.
    """
    with mttp.episode(), mttp.step() as step:
        for is_set in (is_first, not is_first):
            if is_set:
                step.observation("a state")
                step.action("a move")
            else:
                client.chat.completions.create(model="adder", messages=[{"role": "user", "content": ASKED}])

    (found,) = only(session).steps
    assert ("a state", "a move") == (found.observation, found.action)
    assert (ASKED, "call-7") == (
        found.calls[0].arguments[0]["content"],
        found.calls[0].result["tool_calls"][0]["id"],
    )


def test_several_requests_in_a_step(session: mttp.Session, client: Any) -> None:
    """
    The first new messages are the observation, the last answer is the action; each call has its own.
    """
    with mttp.episode(), mttp.step():
        for first in (1, 2):
            messages = [{"role": "user", "content": question(first, 4)}]
            client.chat.completions.create(model="adder", messages=messages)

    (step,) = only(session).steps
    assert [question(1, 4), question(2, 4)] == [call.arguments[0]["content"] for call in step.calls]
    assert ["call-5", "call-6"] == [call.result["tool_calls"][0]["id"] for call in step.calls]
    assert (step.calls[0].arguments, step.calls[1].result) == (step.observation, step.action)


@pytest.mark.parametrize("is_truncated", [True, False])
def test_a_changed_history_is_recorded_as_such(
    session: mttp.Session, client: Any, is_truncated: bool
) -> None:
    """
    Only what is new is written, and the ranges say which earlier messages the request had.
    """
    system, summary = ({"role": "system", "content": text} for text in ("Add.", "So far: nothing."))
    chat = Chat(client, ASKED)
    chat.messages.insert(0, system)
    with mttp.episode():
        ((_, id, _),), _ = chat.ask()
        chat.answer(id, "7")
        del chat.messages[1]  # the question
        chat.messages[1:1] = [] if is_truncated else [{"role": "user", "content": "2 + 5?"}, summary]
        chat.messages += [{"role": "user", "content": "Again: 1 + 1?"}] if is_truncated else []
        chat.ask()

    first, second = only(session).steps
    assert (0, 2) == first.calls[0].history
    assert ((0, 1, 2, 5) if is_truncated else (0, 1, 3, 5, 2, 3, 5, 6)) == second.calls[0].history
    new = ["7", "Again: 1 + 1?"] if is_truncated else ["2 + 5?", "So far: nothing.", "7"]
    assert new == [message["content"] for message in second.observation]


def test_an_answer_is_known_in_any_form(session: mttp.Session, client: Any) -> None:
    """
    As an object, as the library's dict with its empty fields, or as a program writes it by hand.
    """
    forms: list[Any] = [
        lambda message: message,
        lambda message: message.model_dump(),
        lambda message: message.to_dict(),
        lambda message: {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": call.id, "type": "function", "function": dict(call.function)}
                for call in message.tool_calls
            ],
        },
    ]
    for form in forms:
        chat = Chat(client, ASKED)
        with mttp.episode():
            chat.ask()
            chat.messages[-1] = form(chat.messages[-1])
            chat.answer("call-7", "7")
            chat.ask()

    for episode in mttp.read(session):
        assert [["user"], ["tool"]] == [[one["role"] for one in step.observation] for step in episode.steps]


def test_a_tool_call_before_any_request_is_a_step(session: mttp.Session, client: Any) -> None:
    """
    A later one belongs to the last request; one that the program leaves open ends with the episode.
    """
    with mttp.episode() as episode:
        episode.tool_call("look", arguments={"at": 1}).end()
        Chat(client, ASKED).ask()
        episode.tool_call("add")

    assert [["execute_tool"], ["chat", "execute_tool"]] == [
        [call.operation for call in step.calls] for step in only(session).steps
    ]
    assert (True, {}) == (only(session).complete, dict(session.stats.faults))


def test_requests_of_an_agent_are_steps_of_the_agent(session: mttp.Session, client: Any) -> None:
    """
    Each agent has a conversation of its own.
    """
    with mttp.episode() as episode:
        for name in ("white", "black"):
            with episode.agent(name) as agent:
                Chat(client, ASKED).ask()
                agent.tool_call("add", arguments="{}").end()

    assert [("white", 2, ASKED), ("black", 2, ASKED)] == [
        (step.agent, len(step.calls), step.observation[0]["content"]) for step in only(session).steps
    ]


# Clients that fail.


def test_a_server_that_is_not_available(session: mttp.Session, client: Any) -> None:
    """
    The step has the error and the messages, and a later request does not repeat them.
    """
    messages = [{"role": "user", "content": ASKED}]
    with mttp.episode():
        for model in ("down", "adder"):
            with pytest.raises(openai.InternalServerError) if model == "down" else nullcontext():
                client.chat.completions.create(model=model, messages=messages)

    failed, answered = only(session).steps
    assert ("openai.InternalServerError", messages, None) == (
        failed.error_type,
        failed.observation,
        failed.action,
    )
    assert (None, (0, 1), "call-7") == (
        answered.observation,
        answered.calls[0].history,
        answered.action["tool_calls"][0]["id"],
    )


@pytest.mark.parametrize("kind", ["chat", "responses"])
def test_half_an_answer_is_recorded(session: mttp.Session, client: Any, kind: str) -> None:
    """
    What had arrived when the program left is the action.
    """
    asked = [{"role": "user", "content": ASKED}]
    result = {"role": "tool", "tool_call_id": "c", "content": "7"}
    output = {"type": "function_call_output", "call_id": "c", "output": "7"}

    def leave() -> None:
        with mttp.episode(), mttp.step():
            if kind == "chat":
                stream = client.chat.completions.create(model="cut", messages=[*asked, result], stream=True)
            else:
                stream = client.responses.create(model="cut", input=[*asked, output], stream=True)
            with stream:
                while (event := next(stream)) and "It " not in str(event):
                    pass
                raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        leave()

    (step,) = only(session).steps
    assert ("RuntimeError", True) == (step.error_type, step.action["content"].startswith("It "))


@pytest.mark.parametrize("has_steps", [True, False])
def test_a_cancelled_stream_is_an_error_with_what_had_arrived(
    session: mttp.Session, server: Server, has_steps: bool
) -> None:
    """
    Of the call, and of the step that is the request's own.
    """

    async def leave(client: Any) -> None:
        result: Any = {"role": "tool", "tool_call_id": "c", "content": "7"}
        messages: Any = [{"role": "user", "content": ASKED}, result]
        stream = await client.chat.completions.create(model="cut", messages=messages, stream=True)
        async for chunk in stream:
            if "It " in str(chunk):
                asyncio.current_task().cancel()  # type: ignore[union-attr]

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="-") as client:
            with mttp.instrument(client), mttp.episode(), mttp.step() if has_steps else nullcontext():
                task = asyncio.create_task(leave(client))
                with suppress(asyncio.CancelledError):
                    await task

    asyncio.run(main())

    (step,) = only(session).steps
    error = "asyncio.exceptions.CancelledError"
    assert (error, None if has_steps else error) == (step.calls[0].error_type, step.error_type)
    assert step.action["content"].startswith("It ")


def test_a_message_that_no_json_can_hold_costs_itself(session: mttp.Session, client: Any) -> None:
    """
    The other messages and the answer are recorded.
    """

    class Odd(dict[str, Any]):
        """A message whose items can't be read twice."""

        def items(self) -> Any:
            raise ValueError("odd")

    with mttp.episode(), pytest.raises(ValueError, match="odd"):
        client.chat.completions.create(
            model="adder", messages=[{"role": "user", "content": ASKED}, Odd(role="user", content="x")]
        )

    (step,) = only(session).steps
    assert (ASKED, 2) == (step.observation[0]["content"], len(step.observation))


# What is not recorded.


def test_a_request_that_is_not_recorded_is_a_fault(session: mttp.Session, client: Any) -> None:
    """
    Named by its method and place, on the step or on the episode; outside episodes it is nothing.
    """

    def embed() -> None:
        with pytest.raises((openai.APIError, KeyError)):
            client.embeddings.create(model="down", input="x")

    embed()
    with mttp.episode():
        embed()
        with mttp.step():
            embed()

    episode = only(session)
    assert ("call_unrecorded: POST /embeddings",) == episode.faults == episode.steps[0].faults
    assert {"call_unrecorded": 2} == dict(session.stats.faults)


def test_a_web_socket_is_not_recorded(session: mttp.Session, client: Any) -> None:
    """
    A connection is named, of this client and of no other.
    """
    if not hasattr(client, "realtime") or not hasattr(client.realtime, "connect"):
        pytest.skip("this version has no web sockets")

    with mttp.episode(), openai.OpenAI(base_url="http://here", api_key="-") as other:
        other.realtime.connect(model="m")
        client.realtime.connect(model="m")

    assert ("call_unrecorded: Realtime.connect",) == only(session).faults


def test_a_copy_of_a_client_is_recorded(session: mttp.Session, client: Any) -> None:
    """
    As `with_options` and `copy` make it.
    """
    with mttp.episode():
        Chat(client.with_options(timeout=30), ASKED).ask()
        Chat(client.copy().copy(), ASKED).ask()

    assert 2 == len(only(session).steps)


# Many at once.


async def play_async(client: Any, asked: str, *, has_steps: bool, is_stream: bool) -> None:
    """Play an episode on an asynchronous client."""
    messages: list[Any] = [{"role": "user", "content": asked}]
    with mttp.episode(task=asked) as episode:
        calls: Any = [()]
        while calls:
            with episode.step() if has_steps else nullcontext(episode) as turn:
                create = client.chat.completions.create
                if is_stream:
                    stream = await create(model="adder", messages=messages, stream=True, **MORE)
                    deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
                    pieces = [call for delta in deltas for call in delta.tool_calls or ()]
                    arguments = "".join(piece.function.arguments for piece in pieces)
                    calls = [("add", pieces[0].id, arguments)] if pieces else []
                    text = "".join(delta.content or "" for delta in deltas)
                    message: Any = {"role": "assistant", "content": text}
                    if calls:
                        function = {"name": "add", "arguments": arguments}
                        message["tool_calls"] = [
                            {"id": pieces[0].id, "type": "function", "function": function}
                        ]
                else:
                    message = (await create(model="adder", messages=messages, **MORE)).choices[0].message
                    calls = [("add", one.id, one.function.arguments) for one in message.tool_calls or ()]
                messages.append(message)
                for name, id, arguments in calls:
                    with turn.tool_call(name, id=id, arguments=arguments) as tool:
                        await asyncio.sleep(0)
                        tool.result(result := run_tool(arguments))
                    messages.append({"role": "tool", "tool_call_id": id, "content": result})


def assert_logged(session: mttp.Session, server: Server, count: int) -> None:
    """Compare every step with the server's log."""
    episodes = mttp.read(session).episodes
    assert count == len(episodes)
    for episode in episodes:
        asked = str(episode.task)
        answers = server.log[asked]
        assert expected(asked, answers) == [said(step) for step in episode.steps]
        assert [(one.ids, one.logprobs) for one in answers] == [
            (step.tokens.ids.tolist(), step.tokens.logprobs.tolist()) for step in episode.steps
        ]
        assert [2, 1] == [len(step.calls) for step in episode.steps]


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.long)])
def test_many_episodes_at_once(session: mttp.Session, server: Server, count: int) -> None:
    """
    Each has what the server answered to it, with and without steps, streamed or not.
    """
    server.log.clear()

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key="-", timeout=300) as client:
            with mttp.instrument(client):
                asked = [question(number, number + 1) for number in range(count)]
                plays = [
                    play_async(client, one, has_steps=bool(place % 2), is_stream=bool(place % 4 < 2))
                    for place, one in enumerate(asked)
                ]
                await asyncio.gather(*plays)

    asyncio.run(main())

    assert_logged(session, server, count)


def test_32_threads_at_once(session: mttp.Session, server: Server, client: Any) -> None:
    """
    Each plays an episode of its own on the same client.
    """
    server.log.clear()
    asked = [question(number, number + 1) for number in range(32)]
    threads = [
        threading.Thread(
            target=play, args=(Chat(client, one),), kwargs={"task": one, "has_steps": bool(place % 2)}
        )
        for place, one in enumerate(asked)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert_logged(session, server, 32)
