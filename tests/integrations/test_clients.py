"""Real clients with OpenTelemetry's own instrumentations: their spans are children of the step."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from typing import Any

import pytest

import mttp
from mttp.model.spans import SpanRecord

openai = pytest.importorskip("openai")

QUESTION = [{"role": "user", "content": "2+2=?"}]
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "tiny-2026",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "4"}}],
    "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
}


class Model(BaseHTTPRequestHandler):
    """Answers every request alike; the model `broken` fails."""

    traceparents: list[str | None]

    def do_POST(self) -> None:
        """Respond."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.traceparents.append(self.headers["traceparent"])
        body = json.dumps(ANSWER).encode()
        self.send_response(400 if asked["model"] == "broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


class Server:
    """A model server on this machine."""

    def __init__(self) -> None:
        self.traceparents: list[str | None] = []
        handler = type("Handler", (Model,), {"traceparents": self.traceparents})
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/v1"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        """Stop the server."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    """Serve a model."""
    serving = Server()
    yield serving
    serving.close()


@pytest.fixture
def client(server: Server) -> Iterator[Any]:
    """Return a client of the server."""
    with openai.OpenAI(base_url=server.address, api_key="none", max_retries=0) as opened:
        yield opened


def instrumentor(*names: str) -> Any:
    """Return the first of these instrumentors (`module:Class`) that is installed and works."""
    for name in names:
        module, _, kind = name.partition(":")
        try:
            return getattr(import_module(f"opentelemetry.instrumentation.{module}"), kind)()
        except (ImportError, AttributeError):
            continue
    return pytest.skip(f"none of {', '.join(names)} is installed")


@pytest.fixture
def content() -> str:
    """Return what the instrumentation records of texts."""
    return "no_content"


@pytest.fixture
def instrumented(content: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Instrument the OpenAI client with OpenTelemetry's instrumentation."""
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
    chosen = instrumentor("genai.openai:OpenAIInstrumentor", "openai_v2:OpenAIInstrumentor")
    chosen.instrument()
    yield
    chosen.uninstrument()


@pytest.fixture
def instrumented_http() -> Iterator[None]:
    """Instrument the HTTP client that it uses."""
    chosen = instrumentor("httpx:HTTPX2ClientInstrumentor", "httpx:HTTPXClientInstrumentor")
    chosen.instrument()
    yield
    chosen.uninstrument()


def ask(client: Any, model: str = "tiny") -> Any:
    """Send a request to the model."""
    return client.chat.completions.create(model=model, messages=QUESTION, temperature=0.5, max_tokens=7)


def scanned(source: object) -> dict[str, SpanRecord]:
    """Return the spans by name."""
    return {span.name: span for span in mttp.scan(source)}  # type: ignore[arg-type]


@pytest.mark.parametrize("transport", ["a.jsonl", "a.jsonl.gz", "runs/"])
def test_a_clients_span_is_the_steps_child_and_reads_back_as_a_call(
    client: Any, instrumented: None, transport: str
) -> None:
    """
    With model, sampling parameters, tokens and finish reason, although the instrumentation does not know
    mttp.
    """
    with mttp.configure(f"file://{transport}"), mttp.episode() as episode:
        with episode.step() as step:
            step.action(ask(client).choices[0].message.content)
        with episode.step() as step:
            step.action("done")

    (whole,) = mttp.read(transport).episodes
    (call,), () = (step.calls for step in whole.steps)
    span = scanned(transport)["chat tiny"]
    assert (whole.trace_id, whole.steps[0].span_id, 3) == (span.trace_id, span.parent_id, span.kind)
    assert ("chat", "tiny", "tiny-2026", "chatcmpl-1") == (
        call.operation,
        call.name,
        call.response_model,
        call.id,
    )
    assert (11, 2, ("stop",)) == (call.input_tokens, call.output_tokens, call.finish_reasons)
    assert {"temperature": 0.5, "max_tokens": 7} == call.parameters
    assert (True, 3, "4") == (whole.complete, whole.span_count, whole.steps[0].action)


def test_an_asynchronous_clients_spans_are_their_own_steps(server: Server, instrumented: None) -> None:
    """
    Many episodes in one thread at once: each span is a child of its own step.
    """

    async def play(client: Any, task: int) -> None:
        async with mttp.episode(task=task) as episode:
            for _ in range(2):
                async with episode.step():
                    await ask(client)

    async def main() -> None:
        async with openai.AsyncOpenAI(base_url=server.address, api_key="none") as client:
            await asyncio.gather(*(play(client, task) for task in range(8)))

    with mttp.configure("file://a.jsonl"):
        asyncio.run(main())

    recording = mttp.read("a.jsonl")
    assert [[1, 1]] * 8 == [[len(step.calls) for step in episode.steps] for episode in recording]
    assert (True, []) == (all(episode.complete for episode in recording), recording.problems)


def test_a_call_that_fails_is_a_call_with_an_error(client: Any, instrumented: None) -> None:
    """
    The client's exception propagates, and the step ends in error.
    """
    with mttp.configure("file://a.jsonl"):
        episode = mttp.episode()
        with pytest.raises(openai.BadRequestError), episode, episode.step():
            ask(client, "broken")

    (whole,) = mttp.read("a.jsonl").episodes
    (call,) = whole.steps[0].calls
    assert ("broken", True) == (call.name, str(call.error_type).endswith("BadRequestError"))
    assert ("error", whole.steps[0].error_type) == (whole.status, whole.error_type)


@pytest.mark.parametrize("content", ["span_only"])
def test_texts_that_the_instrumentation_records_are_in_the_file(client: Any, instrumented: None) -> None:
    """
    The instrumentation's own setting decides what it records; files keep it.
    """
    pytest.importorskip("opentelemetry.instrumentation.genai.openai")  # earlier ones put texts in logs alone
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode, episode.step():
        ask(client)

    found = scanned("a.jsonl")["chat tiny"].attributes
    assert "2+2=?" in str(found["gen_ai.input.messages"])
    assert "4" in str(found["gen_ai.output.messages"])


def test_the_http_request_is_below_the_call(
    client: Any, server: Server, instrumented: None, instrumented_http: None
) -> None:
    """
    The request carries the episode's trace to the server.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode, episode.step() as step:
        ask(client)

    found = scanned("a.jsonl")
    chat, request = found["chat tiny"], found["POST"]
    assert (step.span_id, chat.span_id) == (chat.parent_id, request.parent_id)
    assert [f"00-{episode.trace_id}-{request.span_id}-01"] == server.traceparents
    assert [1] == [len(step.calls) for step in mttp.read("a.jsonl").episodes[0].steps]


def test_calls_outside_a_session_are_not_recorded(
    client: Any, server: Server, instrumented: None, instrumented_http: None
) -> None:
    """
    The client works, and sends no trace to the server.
    """
    with mttp.configure("file://a.jsonl"):
        pass

    assert "4" == ask(client).choices[0].message.content
    assert [None] == server.traceparents
    assert ["run"] == [span.name for span in mttp.scan("a.jsonl")]
