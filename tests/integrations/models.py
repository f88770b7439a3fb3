"""A model that is served on this machine, and tells of tokens what vLLM does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["QUESTION", "serving"]

QUESTION = [{"role": "user", "content": "2+2=?"}]
_HEAD = {
    "created": 1,
    "model": "tiny-2026",
    "usage": {"prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13},
}


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


class _Model(BaseHTTPRequestHandler):
    """Answers every question alike; one of the model `broken` fails."""

    def do_POST(self) -> None:
        """Answer."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        body = json.dumps((_chat if "messages" in asked else _text)(asked)).encode()
        self.send_response(400 if asked["model"] == "broken" else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of the model, while it is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
