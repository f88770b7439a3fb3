"""
How many of 13,500 spans are lost that come as fast as they can, at default settings, to a receiver of OTLP.

1,500 episodes of 8 steps, each a reward, 256 token ids and 256 log probabilities as lists, are recorded, and
recording is closed. The receiver is another process; what it was sent is counted by span id. The SDK has its
BatchSpanProcessor and the official exporter, at their default settings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from cases import Case, Figures, Measure
from chat import Chat, chats

SECONDS, QUICK_SECONDS, ROUNDS = 1500.0, 8.0, 3
"""Number of episodes."""
RECEIVED = Path("received")


def _own(address: str) -> tuple[Callable[[Chat], None], Callable[[], object]]:
    import mttp

    session = mttp.configure(address)

    def play(chat: Chat) -> None:
        with mttp.episode() as episode:
            for given in chat.steps:
                with episode.step() as step:
                    step.reward(0.5)
                    step.tokens(ids=given.ids, logprobs=given.logprobs)

    def close() -> None:
        session.flush(120.0)
        session.close()

    return play, close


def _sdk(address: str) -> tuple[Callable[[Chat], None], Callable[[], object]]:
    import logging

    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    logging.disable()  # it says that its queue is full
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{address}/v1/traces")))
    tracer = provider.get_tracer("benchmark")

    def play(chat: Chat) -> None:
        with tracer.start_as_current_span("episode"):
            for given in chat.steps:
                with tracer.start_as_current_span("step") as step:
                    step.set_attribute("reward", 0.5)
                    step.set_attribute("ids", given.ids)
                    step.set_attribute("logprobs", given.logprobs)

    def close() -> None:
        provider.force_flush()
        provider.shutdown()

    return play, close


def burst(make: Callable[[str], tuple[Callable[[Chat], None], Callable[[], object]]]) -> Measure:
    """Return a measure of a burst of that many episodes."""

    def measure(episodes: float) -> Figures:
        from sink import Sink

        sink, given = Sink(RECEIVED), chats(lists=True)
        play, close = make(sink.address)
        for number in range(round(episodes)):
            play(given[number % len(given)])
        close()
        sink.close()
        return {"spans": 9 * round(episodes)}

    return measure


def _lost(figures: Figures) -> Figures:
    """Count the episodes that arrived."""
    from sink import received

    arrived = {span.span_id for span in received(RECEIVED) if _counts(span)}
    lost = figures["spans"] - len(arrived)
    return {"lost": lost, "lost_pct": 100 * lost / figures["spans"]}


def _counts(span: Any) -> bool:
    """Whether a span belongs to the burst, and is not a start marker or the run."""
    return span.name == "step" or (span.name.startswith("episode") and not span.parent_span_id)


CASES = {
    "SDK, OTLP": Case(burst(_sdk), check=_lost),
    "mttp": Case(burst(_own), check=_lost),
}
