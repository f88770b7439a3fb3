"""
What encoding costs: the same spans through the official encoders, what one would write oneself, and ours.

    python benchmarks/encoders.py --install    the peers' environments
    python benchmarks/encoders.py              all questions; --only NAME, --rounds N, --json FILE

A span is a step with 16 numbers and texts, 256 token ids and 256 log probabilities; 8 steps make an episode.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from harness import Case, Environment, Question, main
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext

EPISODES, STEPS, TOKENS, VOCABULARY = 32, 8, 256, 150_000
SPANS = EPISODES * (STEPS + 1)
JSON_FILE = Environment(
    "otlp-json-file", ("opentelemetry-exporter-otlp-json-file", "opentelemetry-sdk<2", "numpy")
)
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


# Steps from the call to bytes, recording included.


def sdk_steps() -> Callable[[], list[bytes]]:
    """The SDK records steps with array attributes, the official encoder encodes."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    requests: list[bytes] = []

    class Encoding(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            requests.append(encode_spans(spans).SerializeToString())
            return SpanExportResult.SUCCESS

    episodes = _given()
    provider = TracerProvider(resource=RESOURCE)
    provider.add_span_processor(BatchSpanProcessor(Encoding(), max_queue_size=4096))
    tracer = provider.get_tracer("benchmark")

    def work() -> list[bytes]:
        requests.clear()
        for steps in episodes:
            with tracer.start_as_current_span("episode"):
                for ids, logprobs, reward in steps:
                    with tracer.start_as_current_span("step") as span:
                        span.set_attribute("mttp.reward.value", reward)
                        span.set_attribute("mttp.token.ids", ids.tolist())
                        span.set_attribute("mttp.token.logprobs", logprobs.tolist())
        provider.force_flush()
        return requests

    return work


def own_steps() -> Callable[[], list[bytes]]:
    """Ours, all of it: session, episodes, steps, and the thread that encodes."""
    from operator import attrgetter

    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    import mttp
    from mttp.wire.otlp_proto import encode_spans

    requests: list[bytes] = []

    class Encoding(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            requests.append(encode_spans(spans, attrgetter("values")))
            return SpanExportResult.SUCCESS

    episodes = _given()
    session = mttp.configure(Encoding())

    def work() -> list[bytes]:
        requests.clear()
        for steps in episodes:
            with mttp.episode() as episode:
                for ids, logprobs, reward in steps:
                    with episode.step() as step:
                        step.reward(reward)
                        step.tokens(ids=ids, logprobs=logprobs)
        session.flush()
        return requests

    return work


def _given() -> list[list[tuple[Any, Any, float]]]:
    random = np.random.default_rng(0)
    return [
        [
            (
                random.integers(0, VOCABULARY, TOKENS),
                random.normal(-1, 1, TOKENS).astype(np.float32),
                float(random.normal()),
            )
            for _ in range(STEPS)
        ]
        for _ in range(EPISODES)
    ]


def tokens_told(requests: list[bytes]) -> bytes:
    """The token arrays of all steps, in order."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    names = {"mttp.token.ids", "mttp.token.logprobs"}
    found = [
        [pair.value.SerializeToString(deterministic=True) for pair in span.attributes if pair.key in names]
        for request in requests
        for block in TracesData.FromString(request).resource_spans
        for scoped in block.scope_spans
        for span in scoped.spans
        if span.name == "step"
    ]
    return b"".join(sorted(item for step in found for item in step))


def _protobuf_cases(tokens: int) -> dict[str, Case]:
    return {
        "official": Case(functools.partial(official_protobuf, tokens), bytes),
        "mttp": Case(functools.partial(protobuf, tokens, native=False), bytes),
        "mttp, native arrays": Case(functools.partial(protobuf, tokens, native=True), bytes),
    }


QUESTIONS = {
    "protobuf": Question(
        f"OTLP protobuf, {TOKENS} ids and logprobs per step",
        "span",
        SPANS,
        _protobuf_cases(TOKENS),
        {"drop-in": ("official", 6.0), "drop-in, stretch": ("official", 9.0)},
    ),
    "scalars": Question("OTLP protobuf, scalars alone", "span", SPANS, _protobuf_cases(0), {}),
    "json": Question(
        f"OTLP JSON lines, {TOKENS} ids and logprobs per step",
        "span",
        SPANS,
        {
            "official file exporter": Case(functools.partial(official_json, TOKENS), told, JSON_FILE),
            "dict and orjson": Case(functools.partial(orjson_lines, TOKENS), told),
            "mttp, tuples": Case(functools.partial(json_lines, TOKENS, native=False), told),
            "mttp": Case(functools.partial(json_lines, TOKENS, native=True), told),
        },
        {
            "native arrays": ("official file exporter", 10.0),
            "native arrays, stretch": ("official file exporter", 16.0),
            "oneself": ("dict and orjson", 1.5),
            "oneself, stretch": ("dict and orjson", 2.2),
        },
    ),
    "steps": Question(
        "steps from the call to OTLP protobuf bytes, recording included",
        "step",
        EPISODES * STEPS,
        {"SDK and official": Case(sdk_steps, tokens_told), "mttp": Case(own_steps, tokens_told)},
        {"total": ("SDK and official", 7.0), "total, stretch": ("SDK and official", 10.0)},
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)
