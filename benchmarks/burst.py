"""
What becomes of 13,500 spans that come as fast as they can, at default settings, on their way to a
receiver.

1,500 episodes of 8 steps, each a reward, 256 token ids and 256 log probabilities as lists; then a flush
of up to two minutes. The receiver is another process, which counts what came in over OTLP. The SDK has
its BatchSpanProcessor and the official exporter, both with the queue, batches and timeouts that they have
by default; three rounds of that are enough. `p99_us` and `longest_ms` are of the calls that record one
step; memory is that of the whole process, the receiver's apart, and `grown_mb` how much more that is than
before the burst.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from goals import Goal, figure
from harness import main
from questions import Case, Measure, Question
from sink import Sink
from usage import peak_mb
from workload import STEPS, Steps, episodes

EPISODES = 1_500
SPANS = EPISODES * (STEPS + 1)
FIGURES = {
    "lost_pct": "% lost",
    "peak_mb": "peak memory in MB",
    "grown_mb": "of that, the burst's",
    "p99_us": "99th percentile of a step's calls, µs",
    "longest_ms": "longest, ms",
    "burst_ms": "ms of the burst",
    "flush_ms": "ms of the flush",
}


class Sender(NamedTuple):
    """A way to send episodes."""

    play: Callable[[Steps, list[float]], None]
    """Records an episode, and notes how long each step took, in seconds."""
    flush: Callable[[], object]
    """Returns when everything has been sent, or given up."""


def own(address: str) -> Sender:
    """Ours."""
    import mttp

    session, clock = mttp.configure(address), time.perf_counter

    def play(steps: Steps, took: list[float]) -> None:
        with mttp.episode() as episode:
            for reward, ids, logprobs in steps:
                start = clock()
                with episode.step() as step:
                    step.reward(reward)
                    step.tokens(ids=ids, logprobs=logprobs)
                took.append(clock() - start)

    return Sender(play, lambda: session.flush(120.0))


def official(address: str) -> Sender:
    """The SDK with the official exporter."""
    import logging

    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.disable()  # it says once that its queue is full
    provider, clock = TracerProvider(), time.perf_counter
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    tracer = provider.get_tracer("benchmark")

    def play(steps: Steps, took: list[float]) -> None:
        with tracer.start_as_current_span("episode"):
            for reward, ids, logprobs in steps:
                start = clock()
                with tracer.start_as_current_span("step") as step:
                    step.set_attribute("reward", reward)
                    step.set_attribute("ids", ids)
                    step.set_attribute("logprobs", logprobs)
                took.append(clock() - start)

    return Sender(play, lambda: provider.force_flush(120_000))


def burst(make: Callable[[str], Sender]) -> Measure:
    """A measure of a burst."""

    def measure(_: float) -> tuple[bytes, dict[str, float]]:
        sink = Sink()
        sender, given, took = make(sink.address), episodes(EPISODES, lists=True), list[float]()
        before, start = peak_mb((sink.pid,)), time.perf_counter()
        for steps in given:
            sender.play(steps, took)
        ended = time.perf_counter()
        sender.flush()
        flushed, peak = time.perf_counter(), peak_mb((sink.pid,))
        arrived = {span.span_id for span in sink.spans() if _counts(span)}
        ordered = sorted(took)
        return b"", {
            "lost_pct": 100 * (1 - len(arrived) / SPANS),
            "peak_mb": peak,
            "grown_mb": peak - before,
            "p99_us": 1e6 * ordered[len(ordered) * 99 // 100],
            "longest_ms": 1e3 * ordered[-1],
            "burst_ms": 1e3 * (ended - start),
            "flush_ms": 1e3 * (flushed - ended),
        }

    return measure


def _counts(span: Any) -> bool:
    """Whether it is one of the burst's, and not a marker or the run."""
    return span.name == "step" or (span.name.startswith("episode") and not span.parent_span_id)


QUESTIONS = {
    "burst": Question(
        "a burst of 13,500 spans at default settings",
        FIGURES,
        {"SDK and official": Case(burst(official), rounds=3), "mttp": Case(burst(own))},
        [
            Goal("7", "spans lost of a burst of 13,500, mttp", figure("mttp", "lost_pct"), 0, unit="%"),
            Goal(
                "7",
                "peak memory of the process meanwhile, mttp (256 MB may wait in memory)",
                figure("mttp", "peak_mb"),
                unit="MB",
            ),
        ],
        control=False,
    )
}

if __name__ == "__main__":
    main(QUESTIONS)
