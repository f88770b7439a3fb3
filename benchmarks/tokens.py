"""
What a step that says nothing but its tokens and its reward costs its caller at steady state.

Episodes have 8 steps of a reward, 256 token ids and 256 log probabilities, as lists or as numpy arrays.
Blocks of 256 episodes are recorded at full speed, and each is flushed before the next; the first second
does not count. `caller_us` is CPU time of the recording thread per step, without the flush. mttp writes a
file at default settings. The SDK has a BatchSpanProcessor whose queue loses nothing, over an exporter that
does nothing; it gets what mttp records of a step and an episode by itself, and `.tolist()` of
arrays.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from cases import Case, Figures, Measure

SECONDS, QUICK_SECONDS, ROUNDS = 2.0, 0.05, 5
BLOCK, STEPS, TOKENS, VOCABULARY = 256, 8, 256, 150_000


def _episodes(*, lists: bool) -> list[list[tuple[float, Any, Any]]]:
    """A block of episodes: reward, ids and log probabilities of each step."""
    import numpy as np

    random = np.random.default_rng(0)

    def step() -> tuple[float, Any, Any]:
        ids, logprobs = (
            random.integers(0, VOCABULARY, TOKENS),
            random.normal(-1, 1, TOKENS).astype(np.float32),
        )
        reward = float(random.normal())
        return (reward, ids.tolist(), logprobs.tolist()) if lists else (reward, ids, logprobs)

    distinct = [[step() for _ in range(STEPS)] for _ in range(64)]
    return distinct * (BLOCK // 64)


def recorded(
    make: Callable[[], tuple[Callable[[Any], None], Callable[[], object]]], *, lists: bool
) -> Measure:
    """Return a measure of recording blocks of episodes."""

    def measure(seconds: float) -> Figures:
        record, flush = make()
        given, clock = _episodes(lists=lists), time.thread_time
        used, blocks, ahead, start = 0.0, 0, min(1.0, seconds), time.perf_counter()
        while (now := time.perf_counter() - start) < ahead + seconds or not blocks:
            before = clock()
            record(given)
            if now >= ahead:
                used, blocks = used + clock() - before, blocks + 1
            flush()
        return {"caller_us": 1e6 * used / blocks / BLOCK / STEPS}

    return measure


def _own() -> tuple[Callable[[Any], None], Callable[[], object]]:
    import mttp

    session = mttp.configure(f"file://{Path('own.jsonl').absolute()}")

    def record(given: Any) -> None:
        for steps in given:
            with mttp.episode() as episode:
                for reward, ids, logprobs in steps:
                    with episode.step() as step:
                        step.reward(reward)
                        step.tokens(ids=ids, logprobs=logprobs)

    def flush() -> None:
        assert session.flush(60.0)

    return record, flush


def _sdk() -> tuple[Callable[[Any], None], Callable[[], object]]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Nowhere(SpanExporter):
        def export(self, _: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider, numbers = TracerProvider(), count()
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=65_536))
    tracer = provider.get_tracer("benchmark")

    def record(given: Any) -> None:
        for steps in given:
            with tracer.start_as_current_span("episode") as episode:
                trace_id = f"{episode.get_span_context().trace_id:032x}"
                identity, return_ = {"run.id": "0123456789abcdef", "episode.id": trace_id}, 0.0
                for index, (reward, ids, logprobs) in enumerate(steps):
                    with tracer.start_as_current_span("step") as step:
                        step.set_attributes(
                            {
                                **identity,
                                "step.index": index,
                                "reward": reward,
                                "step.reward_status": "ok",
                                "token.count": len(ids),
                            }
                        )
                        step.set_attribute("ids", ids if type(ids) is list else ids.tolist())
                        step.set_attribute(
                            "logprobs", logprobs if type(logprobs) is list else logprobs.tolist()
                        )
                    return_ += reward
                episode.set_attributes(
                    {
                        **identity,
                        "episode.index": next(numbers),
                        "episode.status": "completed",
                        "episode.outcome": "unknown",
                        "episode.length": len(steps),
                        "episode.return": return_,
                    }
                )

    return record, provider.force_flush


CASES = {
    "SDK, lists": Case(recorded(_sdk, lists=True)),
    "mttp, lists": Case(recorded(_own, lists=True)),
    "SDK, arrays": Case(recorded(_sdk, lists=False)),
    "mttp, arrays": Case(recorded(_own, lists=False)),
}
