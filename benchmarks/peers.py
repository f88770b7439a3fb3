"""
What a user would pick instead: each records the same steps as its documentation shows, and sends nothing.

Every peer has an environment of its own. Exporters are in memory and forget what they were given, but for
what is recorded ahead of the measurement, which must be there. Peers do different work: JSON for a page,
copies that are checked. These are costs, not verdicts.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from questions import Environment
from workload import Episodes, Recorder, Steps

__all__ = ["PEERS", "Kept", "exporter", "plain"]

NUMPY = "numpy>=1.26"


class Kept:
    """An exporter's spans of the beginning."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self._forgets = False

    def take(self, spans: Sequence[Any]) -> None:
        """Keep them, unless they are forgotten by now."""
        if not self._forgets:
            self.spans.extend(spans)

    def steps(self, read: Callable[[Any], tuple[Any, Any, Any]]) -> Steps:
        """What the steps say; what comes from here on is forgotten."""
        self._forgets = True
        return [read(span) for span in self.spans if span.name == "step"]


def exporter(kept: Kept) -> Any:
    """An exporter of the SDK's that does nothing else."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class Keeping(SpanExporter):
        def export(self, spans: Any) -> Any:
            kept.take(spans)
            return SpanExportResult.SUCCESS

    return Keeping()


def openinference() -> Recorder:
    """openinference-instrumentation: its tracer, a span per step, attributes as they are."""
    from openinference.instrumentation import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    kept, provider = Kept(), TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter(kept)))
    tracer = provider.get_tracer("benchmark")

    def record(given: Episodes) -> None:
        for steps in given:
            with tracer.start_as_current_span("episode", openinference_span_kind="agent"):
                for reward, ids, logprobs in steps:
                    with tracer.start_as_current_span("step", openinference_span_kind="chain") as step:
                        step.set_attribute("reward", reward)
                        step.set_attribute("ids", ids)
                        step.set_attribute("logprobs", logprobs)

    return Recorder(record, provider.force_flush, lambda: kept.steps(plain))


def logfire() -> Recorder:
    """logfire: `logfire.span` with attributes, neither sent nor printed."""
    import logfire as peer
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    kept = Kept()
    processors = [BatchSpanProcessor(exporter(kept))]
    peer.configure(send_to_logfire=False, console=False, additional_span_processors=processors)

    def record(given: Episodes) -> None:
        for steps in given:
            with peer.span("episode"):
                for reward, ids, logprobs in steps:
                    with peer.span("step", reward=reward, ids=ids, logprobs=logprobs):
                        pass

    return Recorder(record, peer.force_flush, lambda: kept.steps(_texts("", "reward")))


def langfuse() -> Recorder:
    """langfuse: nested observations, reward and arrays as their metadata."""
    from langfuse import Langfuse

    kept = Kept()
    client = Langfuse(
        public_key="pk", secret_key="sk", base_url="http://127.0.0.1:9", span_exporter=exporter(kept)
    )

    def record(given: Episodes) -> None:
        for steps in given:
            with client.start_as_current_observation(name="episode"):
                for reward, ids, logprobs in steps:
                    with client.start_as_current_observation(name="step") as step:
                        step.update(metadata={"reward": reward, "ids": ids, "logprobs": logprobs})

    return Recorder(record, client.flush, lambda: kept.steps(_texts("langfuse.observation.metadata.")))


def mlflow() -> Recorder:
    """mlflow-tracing: `mlflow.start_span` with attributes; its client calls no server."""
    import mlflow as peer
    from mlflow.entities.trace_location import MlflowExperimentLocation
    from mlflow.tracing.client import TracingClient

    kept = Kept()
    TracingClient.log_spans = lambda _, __, spans: kept.take(spans)
    TracingClient.start_trace = lambda _, info: info
    TracingClient._upload_trace_data = lambda *_: None
    peer.set_tracking_uri("http://127.0.0.1:9")
    peer.tracing.set_destination(MlflowExperimentLocation("0"))

    def record(given: Episodes) -> None:
        for steps in given:
            with peer.start_span("episode"):
                for reward, ids, logprobs in steps:
                    with peer.start_span("step") as step:
                        step.set_attributes({"reward": reward, "ids": ids, "logprobs": logprobs})

    return Recorder(record, peer.flush_trace_async_logging, lambda: kept.steps(plain))


def agent_lightning() -> Recorder:
    """agent-lightning: a trace context per episode, an operation per step, no store."""
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else a library of its fetches a file
    import agentlightning as peer

    kept, tracer = Kept(), peer.OtelTracer()
    tracer.init()
    tracer.init_worker(0)

    async def play(given: Episodes) -> None:
        for steps in given:
            async with tracer.trace_context("episode"):
                with peer.operation(name="episode"):
                    for reward, ids, logprobs in steps:
                        with peer.operation(name="step", reward=reward, ids=ids, logprobs=logprobs):
                            pass
            kept.take(tracer.get_last_trace() if not kept.spans or len(kept.spans) < 18 else ())

    def read() -> Steps:
        name = "agentlightning.operation.name"
        return [plain(span) for span in kept.spans if span.attributes.get(name) == "step"]

    return Recorder(lambda given: asyncio.run(play(given)), lambda: None, read)


def plain(span: Any) -> tuple[Any, Any, Any]:
    """What a span says whose attributes are the arrays."""
    return span.attributes["reward"], span.attributes["ids"], span.attributes["logprobs"]


def _texts(prefix: str, *as_they_are: str) -> Callable[[Any], tuple[Any, Any, Any]]:
    """Of attributes that hold JSON."""

    def read(span: Any) -> tuple[Any, Any, Any]:
        found = {name: span.attributes[prefix + name] for name in ("reward", "ids", "logprobs")}
        read = {name: value if name in as_they_are else json.loads(value) for name, value in found.items()}
        return read["reward"], read["ids"], read["logprobs"]

    return read


PEERS: dict[str, tuple[Environment, Callable[[], Recorder]]] = {
    "openinference": (
        Environment("openinference", ("openinference-instrumentation==0.1.72", NUMPY)),
        openinference,
    ),
    "logfire": (Environment("logfire", ("logfire==5.2.0", NUMPY)), logfire),
    "langfuse": (Environment("langfuse", ("langfuse==5.0.4", NUMPY)), langfuse),
    "mlflow-tracing": (Environment("mlflow-tracing", ("mlflow-tracing==3.17.2", NUMPY)), mlflow),
    "agent-lightning": (
        Environment(
            "agent-lightning",
            ("agentlightning==0.3.0", "agentops==0.4.21", "litellm==1.106.2", NUMPY),
        ),
        agent_lightning,
    ),
}
"""By name, where each is installed, and how it records."""
