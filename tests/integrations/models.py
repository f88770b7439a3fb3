"""A model that is served on this machine, and tells of tokens what vLLM does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["QUESTION", "serving"]

QUESTION = [{"role": "user", "content": "2+2=?"}]
_HEAD = {
    "created": 1,
    "model": "tiny-2026",
    "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
}
_OVER = threading.Event()
"""Whether nobody is served any more, and what hangs may end."""


def _chat(asked: dict[str, Any]) -> dict[str, Any]:
    message = {"role": "assistant", "content": "4"}
    choice: dict[str, Any] = {"index": 0, "finish_reason": "stop", "message": message}
    if asked.get("logprobs"):
        content = [{"token": "4", "logprob": -0.25, "top_logprobs": []}, {"token": "", "logprob": -0.5}]
        choice["logprobs"] = {"content": content}
    return {"id": "chatcmpl-1", "object": "chat.completion", **_HEAD, **_tokens(asked, choice)}


def _text(asked: dict[str, Any]) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": "stop", "text": "4"}
    choice["logprobs"] = {"token_logprobs": [-0.125, -0.0625], "tokens": ["4", ""]}
    return {"id": "cmpl-1", "object": "text_completion", **_HEAD, **_tokens(asked, choice)}


def _tokens(asked: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    if not asked.get("return_token_ids"):
        return {"choices": [choice]}
    return {"choices": [{**choice, "token_ids": [7, 8]}], "prompt_token_ids": [1, 2, 3]}


def _pieces(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The same answer in pieces, with what vLLM puts into them; the model `talker` calls a tool, too."""
    is_chat = "messages" in asked
    head = {"created": 1, "model": "tiny-2026", "id": "chatcmpl-1" if is_chat else "cmpl-1"}
    head["object"] = "chat.completion.chunk" if is_chat else "text_completion"
    first: dict[str, Any] = {"index": 0, "delta": {"role": "assistant", "content": ""}}
    if is_chat:
        yield {**head, "choices": [first], "prompt_token_ids": [1, 2, 3]}
    for token, text, logprob in ((7, "It is", -0.25), (8, " 4", -0.5)):
        said = {"delta": {"content": text}} if is_chat else {"text": text}
        choice: dict[str, Any] = {"index": 0, "finish_reason": None, **said}
        if asked.get("return_token_ids"):
            choice["token_ids"] = [token]
            choice |= {} if is_chat else {"prompt_token_ids": [1, 2, 3] if token == 7 else None}
        if asked.get("logprobs"):
            content = {"content": [{"token": text, "logprob": logprob, "top_logprobs": []}]}
            choice["logprobs"] = content if is_chat else {"token_logprobs": [logprob], "tokens": [text]}
        yield {**head, "choices": [choice]}
    if asked["model"] == "breaks":
        yield {"error": {"message": "out of memory"}}
    if asked["model"] == "talker":
        for call in ({"id": "call-1", "type": "function", "function": {"name": "add", "arguments": '{"a'}},):
            yield {**head, "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, **call}]}}]}
        rest = {"index": 0, "function": {"arguments": '": 2}'}}
        yield {**head, "choices": [{"index": 0, "delta": {"tool_calls": [rest]}}]}
    end = {"delta": {}} if is_chat else {"text": ""}
    yield {**head, "choices": [{"index": 0, "finish_reason": "stop", **end}]}
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _HEAD["usage"]}


class _Model(BaseHTTPRequestHandler):
    """Answers every question alike; the model `broken` fails, `breaks` in the middle, or `hangs` there."""

    def do_POST(self) -> None:
        """Answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("stream") and asked["model"] != "broken":
            self._stream(asked)
            return
        body = json.dumps((_chat if "messages" in asked else _text)(asked)).encode()
        self.send_response(400 if asked["model"] == "broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked: dict[str, Any]) -> None:
        events = [*map(json.dumps, _pieces(asked)), "[DONE]"]
        events = events[: 1 if asked["model"] == "hangs" else None]
        body = "".join(f"data: {event}\n\n" for event in events).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()  # it ends with the connection
        with suppress(ConnectionError):  # who asked may have left
            self.wfile.write(body)
            if asked["model"] == "hangs":
                _OVER.wait()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of the model, while it is served."""
    _OVER.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        _OVER.set()
        server.shutdown()
        server.server_close()
