"""A server whose model adds two numbers with a tool, over every interface; it keeps a log of its answers."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Answer", "Server", "adding", "question"]

USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}


@dataclass(frozen=True)
class Answer:
    """One answer of the server."""

    text: str = ""
    reasoning: str = ""
    arguments: dict[str, int] = field(default_factory=dict)
    call_id: str = ""

    @property
    def texts(self) -> list[str]:
        """The texts of its tokens."""
        return re.findall(r"\S+\s*", self.text or json.dumps(self.arguments))

    @property
    def ids(self) -> list[int]:
        """The ids of its tokens."""
        return [zlib.crc32(text.encode()) % 50_000 for text in self.texts]

    @property
    def logprobs(self) -> list[float]:
        """The log probabilities of its tokens."""
        return [-len(text) / 8 for text in self.texts]


class Server(ThreadingHTTPServer):
    """The server; the model `down` is not available, and `cut` stops in the middle of a stream."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}/v1"
        self.log: dict[str, list[Answer]] = {}
        """The answers to each question, in order."""
        self.over = threading.Event()

    def answer(self, asked: str, result: str | None) -> Answer:
        """Return and log the answer to a question, or to the tool's result."""
        numbers = [int(text) for text in re.findall(r"\d+", asked)]
        if result is None:
            arguments = dict(zip("ab", numbers, strict=False))
            answer = Answer(arguments=arguments, call_id=f"call-{sum(numbers)}", reasoning="I use the tool.")
        else:
            answer = Answer(text=f"It is {result} .")
        self.log.setdefault(asked, []).append(answer)
        return answer


def question(first: int, second: int) -> str:
    """Return a question."""
    return f"What is {first} + {second}?"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked["model"] == "down":
            self._send(503, {"error": {"message": "overloaded"}})
            return
        is_chat = "messages" in asked
        items = asked["messages" if is_chat else "input"]
        items = [{"role": "user", "content": items}] if isinstance(items, str) else items
        results = [item for item in items if item.get("role") == "tool" or "output" in item]
        last = results[-1].get("content", results[-1].get("output")) if results else None
        first = next(item["content"] for item in items if item.get("role") == "user")
        answer = self.server.answer(first, last)
        if not asked.get("stream"):
            self._send(200, _chat(asked, answer) if is_chat else _response(asked, answer))
            return
        events = [*(_chunks(asked, answer) if is_chat else _events(asked, answer))]
        if asked["model"] == "cut":
            events = events[: len(events) // 2]
        self._stream(events, is_cut=asked["model"] == "cut")

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, events: Sequence[dict[str, Any]], *, is_cut: bool) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        with suppress(ConnectionError):  # who asked may have left
            self.wfile.write("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode())
            if is_cut:
                self.server.over.wait()
            else:
                self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _message(answer: Answer) -> dict[str, Any]:
    if answer.text:
        return {"role": "assistant", "content": answer.text}
    function = {"name": "add", "arguments": json.dumps(answer.arguments)}
    call = {"id": answer.call_id, "type": "function", "function": function}
    return {
        "role": "assistant",
        "content": None,
        "reasoning_content": answer.reasoning,
        "tool_calls": [call],
    }


def _logprobs(answer: Answer) -> list[dict[str, Any]]:
    pairs = zip(answer.texts, answer.logprobs, strict=True)
    return [{"token": text, "logprob": logprob, "bytes": None, "top_logprobs": []} for text, logprob in pairs]


def _choice(asked: dict[str, Any], answer: Answer, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop" if answer.text else "tool_calls", **more}
    choice |= {"logprobs": {"content": _logprobs(answer)}} if asked.get("logprobs") else {}
    return choice | ({"token_ids": answer.ids} if asked.get("return_token_ids") else {})


def _chat(asked: dict[str, Any], answer: Answer) -> dict[str, Any]:
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "adder-1", "usage": USAGE}
    return {**head, "choices": [_choice(asked, answer, message=_message(answer))]}


def _chunks(asked: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "adder-1"}
    message = _message(answer)
    for place, text in enumerate(answer.texts):
        delta: dict[str, Any] = {"content": text} if answer.text else {}
        if not answer.text:
            (call,) = message["tool_calls"]
            function = {"arguments": text} | ({} if place else {"name": "add"})
            delta["tool_calls"] = [{"index": 0, **({} if place else call), "function": function}]
        delta |= {} if place else {"role": "assistant"}
        delta |= {"reasoning_content": answer.reasoning} if answer.reasoning and not place else {}
        choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None}
        if asked.get("logprobs"):
            choice["logprobs"] = {"content": _logprobs(answer)[place : place + 1]}
        if asked.get("return_token_ids"):
            choice["token_ids"] = answer.ids[place : place + 1]
        yield {**head, "choices": [choice]}
    reason = "stop" if answer.text else "tool_calls"
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    yield {**head, "choices": [], "usage": USAGE}


def _items(asked: dict[str, Any], answer: Answer) -> list[dict[str, Any]]:
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        part |= {"logprobs": _logprobs(answer)} if asked.get("include") else {}
        part |= {"token_ids": answer.ids} if asked.get("include") else {}
        return [{"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}]
    thought = {
        "type": "reasoning",
        "id": "r",
        "summary": [{"type": "summary_text", "text": answer.reasoning}],
    }
    arguments = json.dumps(answer.arguments)
    call = {"type": "function_call", "id": "f", "call_id": answer.call_id, "name": "add"}
    return [thought, {**call, "arguments": arguments, "status": "completed"}]


def _response(asked: dict[str, Any], answer: Answer, status: str = "completed") -> dict[str, Any]:
    details = {
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    return {
        "id": "resp",
        "object": "response",
        "created_at": 1,
        "model": "adder-1",
        "status": status,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **dict.fromkeys(("error", "incomplete_details", "instructions", "temperature", "top_p")),
        "metadata": {},
        "output": _items(asked, answer) if status == "completed" else [],
        "usage": {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13, **details},
    }


def _events(asked: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": _response(asked, answer, "in_progress")}
    for index, item in enumerate(_items(asked, answer)):
        at = {"output_index": index, "item_id": item["id"]}
        empty = {"content": []} if "content" in item else {"arguments": ""} if "arguments" in item else {}
        yield {"type": "response.output_item.added", **at, "item": {**item, **empty}}
        if "content" in item:
            part = {"type": "output_text", "text": "", "annotations": []}
            yield {"type": "response.content_part.added", **at, "content_index": 0, "part": part}
        for text in answer.texts if item["type"] != "reasoning" else ():
            if answer.text:
                yield {
                    "type": "response.output_text.delta",
                    **at,
                    "content_index": 0,
                    "delta": text,
                    "logprobs": [],
                }
            else:
                yield {"type": "response.function_call_arguments.delta", **at, "delta": text}
        yield {"type": "response.output_item.done", **at, "item": item}
    yield {"type": "response.completed", "response": _response(asked, answer)}


@contextmanager
def adding() -> Iterator[Server]:
    """Run the server."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
