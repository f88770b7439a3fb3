"""Spans of other instrumentations, and tracer providers of the program."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exporters import Exporter
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import (
    ReadableSpan,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, StatusCode, TraceFlags
from programs import told

import mttp
from mttp.errors import ConfigureError
from mttp.model.spans import SpanRecord
from mttp.recording import provider
from mttp.recording.provider import DelegatingProvider, Mirror
from mttp.transports.memory import MemoryTransport

tracer = trace.get_tracer("library", "1.2", None, "https://library.example/schemas/1", {"build": "fast"})
"""Created at import, before any session, as libraries do."""


@tracer.start_as_current_span("decorated")
def decorated() -> SpanContext:
    """A function with a span."""
    return trace.get_current_span().get_span_context()


@tracer.start_as_current_span("decorated")
async def decorated_async() -> SpanContext:
    """A coroutine with a span."""
    await asyncio.sleep(0)
    return trace.get_current_span().get_span_context()


def spans(session: mttp.Session) -> dict[str, SpanRecord]:
    """Return the recorded spans by name."""
    return {record.name: record for record in session.records()}


def work(**attributes: Any) -> mttp.recording.OpenEpisode:
    """Record one episode, and a request in its step."""
    with mttp.episode() as episode, episode.step(), tracer.start_as_current_span("GET") as span:
        span.set_attributes(attributes)
        span.add_event("event", attributes)
    return episode


def parent(*, sampled: bool, remote: bool = False, trace_id: int = 7) -> trace.Span:
    """A span of another library, known only by its context."""
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    return NonRecordingSpan(SpanContext(trace_id, 9, is_remote=remote, trace_flags=flags))


# Inside a step.


def test_a_span_of_another_library_is_the_steps_child(session: mttp.Session) -> None:
    """
    It is recorded with kind, times, status, events, links and scope.
    """
    linked = SpanContext(1, 2, is_remote=True)
    with mttp.episode() as episode, episode.step() as step:
        span = tracer.start_span(
            "GET", kind=SpanKind.CLIENT, links=[Link(linked, {"a": 1})], start_time=1_000
        )
        span.set_attributes({"url": "/", "status": 200, "ok": True, "seconds": 0.5, "tags": ["a", "b"]})
        span.add_event("sent", {"bytes": 3}, timestamp=1_500)
        span.set_status(StatusCode.ERROR, "refused")
        span.end(end_time=2_000)

    found = spans(session)["GET"]
    assert (episode.trace_id, step.span_id) == (found.trace_id, found.parent_id)
    assert (3, 1_000, 2_000, 2, "refused") == (
        found.kind,
        found.start_time,
        found.end_time,
        found.status_code,
        found.status_message,
    )
    tags = found.attributes.pop("tags")
    assert ({"url": "/", "status": 200, "ok": True, "seconds": 0.5}, ["a", "b"]) == (
        found.attributes,
        list(tags),
    )
    assert [("sent", 1_500, {"bytes": 3})] == [(e.name, e.time, e.attributes) for e in found.events]
    assert [(f"{2:016x}", {"a": 1})] == [(link.span_id, link.attributes) for link in found.links]
    assert ("library", "1.2", "https://library.example/schemas/1", {"build": "fast"}) == (
        found.scope.name,
        found.scope.version,
        found.scope.schema_url,
        found.scope.attributes,
    )
    assert session.run_id == found.scope.resource["mttp.run.id"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "runs/"])
def test_every_transport_gets_other_libraries_spans(name: str) -> None:
    """
    Memory, a file and an exporter get the same spans.
    """
    exporter, memory = Exporter(), MemoryTransport()
    with mttp.configure([memory, f"file://{name}"], exporters=[exporter]) as session:
        work()

    assert {(3 + 1, 0)} == {(each.delivered, each.pending) for each in session.stats.transports.values()}
    ids = {
        source: [(span.trace_id, span.span_id) for span in records if span.name == "GET"]
        for source, records in {
            "memory": memory.records(),
            "file": mttp.scan(name),
            "exporter": exporter.records(),
        }.items()
    }
    assert {1} == {len(found) for found in ids.values()}
    assert ids["memory"] == ids["file"] == ids["exporter"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("transport", ["memory://", "file://a.jsonl"])
@pytest.mark.parametrize(
    "value",
    [
        {"role": "user", "parts": [{"type": "text", "content": "2+2"}, {"n": 1, "deep": [[1, [2.5]], None]}]},
        [{"a": 1}, {"b": [True, "x"]}],
        b"\x00\xff",
        float("nan"),
        2**70,
        "lone \ud800 surrogate",
        "ü" * 100_000,
    ],
    ids=["nested", "list", "bytes", "nan", "huge", "surrogate", "long"],
)
def test_any_attributes_of_other_libraries_are_recorded(
    transport: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Attributes that the SDK accepts are delivered, and the episode is complete.
    """
    seen = InMemorySpanExporter()
    with mttp.configure(transport, processors=[SimpleSpanProcessor(seen)]) as session:
        work(value=value)
    (kept,) = [span.attributes or {} for span in seen.get_finished_spans() if span.name == "GET"]

    source = session if transport == "memory://" else "a.jsonl"
    (found,) = [span for span in mttp.scan(source, arrays=True) if span.name == "GET"]
    assert set(kept) == set(found.attributes)
    if isinstance(value, (dict, list, bytes)) and kept:
        assert plain(kept["value"]) == plain(found.attributes["value"])
    assert (True, {}) == (mttp.read(source).episodes[0].complete, dict(session.stats.lost))


def plain(value: Any) -> Any:
    """Return the value with lists and dicts only."""
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in value.items()} if hasattr(value, "items") else value


def test_spans_of_mttp_and_others_nest(session: mttp.Session) -> None:
    """
    An exception is recorded on both kinds of spans, and raised.
    """
    step = mttp.episode().step()
    call = step.model_call("m")
    tool, get = tracer.start_as_current_span("tool"), tracer.start_as_current_span("GET")
    with pytest.raises(ValueError, match="no"), step, tool, call, get:
        raise ValueError("no")

    found = spans(session)
    parents = {name: found[name].parent_id for name in ("tool", "chat m", "GET")}
    assert {"tool": step.span_id, "chat m": step.span_id, "GET": call.span_id} == parents
    assert [2, 2] == [found[name].status_code for name in ("tool", "GET")]
    assert ["exception"] == [event.name for event in found["GET"].events]


def test_decorated_functions_are_spans(session: mttp.Session) -> None:
    """
    They are sync or async, and may be decorated before the session opens.
    """

    async def both() -> None:
        await asyncio.gather(decorated_async(), decorated_async())

    with mttp.episode() as episode, episode.step() as step:
        decorated()
        asyncio.run(both())

    found = [record for record in session.records() if record.name == "decorated"]
    assert [step.span_id] * 3 == [record.parent_id for record in found]


def test_tasks_and_threads_inherit_the_step(session: mttp.Session) -> None:
    """
    Tasks do so by themselves, threads in a copy of the context.
    """
    found: dict[str, str] = {}

    async def play(name: str) -> None:
        async with mttp.episode(task=name) as episode, episode.step() as step:
            await asyncio.to_thread(decorated)
            thread = threading.Thread(target=contextvars.copy_context().run, args=(decorated,))
            thread.start()
            thread.join()
            found[episode.trace_id] = step.span_id

    async def main() -> None:
        await asyncio.gather(*(play(f"{number}") for number in range(20)))

    asyncio.run(main())

    guests = [(span.trace_id, span.parent_id) for span in session.records() if span.name == "decorated"]
    assert sorted([*found.items()] * 2) == sorted(guests)


# Outside of episodes.


def test_spans_outside_episodes_are_recorded(session: mttp.Session) -> None:
    """
    `scan` returns them, and they are not episodes.
    """
    with tracer.start_as_current_span("train"), tracer.start_as_current_span("load"), mttp.episode():
        pass
    with tracer.start_as_current_span("save"):
        pass

    found, recording = spans(session), mttp.read(session)
    assert (1, [], 1) == (len(recording), recording.problems, len(recording.runs))
    assert ("", found["train"].span_id, "") == (
        found["train"].parent_id,
        found["load"].parent_id,
        found["save"].parent_id,
    )
    assert 3 == len({found[name].trace_id for name in ("train", "save", "episode test")})


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("remote", [True, False])
def test_an_episode_within_a_span_is_a_root(sampled: bool, remote: bool) -> None:
    """
    It is linked to the outer span, and has its baggage.
    """
    seen: list[object] = []
    with mttp.configure("file://a.jsonl"):
        token = otel_context.attach(baggage.set_baggage("user", "ann"))
        with trace.use_span(parent(sampled=sampled, remote=remote)), mttp.episode(), mttp.step():
            seen.append(baggage.get_baggage("user"))
            decorated()
        otel_context.detach(token)

    (whole,) = mttp.read("a.jsonl").episodes
    found = {span.name: span for span in mttp.scan("a.jsonl", arrays=True)}
    assert (True, 1, ["ann"]) == (whole.complete, len(whole.steps), seen)
    assert ("", [f"{9:016x}"]) == (found["episode"].parent_id, [x.span_id for x in found["episode"].links])
    guest = found["decorated"]
    assert (whole.trace_id, whole.steps[0].span_id) == (guest.trace_id, guest.parent_id)


@pytest.mark.parametrize("sampled", [True, False])
def test_files_get_children_of_unsampled_spans(sampled: bool) -> None:
    """
    The sampled flag, which is the parent's, matters for collectors only.
    """
    seen = InMemorySpanExporter()
    with mttp.configure("memory://", processors=[SimpleSpanProcessor(seen)]) as session:
        span = tracer.start_span("GET", trace.set_span_in_context(parent(sampled=sampled)))
        found = (span.get_span_context().trace_flags.sampled, span.is_recording())
        span.end()

    assert (sampled, True) == found
    assert (f"{7:032x}", f"{9:016x}") == (spans(session)["GET"].trace_id, spans(session)["GET"].parent_id)
    assert int(sampled) == [span.name for span in seen.get_finished_spans()].count("GET")


@pytest.mark.parametrize(("ratio", "sent"), [(0.0, []), (1.0, ["load", "train"])])
def test_sampling_applies_to_traces_outside_episodes(ratio: float, sent: list[str]) -> None:
    """
    Collectors get whole traces or none; memory and files get all.
    """
    collector = Exporter()
    collector.sampled = True  # type: ignore[attr-defined]
    sampling = mttp.Sampling(ratio, keep=())
    train, load = tracer.start_as_current_span("train"), tracer.start_as_current_span("load")
    with mttp.configure("memory://", exporters=[collector], sampling=sampling) as session, train, load:
        pass

    assert {"train", "load"} <= set(spans(session))
    assert sent == sorted(set(collector.names()) & {"train", "load"})


# Reading.


def test_other_libraries_spans_do_not_count_for_completeness(tmp_path: Path) -> None:
    """
    A missing step makes an episode incomplete, a missing span of another library does not.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode:
        for _ in range(2):
            with episode.step(), tracer.start_as_current_span("GET"), tracer.start_as_current_span("dns"):
                pass
    document = [json.loads(line) for line in Path("a.jsonl").read_text().splitlines()]

    def complete(keep: Callable[[dict[str, Any]], bool]) -> list[bool]:
        kept = json.loads(json.dumps(document))
        for line in kept:
            for scope in line["resourceSpans"][0]["scopeSpans"]:
                scope["spans"] = [span for span in scope["spans"] if keep(span)]
        Path("b.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
        return [one.complete for one in mttp.read("b.jsonl").episodes]

    assert [3] == [one.span_count for one in mttp.read("a.jsonl").episodes]
    assert [True] == complete(lambda span: span["name"] not in ("GET", "dns"))
    missing = next(span["spanId"] for span in all_spans(document) if span["name"] == "step")
    assert [False] == complete(lambda span: span["spanId"] != missing)


def all_spans(document: list[Any]) -> Iterator[dict[str, Any]]:
    """Return every span of a file."""
    for line in document:
        for scope in line["resourceSpans"][0]["scopeSpans"]:
            yield from scope["spans"]


def chat(model: str, **attributes: Any) -> contextlib.AbstractContextManager[trace.Span]:
    """Record a model call as an instrumentation does."""
    stated = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": 11,
        **attributes,
    }
    return tracer.start_as_current_span(f"chat {model}", kind=SpanKind.CLIENT, attributes=stated)


def calls(source: Any) -> list[list[str | None]]:
    """Return the names of the calls of each step of the episode."""
    return [[call.name for call in step.calls] for step in mttp.read(source).episodes[0].steps]


def test_an_instrumentations_chat_span_is_a_call_of_the_step() -> None:
    """
    It is read as a call of `step.model_call`.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as episode:
        with episode.step(), chat("tiny", **{"gen_ai.response.finish_reasons": ["stop"]}) as span:
            pass
        with episode.step():
            pass

    (call,), () = (step.calls for step in mttp.read("a.jsonl").episodes[0].steps)
    assert ("chat", "tiny", 11, ("stop",)) == (
        call.operation,
        call.name,
        call.input_tokens,
        call.finish_reasons,
    )
    assert f"{span.get_span_context().span_id:016x}" == call.span_id


def test_calls_below_other_spans_are_calls_of_the_step(session: mttp.Session) -> None:
    """
    A client may be called within a traced function.
    """
    with mttp.episode() as episode, episode.step():
        with tracer.start_as_current_span("agent"), tracer.start_as_current_span("turn"):
            for model in ("first", "second"):
                with chat(model):
                    pass
        with chat("third"):
            pass

    assert [["first", "second", "third"]] == calls(session)


def test_a_call_that_several_layers_record_is_one_call(session: mttp.Session) -> None:
    """
    The outermost span is the call; those below are its details.
    """
    with mttp.episode() as episode, episode.step() as step:
        with step.model_call("own"), chat("other"):
            pass
        with chat("framework"), tracer.start_as_current_span("retry"), chat("client"):
            pass

    assert [["own", "framework"]] == calls(session)


def test_a_finish_reason_that_is_a_string_is_one_reason(session: mttp.Session) -> None:
    """
    Not every instrumentation follows the convention.
    """
    with mttp.episode() as episode, episode.step(), chat("m", **{"gen_ai.response.finish_reasons": "stop"}):
        pass

    assert [("stop",)] == [call.finish_reasons for call in mttp.read(session).episodes[0].steps[0].calls]


def test_bounded_memory_drops_other_traces() -> None:
    """
    Spans between episodes do not fill the memory; spans of an episode stay with it.
    """
    with mttp.configure("memory://?max_episodes=3") as session:
        for number in range(20):
            with tracer.start_as_current_span("between"):
                pass
            with mttp.episode(task=number) as episode, episode.step(), tracer.start_as_current_span("GET"):
                pass
            session.flush()

    names = [record.name for record in session.records()]
    assert (3, 3, 3, 1) == tuple(names.count(name) for name in ("between", "GET", "episode", "run"))
    assert ["17", "18", "19"] == [episode.task for episode in mttp.read(session)]


# Before, between and after sessions.


def test_without_a_session_tracers_propagate_the_context() -> None:
    """
    Nothing is recorded and nothing fails; children belong to the current trace.
    """
    mttp.configure("memory://").close()
    with trace.use_span(parent(sampled=True)):
        with tracer.start_as_current_span("GET", kind=SpanKind.CLIENT) as span:
            span.set_attribute("a", 1)
            inside = (span.is_recording(), trace.get_current_span().get_span_context().trace_id)
        through = decorated(), asyncio.run(decorated_async())
    with tracer.start_as_current_span("GET") as span:
        alone = span.get_span_context().is_valid
    explicit = tracer.start_span("GET", trace.set_span_in_context(parent(sampled=True, trace_id=8)))

    assert (False, 7) == inside
    assert [7, 7] == [context.trace_id for context in through]
    assert (False, 8) == (alone, explicit.get_span_context().trace_id)


def test_a_non_recording_tracer_raises_the_exception() -> None:
    """
    It is the original exception.
    """
    mttp.configure("memory://").close()

    with pytest.raises(ValueError, match="no"), tracer.start_as_current_span("GET"):
        raise ValueError("no")


def test_each_session_gets_the_spans_while_it_is_open() -> None:
    """
    A new session is plugged into the same tracers.
    """
    seen = []
    for name in ("first", "second", "third"):
        with mttp.configure("memory://", run_id=name) as session:
            decorated()
        decorated()
        seen.append([span.scope.resource["mttp.run.id"] for span in session.records()][:1])
        assert ["decorated", "run"] == [span.name for span in session.records()]

    assert [["first"], ["second"], ["third"]] == seen


def test_a_span_that_outlives_its_session_is_counted() -> None:
    """
    A span that ends without a session, or in another one, is recorded in none.
    """
    with mttp.configure("memory://", run_id="first") as first:
        early, late = tracer.start_span("early"), tracer.start_span("late")
        never = tracer.start_span("never")
    early.end()
    with mttp.configure("memory://", run_id="second") as second:
        late.end()

    assert {"session_closed": 2} == dict(first.stats.lost)
    assert ({"run"}, {"run"}) == (set(spans(first)), set(spans(second)))
    assert ({}, True) == (dict(second.stats.lost), never.is_recording())


def test_a_span_that_ends_after_its_episode_is_in_its_trace(session: mttp.Session) -> None:
    """
    For example a request that the episode did not wait for.
    """
    with mttp.episode() as episode, episode.step() as step:
        span = tracer.start_span("GET")
    session.flush()
    span.end()

    found = spans(session)["GET"]
    assert (episode.trace_id, step.span_id) == (found.trace_id, found.parent_id)
    assert [True] == [one.complete for one in mttp.read(session)]


def test_spans_of_threads_are_recorded_in_the_right_session() -> None:
    """
    Sessions open and close while threads create spans.
    """
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            with tracer.start_as_current_span("work"):
                time.sleep(0.0005)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    sessions = []
    for number in range(20):
        with mttp.configure("memory://", run_id=str(number)) as session:
            decorated()
        sessions.append(session)
    over.set()
    for thread in threads:
        thread.join()

    for session in sessions:
        records = list(session.records())
        assert {session.run_id} == {span.scope.resource["mttp.run.id"] for span in records}
        assert "decorated" in {span.name for span in records}
        assert {} == dict(session.stats.faults)


def test_an_internal_error_never_reaches_the_traced_code(
    session: mttp.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    It is counted.
    """

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(session, "_foreign_span_ended", broken)
    monkeypatch.setattr(session._observers, "started", broken)
    with tracer.start_as_current_span("GET"):
        pass

    assert {"internal_error": 2} == dict(session.stats.faults)


def test_invalid_span_limits_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    OpenTelemetry's variables apply to other libraries' spans; no session is left open and nothing is written.
    """
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    with pytest.raises(ConfigureError, match=r"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT.*many.*correct the variable"):
        mttp.configure("file://a.jsonl")
    assert [] == list(tmp_path.iterdir())

    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "1")
    with mttp.configure("memory://") as session:
        tracer.start_span("GET", attributes={"a": 1, "b": 2}).end()
    assert (["b"], 1) == ([*spans(session)["GET"].attributes], spans(session)["GET"].dropped_attributes)


# The provider as other libraries use it.


def test_the_provider_has_the_sdk_provider_s_interface(
    session: mttp.Session, caplog: pytest.LogCaptureFixture
) -> None:
    """
    Libraries add processors to the global provider, read its resource, and flush it.
    """
    found: Any = trace.get_tracer_provider()
    seen = InMemorySpanExporter()
    found.add_span_processor(SimpleSpanProcessor(seen))
    with mttp.episode() as episode, episode.step(), tracer.start_as_current_span("GET"):
        pass

    assert isinstance(found, DelegatingProvider)
    assert {"GET", "step", "episode test"} <= {span.name for span in seen.get_finished_spans()}
    assert session.run_id == found.resource.attributes["mttp.run.id"]
    assert found.force_flush(1_000)
    assert 0 == session.stats.pending
    found.shutdown()
    assert not session.closed

    session.close()
    with caplog.at_level(logging.WARNING):
        found.add_span_processor(SimpleSpanProcessor(seen))
    assert (Resource({}), True) == (found.resource, found.force_flush())
    assert ["no session is open"] == [line[6:24] for line in caplog.messages]


def test_the_provider_is_an_instance_of_the_sdk_s(session: mttp.Session) -> None:
    """
    Libraries check its class, and read its sampler, id generator and span processors.
    """
    found: Any = trace.get_tracer_provider()
    seen = SimpleSpanProcessor(InMemorySpanExporter())
    found._active_span_processor.add_span_processor(seen)
    tracer = found.get_tracer("library")

    assert isinstance(found, TracerProvider)
    assert "mttp" == found.sampler.get_description()
    assert found.id_generator.generate_trace_id() != found.id_generator.generate_trace_id()
    assert (seen,) == found._active_span_processor._span_processors
    assert ("library", session.run_id) == (
        tracer._instrumentation_scope.name,
        tracer.resource.attributes["mttp.run.id"],
    )

    session.close()

    assert "AlwaysOffSampler" == found.sampler.get_description()
    assert () == found._active_span_processor._span_processors
    assert not hasattr(found, "of_no_provider")


# The program's provider.


class ProgramProvider:
    """A tracer provider of the program, and what its processors get."""

    def __init__(self, *more: SpanProcessor, batch: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self.processors = SynchronousMultiSpanProcessor()
        for processor in (*more, (BatchSpanProcessor if batch else SimpleSpanProcessor)(self.exporter)):
            self.processors.add_span_processor(processor)

    def mirror(self) -> Mirror:
        """The transport to it."""
        return Mirror(self.processors, Resource({"service.name": "trainer", "zone": "a"}), "TracerProvider")

    def spans(self) -> tuple[ReadableSpan, ...]:
        """Return the spans that its exporter got."""
        self.processors.force_flush()
        return self.exporter.get_finished_spans()


@pytest.mark.parametrize("batch", [False, True])
def test_a_mirror_passes_every_span_once(batch: bool) -> None:
    """
    Ids are kept, so that the provider's spans are children of mttp's; the resource is the provider's with the
    run id.
    """
    foreign = ProgramProvider(batch=batch)
    with mttp.configure("memory://", exporters=[foreign.mirror()]) as session:
        for _ in range(10):
            with mttp.episode() as episode, episode.step() as step:
                step.reward(1.0)

    found = foreign.spans()
    assert sorted((span.trace_id, span.span_id, span.name) for span in session.records()) == sorted(
        (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}", span.name)
        for span in found
        if span.context
    )
    assert {("trainer", "a", session.run_id)} == {
        tuple(span.resource.attributes[key] for key in ("service.name", "zone", "mttp.run.id"))
        for span in found
    }
    assert {"mttp"} == {span.scope.resource["service.name"] for span in session.records()}


class Raising(SpanProcessor):
    """A processor that rejects steps."""

    def on_end(self, span: ReadableSpan) -> None:
        """Raise for a step."""
        if span.name == "step":
            raise RuntimeError("no steps, please")


@pytest.mark.parametrize("first", [True, False])
def test_spans_that_a_mirror_rejects_are_lost(first: bool) -> None:
    """
    Processors that took a span do not get it again, and no other transport is affected.
    """
    foreign = ProgramProvider(*([Raising()] if first else []))
    if not first:
        foreign.processors.add_span_processor(Raising())
    with mttp.configure("memory://", exporters=[foreign.mirror()]) as session:
        for _ in range(3):
            with mttp.episode() as episode, episode.step():
                pass
            session.flush()

    names = [span.name for span in foreign.spans()]
    assert (3, 0 if first else 3) == (names.count("episode"), names.count("step"))
    assert {"mirror_failed": 3} == dict(session.stats.transports["mirror of TracerProvider"].lost)
    assert {} == dict(session.stats.transports["memory://"].lost)
    assert all(episode.complete for episode in mttp.read(session))


def test_a_mirror_needs_a_provider_of_the_program() -> None:
    """
    mttp's own does not count; no session is left open.
    """
    mttp.configure("memory://").close()

    with pytest.raises(ConfigureError, match="no other tracer provider is set; set yours before"):
        mttp.configure("memory://", mirror=True)

    assert mttp.current_session() is None


def test_a_mirror_needs_a_provider_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Other providers take no ended spans; their exporters do.
    """
    monkeypatch.setattr(trace, "get_tracer_provider", trace.NoOpTracerProvider)

    with pytest.raises(ConfigureError, match=r"NoOpTracerProvider is not the SDK's.*exporters=\[\.\.\.\]"):
        mttp.configure("memory://", mirror=True)
    with mttp.configure("memory://") as session:
        assert not provider.install(session)


# What a process can do only once.

FOREIGN = """
import json, sys
import mttp
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider, sampling
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

tracer = trace.get_tracer("http")
exporter = InMemorySpanExporter()
theirs = TracerProvider(resource=Resource({"service.name": "trainer"}))
theirs.add_span_processor(SimpleSpanProcessor(exporter))

def play():
    with mttp.episode() as episode, episode.step() as step, tracer.start_as_current_span("GET"):
        step.reward(1.0)
    return episode

def say(**what):
    print(json.dumps(what))

def shown():
    return {span.name: span for span in exporter.get_finished_spans()}
"""


def test_only_configure_installs_the_provider() -> None:
    """
    An implicit session leaves the global provider unset, and the program may set one later.
    """
    found = told(
        FOREIGN
        + """
@tracer.start_as_current_span("decorated")
def decorated():
    return trace.get_current_span().is_recording()

kinds = [type(trace.get_tracer_provider()).__name__]
early = [decorated()]
play()
kinds.append(type(trace.get_tracer_provider()).__name__)
with mttp.configure("file://a.jsonl"):
    kinds.append(type(trace.get_tracer_provider()).__name__)
    inside = decorated()
    play()
say(kinds=kinds, early=early, inside=inside, after=decorated(),
    spans=sorted(span.name for span in mttp.scan("a.jsonl")))
""",
        warned="mttp: recording episodes to",
    )

    proxy = "ProxyTracerProvider"
    assert [proxy, proxy, "DelegatingProvider"] == found["kinds"]
    assert ([False], True, False) == (found["early"], found["inside"], found["after"])
    assert ["GET", "decorated", "episode", "run", "step"] == found["spans"]


@pytest.mark.parametrize("root", ["ALWAYS_ON", "ALWAYS_OFF"])
def test_a_provider_that_was_set_before_is_left_untouched(root: str) -> None:
    """
    Its spans have the episode's trace id and go to its exporters; mttp's file has the whole episode.
    """
    found = told(
        FOREIGN
        + f"""
theirs.sampler = sampling.ParentBased(sampling.{root})
trace.set_tracer_provider(theirs)
with mttp.configure("file://a.jsonl") as session:
    with tracer.start_as_current_span("job"):
        play()
(episode,) = mttp.read("a.jsonl").episodes
get = shown()["GET"]
say(same=trace.get_tracer_provider() is theirs, whole=episode.complete and len(episode.steps),
    below=(f"{{get.context.trace_id:032x}}", f"{{get.parent.span_id:016x}}")
      == (episode.trace_id, episode.steps[0].span_id),
    theirs=sorted(shown()), ours=sorted(span.name for span in mttp.scan("a.jsonl")))
"""
    )

    assert (True, 1, True) == (found["same"], found["whole"], found["below"])
    assert ["episode", "run", "step"] == found["ours"]
    assert (["GET", "job"] if root == "ALWAYS_ON" else ["GET"]) == found["theirs"]


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("kind", ["SimpleSpanProcessor", "BatchSpanProcessor"])
def test_a_mirror_delivers_whole_episodes_at_exit(kind: str, close: bool) -> None:
    """
    Every parent is there, even if no code closes the session.
    """
    found = told(
        FOREIGN
        + f"""
import atexit
ended = InMemorySpanExporter()

def tell():
    spans = {{f"{{s.context.span_id:016x}}": s for s in ended.get_finished_spans()}}
    say(missing=[s.name for s in spans.values() if s.parent and f"{{s.parent.span_id:016x}}" not in spans],
        names=sorted(s.name for s in spans.values() if s.name != "run.start" and s.name != "episode.start"),
        ids=sorted(spans) == sorted([s.span_id for s in mttp.scan("a.jsonl")] +
            [id for id, s in spans.items() if s.name == "GET"]),
        services=sorted({{s.resource.attributes["service.name"] for s in spans.values()}}))

atexit.register(tell)  # runs last
play()
theirs = TracerProvider(resource=Resource({{"service.name": "trainer"}}))
theirs.add_span_processor({kind}(ended))
trace.set_tracer_provider(theirs)
session = mttp.configure("file://a.jsonl", mirror=True, content=False)
play()
if {close}:
    session.close()
    theirs.shutdown()
""",
        warned="mttp: recording episodes to",
    )

    assert ([], True, ["trainer"]) == (found["missing"], found["ids"], found["services"])
    assert ["GET", "episode", "run", "step"] == found["names"]


def test_a_provider_set_during_an_implicit_session_is_kept() -> None:
    """
    The session records mttp's spans, the provider gets its own.
    """
    found = told(
        FOREIGN
        + """
play()
trace.set_tracer_provider(theirs)
play()
session = mttp.current_session()
session.close()
recording = mttp.read(session.location)
say(same=trace.get_tracer_provider() is theirs, theirs=sorted(shown()),
    whole=[episode.complete for episode in recording], problems=len(recording.problems))
""",
        warned="mttp: recording episodes to",
    )

    assert (True, ["GET"], [True, True], 0) == tuple(found.values())


def test_opentelemetry_rejects_a_provider_after_configure() -> None:
    """
    It logs a warning; mttp's provider stays, and everything is recorded.
    """
    found = told(
        FOREIGN
        + """
session = mttp.configure("file://a.jsonl")
trace.set_tracer_provider(theirs)
play()
session.close()
with mttp.configure("file://b.jsonl"):
    play()
say(theirs=sorted(shown()), whole=[e.complete for name in "ab" for e in mttp.read(f"{name}.jsonl")],
    guests=[s.name for name in "ab" for s in mttp.scan(f"{name}.jsonl")].count("GET"))
""",
        warned="Overriding of current TracerProvider is not allowed",
    )

    assert ([], [True, True], 2) == tuple(found.values())


@pytest.mark.parametrize("theirs", [True, False])
def test_otel_sdk_disabled_installs_no_provider(theirs: bool) -> None:
    """
    Not even a missing provider for a mirror is an error.
    """
    found = told(
        f"import os; os.environ['OTEL_SDK_DISABLED'] = 'true'\n{FOREIGN}"
        + f"""
if {theirs}:
    trace.set_tracer_provider(theirs)
processors = [SimpleSpanProcessor(exporter)]
session = mttp.configure("file://a.jsonl", mirror=True, content=False, processors=processors)
episode = play()
session.close()
say(installed=type(trace.get_tracer_provider()).__name__, shown=len(shown()), recorded=bool(episode),
    files=[str(path) for path in __import__("pathlib").Path().iterdir()])
""",
        warned="mttp: nothing is recorded: OTEL_SDK_DISABLED is true",
    )

    assert ("TracerProvider" if theirs else "ProxyTracerProvider", 0, False, []) == tuple(found.values())


def test_a_forked_child_records_other_libraries_spans() -> None:
    """
    Each is recorded once, below the step that was current at the fork.
    """
    found = told(
        """
import json, multiprocessing
import mttp
from opentelemetry import trace
tracer = trace.get_tracer("http")

def work(number):
    with tracer.start_as_current_span(f"child {number}"):
        pass

with mttp.configure("file://runs/"):
    with mttp.episode() as episode, episode.step() as step:
        context = multiprocessing.get_context("fork")
        children = [context.Process(target=work, args=(number,)) for number in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        work(3)
spans = [span for span in mttp.scan("runs/") if span.name.startswith("child")]
print(json.dumps(dict(names=sorted(span.name for span in spans), ids=len({span.span_id for span in spans}),
    below={span.parent_id for span in spans} == {step.span_id}, codes=[child.exitcode for child in children],
    whole=[one.complete for one in mttp.read("runs/")])))
"""
    )

    assert ([f"child {number}" for number in range(4)], 4, True, [0] * 3, [True]) == tuple(found.values())
