"""
What encoding costs: the same spans through the official encoders, what one would write oneself, and ours.

A span is a step with 16 numbers and texts, 256 token ids and 256 log probabilities; 8 steps make an
episode.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from goals import Goal, times
from harness import main
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext
from questions import Case, Question, worked
from recording import JSON_FILE
from workload import STEPS, TOKENS, VOCABULARY

EPISODES = 16
SPANS = EPISODES * (STEPS + 1)
FIGURES = {"cpu_us": "CPU µs per span", "wall_us": "wall time", "peak_mb": "peak memory in MB"}
RESOURCE = Resource({"service.name": "benchmark", "mttp.run.id": "0123456789abcdef"})
SCOPE = InstrumentationScope("mttp", "0.1.0")
START = 1_750_000_000_000_000_000


# The same spans for all, made without an SDK's clock and ids.


def values(random: np.random.Generator, episode: int, step: int, tokens: int) -> dict[str, Any]:
    """A step's attributes, arrays as numpy arrays."""
    scalars = {
        "mttp.run.id": "0123456789abcdef",
        "mttp.episode.id": f"episode-{episode}",
        "mttp.step.index": step,
        "mttp.step.terminated": step == STEPS - 1,
        "mttp.policy.version": f"{episode // 8}",
        "mttp.step.discount": 0.99,
        "gen_ai.request.model": "a-model",
        "gen_ai.usage.input_tokens": 512 + step,
        "gen_ai.usage.output_tokens": tokens,
        "mttp.step.value": float(random.normal()),
        "mttp.token.count": tokens,
        "mttp.token.mean_logprob": float(random.normal()),
    }
    rewards = {
        f"mttp.reward.{name}": float(random.normal()) for name in ("total", "format", "task", "length")
    }
    if not tokens:
        return scalars | rewards
    ids = random.integers(0, VOCABULARY, tokens)
    logprobs = random.normal(-1, 1, tokens).astype(np.float32)
    return scalars | rewards | {"mttp.token.ids": ids, "mttp.token.logprobs": logprobs}


def spans(tokens: int, *, native: bool) -> list[ReadableSpan]:
    """All spans of all episodes; native ones have numpy arrays, others what the SDK makes of lists."""
    random = np.random.default_rng(0)
    made: list[ReadableSpan] = []
    for episode in range(EPISODES):
        root = SpanContext(episode + 2**100, episode + 2**60, is_remote=False)
        for step in range(STEPS + 1):
            attributes = values(random, episode, step, tokens if step else 0)
            if not native:
                attributes = {
                    key: tuple(value.tolist()) if isinstance(value, np.ndarray) else value
                    for key, value in attributes.items()
                }
            span = SpanContext(root.trace_id, root.span_id + step, is_remote=False)
            made.append(
                ReadableSpan(
                    name="step" if step else "episode",
                    context=span if step else root,
                    parent=root if step else None,
                    resource=RESOURCE,
                    attributes=attributes,
                    start_time=START + 1000 * step,
                    end_time=START + 1000 * step + 900,
                    instrumentation_scope=SCOPE,
                )
            )
    return made


# Protobuf.


def official_protobuf(tokens: int) -> Callable[[], bytes]:
    """The official encoder, from spans as the SDK makes them."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    made = spans(tokens, native=False)
    return lambda: bytes(encode_spans(made).SerializeToString())


def protobuf(tokens: int, *, native: bool) -> Callable[[], bytes]:
    """Ours, from the same spans or from native arrays."""
    from mttp.wire.otlp_proto import encode_spans

    made = spans(tokens, native=native)
    return lambda: encode_spans(made)


# JSON lines.


def official_json(tokens: int) -> Callable[[], bytes]:
    """The official file exporter, to a file in memory."""
    from opentelemetry.exporter.otlp.json.file import (  # type: ignore[import-not-found]  # the peer's alone
        FileSpanExporter,
    )

    made = spans(tokens, native=False)

    def work() -> bytes:
        stream = io.StringIO()
        FileSpanExporter(stream=stream).export(made)
        return stream.getvalue().encode()

    return work


def orjson_lines(tokens: int) -> Callable[[], bytes]:
    """What one would write oneself: a dict per span, an episode per line, orjson."""
    import orjson

    made = spans(tokens, native=False)

    def work() -> bytes:
        return b"".join(orjson.dumps(_document(made[at : at + 9])) + b"\n" for at in range(0, SPANS, 9))

    return work


def json_lines(tokens: int, *, native: bool) -> Callable[[], bytes]:
    """Ours, from the same spans or from native arrays."""
    from mttp.wire.otlp_json import encode_spans

    made = spans(tokens, native=native)
    return lambda: b"".join(encode_spans(made))


def _document(episode: list[ReadableSpan]) -> dict[str, Any]:
    scope = {"name": SCOPE.name, "version": SCOPE.version}
    block = {"scope": scope, "spans": [_span(span) for span in episode]}
    return {
        "resourceSpans": [{"resource": {"attributes": _pairs(RESOURCE.attributes)}, "scopeSpans": [block]}]
    }


def _span(span: ReadableSpan) -> dict[str, Any]:
    parent = {"parentSpanId": f"{span.parent.span_id:016x}"} if span.parent else {}
    return {
        "traceId": f"{span.context.trace_id:032x}",
        "spanId": f"{span.context.span_id:016x}",
        **parent,
        "flags": 256,
        "name": span.name,
        "kind": 1,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _pairs(span.attributes),
        "status": {},
    }


def _pairs(attributes: Any) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in attributes.items()]


def _value(value: Any) -> dict[str, Any]:
    kind = type(value)
    if kind is str:
        return {"stringValue": value}
    if kind is float:
        return {"doubleValue": value}
    if kind is bool:
        return {"boolValue": value}
    if kind is int:
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [_value(item) for item in value]}}


def told(lines: bytes) -> bytes:
    """The spans of all lines with their resource and scope, empty members left out."""
    return json.dumps(_lean(list(_each(lines))), sort_keys=True).encode()


def _each(lines: bytes) -> Iterator[Any]:
    for line in lines.splitlines():
        for block in json.loads(line)["resourceSpans"]:
            for scoped in block["scopeSpans"]:
                for span in scoped["spans"]:
                    yield [block["resource"], scoped["scope"], span]


def _lean(document: Any) -> Any:
    if isinstance(document, dict):
        members = {key: _lean(value) for key, value in document.items()}
        return {key: value for key, value in members.items() if value not in ({}, [], "", 0) or key in _KEPT}
    return [_lean(item) for item in document] if isinstance(document, list) else document


_KEPT = frozenset({"stringValue", "intValue", "doubleValue", "boolValue"})


def _case(prepare: Callable[[], Callable[[], bytes]], told: Callable[[bytes], bytes] = bytes) -> Case:
    return Case(worked(prepare, told, SPANS))


def _protobuf_cases(tokens: int) -> dict[str, Case]:
    return {
        "official": _case(functools.partial(official_protobuf, tokens)),
        "mttp": _case(functools.partial(protobuf, tokens, native=False)),
        "mttp, native arrays": _case(functools.partial(protobuf, tokens, native=True)),
    }


QUESTIONS = {
    "protobuf": Question(
        f"OTLP protobuf, {TOKENS} ids and logprobs per step",
        FIGURES,
        _protobuf_cases(TOKENS),
        [
            Goal(
                "3",
                "drop-in encoder, the same spans and bytes: official over mttp",
                times("official", "mttp", "cpu_us"),
                6,
                9,
                at_least=True,
            )
        ],
    ),
    "scalars": Question("OTLP protobuf, scalars alone", FIGURES, _protobuf_cases(0), rounds=3),
    "json": Question(
        f"OTLP JSON lines, {TOKENS} ids and logprobs per step",
        FIGURES,
        {
            "official file exporter": Case(
                worked(functools.partial(official_json, TOKENS), told, SPANS), JSON_FILE
            ),
            "dict and orjson": _case(functools.partial(orjson_lines, TOKENS), told),
            "mttp, tuples": _case(functools.partial(json_lines, TOKENS, native=False), told),
            "mttp": _case(functools.partial(json_lines, TOKENS, native=True), told),
        },
        [
            Goal(
                "4",
                "OTLP JSON lines, native arrays: official file exporter over mttp",
                times("official file exporter", "mttp", "cpu_us"),
                10,
                16,
                at_least=True,
            ),
            Goal(
                "4",
                "OTLP JSON lines, native arrays: dict and orjson over mttp",
                times("dict and orjson", "mttp", "cpu_us"),
                1.5,
                2.2,
                at_least=True,
            ),
        ],
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)
