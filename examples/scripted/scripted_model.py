"""
A model server on loopback, so that examples of chat trainers need no model.

Its model calls a tool once and then answers `It is 4.`; as a judge it prefers the first trajectory.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

USAGE = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}


class Handler(BaseHTTPRequestHandler):
    """Answers chat completions, as one document or as a stream."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer a request; one of the model `broken` fails."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append(body)  # type: ignore[attr-defined]
        is_done = any(message["role"] == "tool" for message in body["messages"]) or not body.get("tools")
        message: dict[str, Any] = {"role": "assistant", "content": "It is 4." if is_done else None}
        if body.get("response_format"):
            message["content"] = _scores(body["messages"][-1]["content"])
        reason = "stop" if is_done else "tool_calls"
        if not is_done:
            message["tool_calls"] = [CALL]
        if body["model"] == "broken":
            self._send(400, "application/json", json.dumps({"error": {"message": "broken"}}).encode())
        elif body.get("stream"):
            self._send(200, "text/event-stream", _stream(message, reason))
        else:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            document = {"id": "r1", "object": "chat.completion", "created": 1, "model": body["model"]}
            document |= {"choices": [choice], "usage": USAGE}
            self._send(200, "application/json", json.dumps(document).encode())

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _scores(asked: str) -> str:
    """Return the scores that RULER asks a judge for: less for each further trajectory."""
    scores = [
        {"trajectory_id": str(number), "explanation": f"It is number {number}.", "score": 1 / number}
        for number in range(1, asked.count("<trajectory id=") + 1)
    ]
    return json.dumps({"scores": scores})


def _stream(message: dict[str, Any], reason: str) -> bytes:
    chunk = {"id": "r1", "object": "chat.completion.chunk", "created": 1, "model": "tiny"}
    calls = [{"index": number, **call} for number, call in enumerate(message.get("tool_calls", ()))]
    delta = {**message, **({"tool_calls": calls} if calls else {})}
    chunks = [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": USAGE},
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in chunks) + b"data: [DONE]\n\n"


@contextmanager
def model_server() -> Iterator[ThreadingHTTPServer]:
    """Serve on a free port; `requests` are the bodies of the requests so far."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.requests = []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
