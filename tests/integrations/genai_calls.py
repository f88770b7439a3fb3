"""Clients of models that are recorded by other packages' instrumentations; run as a script with a case."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

os.environ |= {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "ANTHROPIC_OPEN_TELEMETRY_TRACES_CONTENT_MODE": "content",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OPENAI_API_KEY": "none",
}
URL = ""
ASKED = [{"role": "user", "content": "2+2?"}]
ANSWERS: dict[str, Any] = {
    "/v1/messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [{"type": "text", "text": "It is 4."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 9, "output_tokens": 3},
    },
    "generateContent": {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "It is 4."}]}, "finishReason": "STOP"}
        ],
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12},
        "modelVersion": "gemini-x",
        "responseId": "r1",
    },
    "/responses": {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-x",
        "status": "completed",
        "output": [
            {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "It is 4.", "annotations": []}],
            }
        ],
        "usage": {
            "input_tokens": 9,
            "output_tokens": 3,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
    },
    "": {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-x",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "It is 4."}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12},
    },
}
"""Answers by a part of the path."""


class Handler(BaseHTTPRequestHandler):
    """Answers as the path asks."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer a request."""
        self.rfile.read(int(self.headers["content-length"]))
        answer = next(answer for part, answer in ANSWERS.items() if part in self.path)
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def anthropic() -> None:
    """Ask through Anthropic's client."""
    import anthropic

    client = anthropic.Anthropic(api_key="none", base_url=URL)
    client.messages.create(model="claude-x", max_tokens=10, messages=ASKED)


def google() -> None:
    """Ask through Google's client."""
    from google import genai

    client = genai.Client(api_key="none", http_options={"base_url": URL})
    client.models.generate_content(model="gemini-x", contents="2+2?")


def responses() -> None:
    """Ask through OpenAI's Responses API."""
    import openai

    openai.OpenAI(base_url=f"{URL}/v1").responses.create(model="gpt-x", input="2+2?")


def litellm() -> None:
    """Ask through LiteLLM."""
    import litellm

    litellm.completion(model="openai/gpt-x", api_base=f"{URL}/v1", api_key="none", messages=ASKED)


def langchain() -> None:
    """Ask through LangChain."""
    from langchain_openai import ChatOpenAI

    ChatOpenAI(model="gpt-x", base_url=f"{URL}/v1", api_key="none").invoke("2+2?")


def langgraph() -> None:
    """Ask through an agent of LangGraph with a tool."""
    from langchain_openai import ChatOpenAI
    from langgraph.prebuilt import create_react_agent

    def add(a: int, b: int) -> int:
        """Add numbers."""
        return a + b

    model = ChatOpenAI(model="gpt-x", base_url=f"{URL}/v1", api_key="none")
    create_react_agent(model, [add]).invoke({"messages": [("user", "2+2?")]})


def agents() -> None:
    """Ask through OpenAI's Agents SDK."""
    import openai
    from agents import Agent, Runner, set_default_openai_client

    set_default_openai_client(openai.AsyncOpenAI(base_url=f"{URL}/v1"), use_for_tracing=False)
    asyncio.run(Runner.run(Agent(name="adder", model="gpt-x"), "2+2?"))


CASES = {
    "anthropic, its own": ("", anthropic),
    "anthropic, OpenInference": ("openinference.instrumentation.anthropic:AnthropicInstrumentor", anthropic),
    "anthropic, OpenLLMetry": ("opentelemetry.instrumentation.anthropic:AnthropicInstrumentor", anthropic),
    "google, OpenTelemetry": (
        "opentelemetry.instrumentation.google_genai:GoogleGenAiSdkInstrumentor",
        google,
    ),
    "google, OpenInference": ("openinference.instrumentation.google_genai:GoogleGenAIInstrumentor", google),
    "responses, OpenTelemetry": ("opentelemetry.instrumentation.genai.openai:OpenAIInstrumentor", responses),
    "responses, OpenInference": ("openinference.instrumentation.openai:OpenAIInstrumentor", responses),
    "litellm, OpenInference": ("openinference.instrumentation.litellm:LiteLLMInstrumentor", litellm),
    "langchain, OpenInference": ("openinference.instrumentation.langchain:LangChainInstrumentor", langchain),
    "langchain, OpenLLMetry": ("opentelemetry.instrumentation.langchain:LangchainInstrumentor", langchain),
    "langgraph, OpenInference": ("openinference.instrumentation.langchain:LangChainInstrumentor", langgraph),
    "langgraph, OpenLLMetry": ("opentelemetry.instrumentation.langchain:LangchainInstrumentor", langgraph),
    "agents, OpenTelemetry": (
        "opentelemetry.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
        agents,
    ),
    "agents, OpenInference": (
        "openinference.instrumentation.openai_agents:OpenAIAgentsInstrumentor",
        agents,
    ),
}
"""Instrumentations, and the clients that they record."""


def main(case: str) -> None:
    """Ask within a step, and print its calls as JSON."""
    global URL
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    URL = f"http://127.0.0.1:{server.server_port}"
    place, ask = CASES[case]
    module, _, name = place.partition(":")

    import mttp

    with mttp.configure("memory://") as session:
        if place:
            getattr(importlib.import_module(module), name)().instrument()
        with mttp.episode(env="toy") as episode, episode.step():
            ask()
        summary = mttp.summarize(session)
        (found,) = mttp.read(session)
    calls = [
        [
            call.operation,
            call.name,
            call.input_tokens,
            call.output_tokens,
            str(call.arguments),
            str(call.result),
        ]
        for call in found.steps[0].calls
    ]
    print(json.dumps({"calls": calls, "tokens": [summary.call_input_tokens, summary.call_output_tokens]}))


if __name__ == "__main__":
    main(sys.argv[1])
