"""The user's span processors: they get every span, and their errors harm nothing."""

from __future__ import annotations

import io
import logging
import threading
from typing import Any

import pytest
from opentelemetry import baggage, trace
from opentelemetry import context as otel_context
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from programs import told

import mttp
from mttp.errors import ConfigureError

tracer = trace.get_tracer("library")


class Processor(SpanProcessor):
    """Records its calls; each method can be made to fail, or to wait."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.failing: set[str] = set()
        self.hanging: set[str] = set()
        self.open = threading.Event()
        """What hangs goes on once it is set."""

    def _note(self, call: str, *what: str) -> None:
        self.called.append(" ".join([call, *what]))
        if call in self.hanging:
            self.open.wait()
        if call in self.failing:
            raise RuntimeError("broken")

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self._note("on_start", span.name)

    def on_end(self, span: ReadableSpan) -> None:
        self._note("on_end", span.name)

    def shutdown(self) -> None:
        self._note("shutdown")

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        self._note("force_flush")
        return True


def play() -> mttp.recording.OpenEpisode:
    """Record one episode with a span of another library."""
    with mttp.episode() as episode, episode.step() as step, tracer.start_as_current_span("GET"):
        step.reward(1.0)
    return episode


@pytest.mark.parametrize("kind", [SimpleSpanProcessor, BatchSpanProcessor])
def test_the_sdks_processors_get_our_spans_and_others(kind: Any) -> None:
    """
    Processors of the SDK export them; all spans are one tree.
    """
    exporter = InMemorySpanExporter()
    with mttp.configure("memory://", processors=[kind(exporter)]):
        episode = play()

    found = {span.name: span for span in exporter.get_finished_spans()}
    assert {"GET", "step", "episode", "run"} <= set(found)
    assert all(isinstance(span, ReadableSpan) and span.to_json() for span in found.values())
    assert (found["episode"].context, found["step"].context) == (found["step"].parent, found["GET"].parent)
    assert episode.trace_id == (found["episode"].attributes or {})["mttp.episode.id"]


def test_the_console_exporter_prints_spans() -> None:
    """
    It is the simplest way to see what is recorded.
    """
    out = io.StringIO()
    with mttp.configure("memory://", processors=[SimpleSpanProcessor(ConsoleSpanExporter(out=out))]):
        play()

    assert all(f'"name": "{name}"' in out.getvalue() for name in ("GET", "step", "episode", "run"))


def test_processors_are_called_in_the_order_of_starts_and_ends() -> None:
    """
    The run span ends last, before the processors are shut down.
    """
    processor = Processor()
    with mttp.configure("memory://", processors=[processor]):
        play()

    about = ("episode", "step", "GET")
    assert [f"on_start {name}" for name in about] + [f"on_end {name}" for name in reversed(about)] == [
        call for call in processor.called if call.split()[-1] in about
    ]
    assert ["on_end run", "shutdown"] == processor.called[-2:]


class FromBaggage(SpanProcessor):
    """Sets attributes from the baggage, as OpenTelemetry's baggage processor does."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        span.set_attributes({key: str(value) for key, value in baggage.get_all(parent_context).items()})


@pytest.mark.parametrize("transport", ["memory://", "file://a.jsonl"])
def test_a_processor_can_set_attributes_at_start(transport: str) -> None:
    """
    They are recorded on mttp's spans and on others.
    """
    with mttp.configure(transport, processors=[FromBaggage()]) as session:
        token = otel_context.attach(baggage.set_baggage("user", "ann"))
        play()
        otel_context.detach(token)

    found = mttp.scan(session if transport == "memory://" else "a.jsonl")
    users = {span.name: span.attributes.get("user") for span in found}
    assert {"ann"} == {users[name] for name in ("episode", "step", "GET")}


@pytest.mark.parametrize("what", ["on_start", "on_end", "force_flush", "shutdown"])
def test_an_error_of_a_processor_is_counted(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    The other processors are called, everything is recorded, and the error is logged once.
    """
    broken, sound = Processor(), Processor()
    broken.failing = {what}
    with caplog.at_level(logging.WARNING), mttp.configure("memory://", processors=[broken, sound]) as session:
        play()
        play()
        session.flush()

    assert broken.called == sound.called
    assert 1 <= session.stats.faults["processor_failed"]
    assert 1 == len([line for line in caplog.messages if f"Processor.{what}: RuntimeError('broken')" in line])
    assert [True, True] == [episode.complete for episode in mttp.read(session)]


class UnspeakableError(Exception):
    """An exception that raises when it is printed."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_that_can_t_be_printed_is_counted() -> None:
    """
    It never reaches the training loop.
    """
    processor = Processor()
    processor.on_end = lambda span: (_ for _ in ()).throw(UnspeakableError())  # type: ignore[method-assign]
    with mttp.configure("memory://", processors=[processor]) as session:
        play()

    assert 3 <= session.stats.faults["processor_failed"]


def test_flush_waits_for_processors_until_its_timeout() -> None:
    """
    A processor that hangs delays neither the other processors nor the transports.
    """
    hanging, sound = Processor(), Processor()
    hanging.hanging = {"force_flush"}
    with mttp.configure("memory://", processors=[hanging, sound]) as session:
        play()
        in_time = session.flush(3)
        written = session.stats.pending
        hanging.open.set()
        later = session.flush()

    assert (False, 0, True) == (in_time, written, later)
    assert 2 == sound.called.count("force_flush")


@pytest.mark.parametrize("how", ["argument", "configured"])
def test_close_waits_for_processors_until_its_timeout(how: str) -> None:
    """
    All spans are written, and the other processors are shut down.
    """
    hanging, sound = Processor(), Processor()
    hanging.hanging = {"shutdown"}
    timeout = 3 if how == "configured" else None
    session = mttp.configure("file://a.jsonl", processors=[hanging, sound], close_timeout=timeout)
    play()
    written = session.close(None if how == "configured" else 3)
    still = not hanging.open.is_set()
    hanging.open.set()

    assert (True, True) == (written, still)
    assert ["shutdown", "shutdown"] == [hanging.called[-1], sound.called[-1]]
    assert [True] == [episode.complete for episode in mttp.read("a.jsonl")]


def test_processors_get_no_spans_after_a_close() -> None:
    """
    A span that ends after its session is not passed on, because exporters are shut down.
    """
    processor = Processor()
    with mttp.configure("memory://", processors=[processor]):
        guest, episode = tracer.start_span("GET"), mttp.episode()
    guest.end()
    episode.end()
    play()

    assert "shutdown" == processor.called[-1]
    assert 1 == processor.called.count("shutdown")


def test_a_processor_can_be_added_later() -> None:
    """
    Libraries add it through the tracer provider.
    """
    processor = Processor()
    with mttp.configure("memory://"):
        play()
        trace.get_tracer_provider().add_span_processor(processor)  # type: ignore[attr-defined]
        play()

    assert (1, 1) == (processor.called.count("on_end episode"), processor.called.count("on_end GET"))
    assert "shutdown" == processor.called[-1]


@pytest.mark.parametrize("closed", [True, False])
def test_a_hanging_processor_does_not_stop_the_exit(closed: bool) -> None:
    """
    It delays the exit only for a short time, and the others are shut down.
    """
    program = f"""
import atexit, json, sys, threading, time
import mttp
from opentelemetry.sdk.trace import SpanProcessor

class Hanging(SpanProcessor):
    def shutdown(self):
        threading.Event().wait()

class Sound(SpanProcessor):
    released = False
    def shutdown(self):
        Sound.released = True

atexit.register(lambda: print(json.dumps(Sound.released)))

def none_starts(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")

session = mttp.configure("file://a.jsonl", processors=[Hanging(), Sound()], close_timeout=5)
with mttp.episode(), mttp.step():
    pass
if {closed}:
    session.close()
threading.Thread.start = none_starts  # what later Pythons do when they end
"""

    assert told(program) is True
    assert [True] == [episode.complete for episode in mttp.read("a.jsonl")]


def test_a_forked_child_flushes_its_processors() -> None:
    """
    A batch of the child is exported when the child's part is closed.
    """
    program = """
import json, multiprocessing, os
import mttp
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

class Lines(SpanExporter):
    def export(self, spans):
        with open("lines.txt", "a") as file:
            file.writelines(f"{os.getpid()} {span.name}\\n" for span in spans)
        return SpanExportResult.SUCCESS

def work():
    with mttp.episode(), mttp.step():
        pass

with mttp.configure("file://runs/", processors=[BatchSpanProcessor(Lines())]):
    work()
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=work) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
lines = [line.split() for line in open("lines.txt")]
steps = [pid for pid, name in lines if name == "step"]
print(json.dumps([len(steps), len(set(steps)), [child.exitcode for child in children]]))
"""

    assert [3, 3, [0, 0]] == told(program)
    assert 3 == len(mttp.read("runs/"))


@pytest.mark.parametrize("given", [BatchSpanProcessor, InMemorySpanExporter(), "memory://", None])
def test_configure_rejects_an_object_that_is_not_a_processor(given: Any) -> None:
    """
    A class or an exporter is an error, and no session is left open.
    """
    with pytest.raises(ConfigureError, match=r"is not a span processor; pass one.*exporters=\[\.\.\.\]"):
        mttp.configure("memory://", processors=[given])

    assert mttp.current_session() is None


@pytest.mark.parametrize("argument", ["processors", "exporters"])
def test_a_single_processor_must_be_in_a_list(argument: str) -> None:
    """
    The message shows how to write it.
    """
    one = SimpleSpanProcessor(InMemorySpanExporter()) if argument == "processors" else InMemorySpanExporter()

    with pytest.raises(ConfigureError, match=rf"is not a list; write {argument}=\[\.\.\.\]"):
        mttp.configure("memory://", **{argument: one})  # type: ignore[arg-type]


def test_exporters_are_transports() -> None:
    """
    An exporter of the SDK gets all spans, those of other libraries too.
    """
    exporter = InMemorySpanExporter()
    with mttp.configure("memory://", exporters=[exporter]) as session:
        play()

    exported = sorted(span.name for span in exporter.get_finished_spans())
    assert sorted(span.name for span in session.records()) == exported
    assert {"GET", "step", "episode", "run"} <= set(exported)


class Calls(SpanProcessor):
    """Records each call with the SDK's keyword arguments, and the parent span in its context."""

    def __init__(self) -> None:
        self.parents: dict[str, str] = {}
        self.order: list[str] = []

    def on_start(self, span: Any, *, parent_context: Context | None) -> None:
        parent = trace.get_current_span(parent_context)
        self.parents[span.name] = getattr(parent, "name", "") if parent.get_span_context().is_valid else ""
        self.order.append(f"start {span.name}")

    def _on_ending(self, span: Any) -> None:
        self.order.append(f"ending {span.name} {span.is_recording()}")

    def on_end(self, span: ReadableSpan) -> None:
        self.order.append(f"end {span.name}")


def test_processors_are_called_as_the_sdk_calls_them() -> None:
    """
    `parent_context` has the parent span with and without a block, and `_on_ending` is called.
    """
    calls = Calls()
    with mttp.configure(transport="memory://", processors=[calls]) as session:
        around = trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 1, False)))
        with around, mttp.episode(env="toy") as episode, episode.step() as step, step.model_call("tiny"):
            tracer.start_span("GET").end()
        left = mttp.episode(env="left")
        left.step().end()
        left.end()

    assert 0 == session.stats.faults.total()
    assert {"episode toy": "", "step": "episode left", "chat tiny": "step", "GET": "chat tiny"} == {
        name: calls.parents[name] for name in ("episode toy", "step", "chat tiny", "GET")
    }
    assert ["start GET", "ending GET False", "end GET"] == [one for one in calls.order if "GET" in one]
    assert ["start chat tiny", "ending chat tiny False", "end chat tiny"] == [
        one for one in calls.order if "tiny" in one
    ]


def test_a_processor_needs_no_on_ending() -> None:
    """
    It need not derive from the SDK's class.
    """

    class Bare:
        def on_start(self, span: Any, parent_context: Context | None = None) -> None: ...

        def on_end(self, span: Any) -> None: ...

        def shutdown(self) -> None: ...

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return True

    with mttp.configure(transport="memory://", processors=[Bare()]) as session:  # type: ignore[list-item]
        play()

    assert 0 == session.stats.faults.total()
