"""
What it takes to encode the same spans as OTLP protobuf: the official encoder, and mttp's in its place.

A span is a step with 16 numbers and texts, 256 token ids and 256 log probabilities, as the SDK keeps them;
8 steps and a root make an episode, 16 episodes are encoded at once, again and again. Both must give the same
bytes.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

from cases import Case, Figures, Measure

SECONDS, QUICK_SECONDS, ROUNDS = 1.0, 0.01, 5
SAME = ("bytes",)
EPISODES, STEPS, TOKENS, VOCABULARY = 16, 8, 256, 150_000
START = 1_750_000_000_000_000_000


def _spans() -> list[Any]:
    """Return equal spans each time."""
    import numpy as np
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext

    random = np.random.default_rng(0)
    resource = Resource({"service.name": "benchmark"})
    scope = InstrumentationScope("benchmark", "0.1.0")

    def attributes(episode: int, step: int) -> dict[str, Any]:
        said = {
            "run.id": "0123456789abcdef",
            "episode.id": f"episode-{episode}",
            "step.index": step,
            "step.terminated": step == STEPS,
            "policy.version": f"{episode // 8}",
            "step.discount": 0.99,
            "gen_ai.request.model": "a-model",
            "gen_ai.usage.input_tokens": 512 + step,
            "gen_ai.usage.output_tokens": TOKENS,
            "step.value": float(random.normal()),
            "token.count": TOKENS,
            "token.mean_logprob": float(random.normal()),
            **{f"reward.{name}": float(random.normal()) for name in ("total", "format", "task", "length")},
        }
        if not step:
            return said
        ids, logprobs = random.integers(0, VOCABULARY, TOKENS), random.normal(-1, 1, TOKENS)
        return {**said, "ids": tuple(ids.tolist()), "logprobs": tuple(logprobs.tolist())}

    def span(episode: int, step: int) -> Any:
        root = SpanContext(episode + 2**100, episode + 2**60, is_remote=False)
        own = SpanContext(root.trace_id, root.span_id + 1000 * step, is_remote=False)
        return ReadableSpan(
            name="step" if step else "episode",
            context=own,
            parent=root if step else None,
            resource=resource,
            attributes=attributes(episode, step),
            start_time=START + 1000 * step,
            end_time=START + 1000 * step + 900,
            instrumentation_scope=scope,
        )

    return [span(episode, step) for episode in range(EPISODES) for step in range(STEPS + 1)]


def _official() -> Callable[[list[Any]], bytes]:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return lambda spans: bytes(encode_spans(spans).SerializeToString())


def _own() -> Callable[[list[Any]], bytes]:
    from mttp.otlp.protobuf import encode_spans

    return encode_spans


def encoded(make: Callable[[], Callable[[list[Any]], bytes]]) -> Measure:
    """Return a measure of an encoder."""

    def measure(seconds: float) -> Figures:
        encode, spans = make(), _spans()
        said, times = encode(spans), 0
        start = time.process_time()
        while (used := time.process_time() - start) < seconds or not times:
            encode(spans)
            times += 1
        return {"span_us": 1e6 * used / times / len(spans), "bytes": zlib.crc32(said)}

    return measure


CASES = {"official": Case(encoded(_official)), "mttp": Case(encoded(_own))}
