"""
What records the chat episodes: mttp, the OpenTelemetry SDK, mlflow and langfuse, as their pages show.

All are given the same facts and record all of them. mttp takes messages, lists and numpy arrays as they are.
The SDK takes text and lists: its caller writes messages as JSON and arrays by `.tolist()`, which is part of
what recording costs there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from chat import ENV, POLICY, WEIGHTS, Chat, Step

__all__ = ["LOCAL", "ROOM", "Recorder", "langfuse", "mlflow", "own", "sdk_file", "sdk_otlp"]

LOCAL = Path("recorded")
"""The file in which all episodes arrive."""
ROOM = 2**20
"""Size of the SDK's queue, so that it loses no spans; the default is 2,048."""


class Recorder(NamedTuple):
    """One recorder."""

    play: Callable[[Chat], Iterator[None]]
    """Records an episode; yields before each step."""
    flush: Callable[[], object]
    """Returns when everything has arrived."""
    close: Callable[[], object]
    """Flushes and ends recording."""
    apart: Sequence[int] = ()
    """Processes that are not measured: the receiver."""


def own() -> Recorder:
    """mttp to a file, at default settings."""
    import mttp

    session = mttp.configure(f"file://{LOCAL.absolute()}.jsonl")

    def play(chat: Chat) -> Iterator[None]:
        version = str(chat.number // 1000)
        with mttp.episode(
            env=ENV, task=chat.task, policy=POLICY, policy_version=version, seed=chat.number
        ) as episode:
            for given in chat.steps:
                yield
                with episode.step() as step:
                    step.observation(given.messages)
                    step.action(given.action)
                    step.tokens(ids=given.ids, logprobs=given.logprobs)
                    if given.tool is not None:
                        name, arguments, number, result = given.tool
                        with step.tool_call(name, arguments=arguments, id=number) as call:
                            call.result(result)
                    if given.scores:
                        step.reward(given.reward, components=given.scores, weights=WEIGHTS)
            episode.end(terminated=True, outcome="success")

    def flush() -> None:
        assert session.flush(600.0)

    def close() -> None:
        session.close()
        lost = sum(session.stats.lost.values())
        assert not lost, f"{lost} spans were lost"

    return Recorder(play, flush, close)


# The OpenTelemetry SDK.


def sdk_file(room: int | None = ROOM) -> Recorder:
    """The SDK with a BatchSpanProcessor and its JSON file exporter."""
    from opentelemetry.exporter.otlp.json.file import (  # type: ignore[import-not-found]  # in its environment
        FileSpanExporter,
    )

    return _sdk(FileSpanExporter(path=f"{LOCAL}.jsonl"), room)


def sdk_otlp(room: int | None = ROOM) -> Recorder:
    """The SDK with a BatchSpanProcessor and its OTLP exporter, to a receiver."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from sink import Sink

    sink = Sink(LOCAL)
    return _sdk(OTLPSpanExporter(f"{sink.address}/v1/traces"), room)._replace(apart=(sink.pid,))


def _sdk(exporter: Any, room: int | None) -> Recorder:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    _quiet()
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter, max_queue_size=room))
    tracer = provider.get_tracer("benchmark")

    def play(chat: Chat) -> Iterator[None]:
        with tracer.start_as_current_span("episode") as episode:
            identity = {
                "run.id": "0123456789abcdef",
                "episode.id": f"{episode.get_span_context().trace_id:032x}",
            }
            episode.set_attributes({**identity, **_opened(chat)})
            for index, given in enumerate(chat.steps):
                yield
                with tracer.start_as_current_span("step") as step:
                    step.set_attributes({**identity, "step.index": index})
                    step.set_attribute("observation", json.dumps(given.messages))
                    step.set_attribute("action", given.action)
                    step.set_attribute("ids", _listed(given.ids))
                    step.set_attribute("logprobs", _listed(given.logprobs))
                    if given.tool is not None:
                        with tracer.start_as_current_span("tool") as tool:
                            tool.set_attributes({**identity, "step.index": index, **_called(given)})
                    if given.scores:
                        step.set_attributes(_scoring(given))
            episode.set_attributes(_ended(chat))

    def close() -> None:
        provider.force_flush()
        provider.shutdown()

    return Recorder(play, provider.force_flush, close)


def _quiet() -> None:
    """Log nothing: the SDK logs a full queue in each call; losses are counted by what arrives."""
    import logging

    logging.disable()


def _listed(numbers: Any) -> Any:
    return numbers if type(numbers) is list else numbers.tolist()


def _opened(chat: Chat) -> dict[str, Any]:
    version = str(chat.number // 1000)
    return {"env": ENV, "task": chat.task, "policy": POLICY, "policy.version": version, "seed": chat.number}


def _ended(chat: Chat) -> dict[str, Any]:
    reward = chat.steps[-1].reward
    return {"terminated": True, "outcome": "success", "length": len(chat.steps), "return": reward}


def _called(given: Step) -> dict[str, Any]:
    assert given.tool is not None
    name, arguments, number, result = given.tool
    return {"name": name, "arguments": json.dumps(arguments), "id": number, "result": result}


def _scoring(given: Step) -> dict[str, Any]:
    return {
        "reward": given.reward,
        **{f"score.{name}": score for name, score in given.scores.items()},
        **{f"weight.{name}": weight for name, weight in WEIGHTS.items()},
    }


# Others, from lists.


def mlflow() -> Recorder:
    """mlflow-tracing: its spans with inputs, outputs and attributes, sent by OTLP."""
    from sink import Sink

    sink = Sink(LOCAL)
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{sink.address}/v1/traces"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ["OTEL_BSP_MAX_QUEUE_SIZE"] = str(ROOM)
    import mlflow as peer
    from mlflow.tracing.provider import get_bridged_tracer_provider

    _quiet()
    peer.set_tracking_uri(sink.address)  # nothing is asked there
    provider = get_bridged_tracer_provider()

    def play(chat: Chat) -> Iterator[None]:
        with peer.start_span("episode", span_type="AGENT") as episode:
            episode.set_attributes(_opened(chat))
            for index, given in enumerate(chat.steps):
                yield
                with peer.start_span("step", span_type="CHAIN") as step:
                    step.set_inputs(given.messages)
                    step.set_outputs(given.action)
                    step.set_attributes({"step.index": index, "ids": given.ids, "logprobs": given.logprobs})
                    if given.tool is not None:
                        with peer.start_span(given.tool.name, span_type="TOOL") as tool:
                            tool.set_inputs(given.tool.arguments)
                            tool.set_outputs(given.tool.result)
                            tool.set_attributes({"step.index": index, "id": given.tool.id})
                    if given.scores:
                        step.set_attributes(_scoring(given))
            episode.set_attributes(_ended(chat))

    def close() -> None:
        provider.force_flush(600_000)
        provider.shutdown()

    return Recorder(play, provider.force_flush, close, (sink.pid,))


def langfuse() -> Recorder:
    """langfuse: nested observations with input, output and metadata, sent to its endpoint."""
    from sink import Sink

    sink = Sink(LOCAL)
    os.environ["OTEL_BSP_MAX_QUEUE_SIZE"] = str(ROOM)
    from langfuse import Langfuse

    _quiet()
    client = Langfuse(public_key="pk", secret_key="sk", base_url=sink.address)

    def play(chat: Chat) -> Iterator[None]:
        with client.start_as_current_observation(name="episode", as_type="agent") as episode:
            episode.update(metadata=_opened(chat))
            for index, given in enumerate(chat.steps):
                yield
                with client.start_as_current_observation(name="step", as_type="chain") as step:
                    metadata = {"step.index": index, "ids": given.ids, "logprobs": given.logprobs}
                    step.update(input=given.messages, output=given.action, metadata=metadata)
                    if given.tool is not None:
                        name, arguments, number, result = given.tool
                        with client.start_as_current_observation(
                            name=name, as_type="tool", input=arguments
                        ) as tool:
                            tool.update(output=result, metadata={"step.index": index, "id": number})
                    if given.scores:
                        step.update(metadata=_scoring(given))
            episode.update(metadata=_ended(chat))

    return Recorder(play, client.flush, client.shutdown, (sink.pid,))
