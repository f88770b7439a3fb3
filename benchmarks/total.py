"""
What steps cost altogether, from the call to OTLP protobuf: recording, encoding, sending, children included.

An episode is one root and 8 steps; a step is a reward, 256 token ids and 256 log probabilities, given as
numpy arrays; the SDK is given `.tolist()` of them. Both have a thread that encodes, at default settings,
the SDK's with a queue that holds all; 32 episodes are recorded and flushed, again and again, and all of
that is timed. `bytes` ends at the encoded requests, `sent` at an OTLP receiver in another process, whose
time does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from goals import Goal, times
from harness import main
from questions import Case, Question, worked
from recording import sdk_record_arrays
from workload import STEPS, episodes

EPISODES = 32
FIGURES = {"cpu_us": "CPU µs per step", "wall_us": "wall time", "peak_mb": "peak memory in MB"}


def _sdk(target: Any) -> tuple[Any, Any]:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(target, max_queue_size=4096))
    return provider, sdk_record_arrays(provider.get_tracer("benchmark"))


def sdk_bytes() -> Callable[[], list[bytes]]:
    """The SDK records, the official encoder encodes."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return _encoded(lambda spans: bytes(encode_spans(spans).SerializeToString()), _sdk_work)


def own_bytes() -> Callable[[], list[bytes]]:
    """Ours, all of it: session, episodes, steps, and the thread that encodes."""
    from mttp.wire.otlp_proto import encode_spans

    return _encoded(lambda spans: encode_spans(spans, attrgetter("values")), _own_work)


def _encoded(
    encode: Callable[[Any], bytes], work: Callable[[Any], Callable[[], object]]
) -> Callable[[], list[bytes]]:
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    requests: list[bytes] = []

    class Encoding(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            requests.append(encode(spans))
            return SpanExportResult.SUCCESS

    record = work(Encoding())

    def encoded() -> list[bytes]:
        requests.clear()
        record()
        return requests

    return encoded


def _sdk_work(target: Any) -> Callable[[], object]:
    provider, record = _sdk(target)
    given = episodes(EPISODES)

    def work() -> None:
        record(given)
        provider.force_flush()

    return work


def _own_work(target: Any) -> Callable[[], object]:
    import mttp

    session, given = mttp.configure(target), episodes(EPISODES)

    def work() -> None:
        for steps in given:
            with mttp.episode() as episode:
                for reward, ids, logprobs in steps:
                    with episode.step() as step:
                        step.reward(reward)
                        step.tokens(ids=ids, logprobs=logprobs)
        assert session.flush(60.0)

    return work


def tokens_told(requests: Iterable[bytes]) -> bytes:
    """The token arrays of all steps, sorted."""
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    return _arrays(
        span
        for request in requests
        for block in TracesData.FromString(request).resource_spans
        for scoped in block.scope_spans
        for span in scoped.spans
    )


def _arrays(spans: Iterable[Any]) -> bytes:
    ends = ("ids", "logprobs")
    found = [
        pair.value.SerializeToString(deterministic=True)
        for span in spans
        if span.name == "step"
        for pair in span.attributes
        if pair.key.endswith(ends) and pair.value.HasField("array_value")
    ]
    assert len(found) == 2 * EPISODES * STEPS, f"{len(found)} arrays arrived, not {2 * EPISODES * STEPS}"
    return b"".join(sorted(found))


def sent(make: Callable[[str], Callable[[], object]]) -> Callable[[float], tuple[bytes, dict[str, float]]]:
    """A measure of what is sent to a receiver in another process."""

    def measure(seconds: float) -> tuple[bytes, dict[str, float]]:
        from sink import Sink

        sink = Sink()
        work = make(sink.address)
        work()
        said = _arrays(sink.spans())
        sink.keep_nothing()
        figures = worked(lambda: work, lambda _: b"", EPISODES * STEPS, without=(sink.pid,))(seconds)[1]
        return said, figures

    return measure


def sdk_sent(address: str) -> Callable[[], object]:
    """The SDK and the official exporter."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return _sdk_work(OTLPSpanExporter(f"{address}/v1/traces"))


def own_sent(address: str) -> Callable[[], object]:
    """Ours, with its own transport."""
    return _own_work(address)


_TIMES = times("SDK and official", "mttp", "cpu_us")
_TEXT = "total CPU per step to OTLP protobuf bytes: SDK and official over mttp"
_SENT = "the same, sent to an OTLP receiver over HTTP"


QUESTIONS = {
    "bytes": Question(
        "steps from the call to OTLP protobuf bytes",
        FIGURES,
        {
            "SDK and official": Case(worked(sdk_bytes, tokens_told, EPISODES * STEPS)),
            "mttp": Case(worked(own_bytes, tokens_told, EPISODES * STEPS)),
        },
        [Goal("2", _TEXT, _TIMES, 7, 10, at_least=True)],
    ),
    "sent": Question(
        "steps from the call to an OTLP receiver over HTTP",
        FIGURES,
        {"SDK and official": Case(sent(sdk_sent)), "mttp": Case(sent(own_sent))},
        [Goal("2", _SENT, _TIMES, at_least=True)],
        rounds=3,
    ),
}

if __name__ == "__main__":
    main(QUESTIONS)
