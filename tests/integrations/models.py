"""A model server on this machine that returns token ids as vLLM does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from integrations.specimen import COMPLETIONS, Completion, encode

__all__ = ["QUESTION", "serving"]

QUESTION = [{"role": "user", "content": "2+2=?"}]
_HEAD = {
    "created": 1,
    "model": "tiny-2026",
    "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
}
_OVER = threading.Event()
"""Whether the server ends, so that requests that hang may end too."""


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


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    if asked["model"].startswith("specimen"):
        return _completion(_found(asked))
    answer = (_chat if "messages" in asked else _text)(asked)
    (choice,) = answer["choices"]
    if asked["model"] == "counts":
        choice["message"]["content"] = str(len(asked["messages"]))
    answer["choices"] = [{**choice, "index": index} for index in range(asked.get("n") or 1)]
    return answer


def _tokens(asked: dict[str, Any], choice: dict[str, Any]) -> dict[str, Any]:
    if not asked.get("return_token_ids"):
        return {"choices": [choice]}
    return {"choices": [{**choice, "token_ids": [7, 8]}], "prompt_token_ids": [1, 2, 3]}


def _completion(found: Completion) -> dict[str, Any]:
    """Return a text of the specimen with its token ids and log probabilities."""
    choice = {"index": 0, "finish_reason": "stop" if found.ended else "length", "text": found.text}
    choice |= {"token_ids": encode(found), "logprobs": {"token_logprobs": found.logprobs}}
    prompt = {"prompt_token_ids": [*map(ord, found.prompt)]}
    return {"id": "cmpl-1", "object": "text_completion", **_HEAD, "choices": [choice | prompt]}


def _pieces(asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Return the response in chunks, with vLLM's fields; the model `talker` also calls a tool."""
    if asked["model"].startswith("specimen"):
        yield from _parted(_completion(_found(asked)))
        return
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


def _found(asked: dict[str, Any]) -> Completion:
    """Return the specimen's completion for a request; its model is `specimen-1`."""
    return COMPLETIONS[int(asked["model"].removeprefix("specimen-"))]


def _parted(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a text into chunks of one token."""
    (choice,) = whole.pop("choices")
    count = len(choice["token_ids"])
    for place in range(count):
        is_last = place == count - 1
        piece = {
            **choice,
            "text": choice["text"][place : place + 1],
            "token_ids": choice["token_ids"][place : place + 1],
            "logprobs": {"token_logprobs": choice["logprobs"]["token_logprobs"][place : place + 1]},
            "finish_reason": choice["finish_reason"] if is_last else None,
            "prompt_token_ids": None if place else choice["prompt_token_ids"],
        }
        yield {**whole, "usage": None, "choices": [piece]}


def _repeated(piece: dict[str, Any], count: int) -> Iterator[dict[str, Any]]:
    """Repeat a chunk for each of the choices."""
    for index in range(count if piece.get("choices") else 1):
        yield {**piece, "choices": [{**choice, "index": index} for choice in piece.get("choices", ())]}


class _Model(BaseHTTPRequestHandler):
    """
    Answers every request alike. The model `broken` fails, `breaks` fails in the middle of a stream, `hangs`
    stops there; `page` and `garbled` return no JSON, the latter with a JSON content type; `counts` returns
    the number of messages.
    """

    def do_POST(self) -> None:
        """Respond."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if asked.get("stream") and asked["model"] != "broken":
            self._stream(asked)
            return
        is_page = asked["model"] in ("page", "garbled")
        body = b"<html>busy</html>" if is_page else json.dumps(_answer(asked)).encode()
        self.send_response(400 if asked["model"] == "broken" else 200)
        self.send_header("Content-Type", "text/html" if asked["model"] == "page" else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, asked: dict[str, Any]) -> None:
        pieces = [other for piece in _pieces(asked) for other in _repeated(piece, asked.get("n") or 1)]
        events = [*map(json.dumps, pieces), "[DONE]"]
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
        """Log nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """Serve the model and yield its address."""
    _OVER.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        _OVER.set()
        server.shutdown()
        server.server_close()
