"""A span of mttp is an OpenTelemetry span, for code that writes to it and code that reads it."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any

import numpy as np
import pytest
from exporters import Exporter
from official import parsed, told
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

import mttp
from mttp.codec.profiles import full
from mttp.otlp.json import encode_records
from mttp.otlp.spans import MAX_USER_ATTRIBUTES, RecordingSpan, SpanOrigin, Trace
from mttp.otlp.spans.span_records import record
from mttp.semconv import attributes as a

TIME = 1_750_000_000_000_000_000


class Sink:
    """Keeps the spans that it gets."""

    def __init__(self) -> None:
        self.spans: list[RecordingSpan] = []
        self.faults: list[tuple[str, str]] = []

    def ended(self, span: RecordingSpan) -> None:
        self.spans.append(span)

    def fault(self, kind: str, detail: str = "") -> None:
        self.faults.append((kind, detail))

    @property
    def kinds(self) -> list[str]:
        """The kinds of the faults."""
        return [kind for kind, _ in self.faults]


@pytest.fixture
def sink() -> Sink:
    """Where the spans of a test go."""
    return Sink()


def context(number: int, *, remote: bool = False) -> SpanContext:
    """The identity of some span."""
    return SpanContext(1, number, is_remote=remote, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def start(sink: Sink, **options: Any) -> RecordingSpan:
    """A span that has begun."""
    origin = SpanOrigin(Resource({"service.name": "test"}), InstrumentationScope("lib", "1", "https://s"))
    given: dict[str, Any] = {"origin": origin, "values": {}, "parent": context(1), "start_time": TIME}
    given |= options
    own = Trace(1, given.pop("origin"), sink)
    return RecordingSpan("name", given.pop("values"), own, given.pop("parent"), span_id=2, **given)


# Being read.


def test_it_is_a_span_and_readable(sink: Sink) -> None:
    """
    In OpenTelemetry's own types.
    """
    span = start(sink, kind=SpanKind.CLIENT, links=[Link(context(9))])

    assert isinstance(span, trace.Span)
    assert isinstance(span, ReadableSpan)
    assert ("name", context(2), context(1), SpanKind.CLIENT, TIME, None) == (
        span.name,
        span.context,
        span.parent,
        span.kind,
        span.start_time,
        span.end_time,
    )
    assert context(2) == span.get_span_context()
    assert [context(9)] == [link.context for link in span.links]
    assert ("test", "lib") == (span.resource.attributes["service.name"], span.instrumentation_scope.name)
    assert ((), 0, 0, 0) == (
        span.events,
        span.dropped_attributes,
        span.dropped_events,
        span.dropped_links,
    )


def test_attributes_can_be_read_while_it_is_open(sink: Sink) -> None:
    """
    As with the SDK's spans; callers can't change them.
    """
    span = start(sink, values={"array": np.array([1.5, 2.5]), "list": [1, 2], "text": "x"})
    span.set_attribute("mine", 3)

    assert {"array": (1.5, 2.5), "list": (1, 2), "text": "x", "mine": 3} == dict(span.attributes or {})
    with pytest.raises(TypeError):
        span.attributes["mine"] = 4  # type: ignore[index]


def test_the_record_keeps_arrays_where_the_profile_does(sink: Sink) -> None:
    """
    The same span, for a transport of ours.
    """
    link = Link(context(9, remote=True), {"k": "v"})
    span = start(sink, values={"array": np.array([1.5, 2.5])}, links=[link])
    span.add_event("event", {"k": [1]}, TIME + 1)
    span.set_status(StatusCode.ERROR, "broken")
    span.end(TIME + 2)

    kept, arrays = record(span, full), record(span)
    assert isinstance(kept.attributes["array"], np.ndarray)
    assert [1.5, 2.5] == arrays.attributes["array"]
    assert (f"{1:032x}", f"{2:016x}", f"{1:016x}", TIME, TIME + 2, 2, "broken") == (
        kept.trace_id,
        kept.span_id,
        kept.parent_id,
        kept.start_time,
        kept.end_time,
        kept.status_code,
        kept.status_message,
    )
    assert [("event", TIME + 1, {"k": [1]})] == [(e.name, e.time, e.attributes) for e in kept.events]
    assert [(f"{9:016x}", {"k": "v"}, 0x300)] == [(x.span_id, x.attributes, x.flags) for x in kept.links]


@pytest.mark.parametrize(
    ("parent", "flags"), [(None, 0x100), (context(1), 0x100), (context(1, remote=True), 0x300)]
)
def test_flags_say_whether_the_parent_is_remote(parent: SpanContext | None, flags: int, sink: Sink) -> None:
    """
    As OTLP has it.
    """
    assert flags == record(start(sink, parent=parent)).flags


def test_a_foreign_span_without_identity_is_no_record() -> None:
    """
    Nothing could refer to it.
    """
    with pytest.raises(ValueError, match="span 'odd' has no context"):
        record(ReadableSpan("odd", resource=Resource({})))


def test_it_prints_as_the_sdk_prints(sink: Sink) -> None:
    """
    With bytes as base64, which JSON can't say.
    """
    span = start(sink, values={"bytes": b"\x00\xff", "nested": {"a": [b"\x00", None]}, "nan": math.nan})
    span.add_event("event", {"bytes": b"\x00"})
    span.add_link(context(9), {"bytes": b"\x00"})
    span.end()

    printed = json.loads(span.to_json())
    assert {"bytes": "AP8=", "nested": {"a": ["AA==", None]}} == {
        name: printed["attributes"][name] for name in ("bytes", "nested")
    }
    assert ("name", "0x0000000000000001", "AA==", "AA==") == (
        printed["name"],
        printed["parent_id"],
        printed["events"][0]["attributes"]["bytes"],
        printed["links"][0]["attributes"]["bytes"],
    )
    assert "\n" not in span.to_json(indent=None)


def test_the_sdks_processors_and_exporters_take_it(sink: Sink) -> None:
    """
    Without knowing that it is none of theirs.
    """
    exporter = InMemorySpanExporter()
    processor = SimpleSpanProcessor(exporter)
    span = start(sink, values={"list": [1.0, 2.0]})
    span.end()
    processor.on_end(span)

    (found,) = exporter.get_finished_spans()
    assert (1.0, 2.0) == (found.attributes or {})["list"]


def test_the_official_encoder_says_the_same_as_ours() -> None:
    """
    A recorded episode, sent by the SDK's OTLP exporter, is the one that our lines hold.
    """

    class Keeping(Exporter):
        live: list[ReadableSpan]

        def export(self, spans: Any) -> Any:
            self.live = [*getattr(self, "live", []), *spans]
            return super().export(spans)

    exporter = Keeping()
    facts = {"a": [1, {"b": b"c"}]}
    with mttp.configure(exporter), mttp.episode(metadata=facts) as episode, episode.step() as step:
        step.observation(np.arange(6.0).reshape(2, 3))
        step.tokens([1, 2, 3], logprobs=[-0.5, -0.25, -0.125])
        step.reward(1.0, components={"x": 1.0}, weights={"x": 1.0})
        step.span.add_event("event", {"k": [1, 2]})
        step.span.add_link(context(9), {"k": "v"})

    official = encode_spans(exporter.live)
    ours = [span for line in encode_records(map(record, exporter.live)) for span in told(parsed(line))]
    assert sorted(told(official)) == sorted(ours)


# Being written to.


def test_attributes_are_set_one_by_one_or_together(sink: Sink) -> None:
    """
    Copied, and the last one counts.
    """
    values = [1, 2]
    span = start(sink)
    span.set_attribute("list", values)
    span.set_attributes({"a": 1, "b": {"c": None}})
    span.set_attribute("a", 2)
    values.append(3)

    assert {"list": [1, 2], "a": 2, "b": {"c": None}} == span.values
    assert [] == sink.faults


def test_attributes_of_the_users_own_are_limited(sink: Sink) -> None:
    """
    More are refused and counted: an exporter would drop the oldest of too many, and that is the identity.
    """
    span = start(sink, values={a.EPISODE_ID: "e"})
    for number in range(MAX_USER_ATTRIBUTES + 3):
        span.set_attribute(f"key.{number}", number)
    span.set_attribute("key.0", "again")
    span.end()

    assert 1 + MAX_USER_ATTRIBUTES + 1 == len(span.values)
    assert ("again", "e") == (span.values["key.0"], span.values[a.EPISODE_ID])
    assert ["attributes_refused"] * 3 == sink.kinds
    assert 3 == len(span.values[a.FAULTS])


@pytest.mark.parametrize("name", [a.EPISODE_ID, a.REWARD_VALUE, "mttp.anything"])
def test_names_of_ours_are_not_the_users_to_set(name: str, sink: Sink) -> None:
    """
    They are what readers go by.
    """
    span = start(sink, values={a.EPISODE_ID: "e"})
    span.set_attribute(name, "mine")

    assert {a.EPISODE_ID: "e"} == span.values
    assert ["attributes_refused"] == sink.kinds


@pytest.mark.parametrize(
    ("value", "kept", "fault"),
    [
        (2**63, "9223372036854775808", "int_out_of_range"),
        ("a\ud800", r"a\ud800", "surrogates_escaped"),
        (object, "<class 'object'>", "kept_as_text"),
        (np.float32(0.5), 0.5, None),
        ((1, 2), [1, 2], None),
    ],
)
def test_values_become_plain(value: Any, kept: object, fault: str | None, sink: Sink) -> None:
    """
    What can't be kept exactly is kept as text, and said.
    """
    span = start(sink)
    span.set_attribute("key", value)

    assert kept == span.values["key"]
    assert ([] if fault is None else [fault]) == sink.kinds


def test_a_key_that_is_no_text_becomes_text(sink: Sink) -> None:
    """
    Rather than an exception in the loop; the SDK does so of several at once, and refuses one alone.
    """
    span = start(sink)
    span.set_attributes({3: "x"})  # type: ignore[dict-item]
    span.set_attribute(4, "x")  # type: ignore[arg-type]
    span.set_attribute("a\ud800", "y")

    assert {"3": "x", r"a\ud800": "y"} == {key: span.values[key] for key in span.values if key[:4] != "mttp"}


def test_events_have_a_time(sink: Sink) -> None:
    """
    Now, or the one that is given.
    """
    span = start(sink)
    before = time.time_ns()
    span.add_event("now")
    span.add_event("then", {"k": np.array([1, 2])}, TIME)

    now, then = span.events
    assert ("now", {}) == (now.name, dict(now.attributes or {}))
    assert abs(now.timestamp - before) < 60e9
    assert ("then", {"k": (1, 2)}, TIME) == (then.name, dict(then.attributes or {}), then.timestamp)


@pytest.mark.parametrize("odd", [-1, 2**64, "now", math.nan])
def test_a_time_that_is_none_is_now(odd: Any, sink: Sink) -> None:
    """
    The span could not be read otherwise; a fault is recorded.
    """
    before = time.time_ns()
    span = start(sink, start_time=odd)
    span.add_event("event", timestamp=odd)
    span.end(odd)

    times = [span.start_time or 0, span.events[0].timestamp, span.end_time or 0]
    assert all(abs(one - before) < 60e9 for one in times)
    assert 3 == len(sink.faults)


def test_a_span_never_ends_before_it_starts(sink: Sink) -> None:
    """
    It ends as it starts then, with a fault.
    """
    span = start(sink)
    span.end(TIME - 1)

    assert (TIME, ["time_invalid"]) == (span.end_time, sink.kinds)


def test_links_refer_to_spans_that_there_are(sink: Sink) -> None:
    """
    One to no span is left out.
    """
    span = start(sink)
    span.add_link(context(9), {"k": "v"})
    span.add_link(trace.INVALID_SPAN_CONTEXT)

    assert [(context(9), {"k": "v"})] == [(link.context, dict(link.attributes or {})) for link in span.links]


def test_a_span_may_be_renamed(sink: Sink) -> None:
    """
    By a caller that knows better.
    """
    span = start(sink)
    span.update_name("a\ud800")

    assert r"a\ud800" == span.name


def test_exceptions_are_events(sink: Sink) -> None:
    """
    With type, message and stack trace, by OpenTelemetry's names.
    """
    span = start(sink)
    try:
        raise ValueError("broken\ud800")
    except ValueError as error:
        span.record_exception(error, {"extra": 1}, TIME)

    (event,) = span.events
    attributes = dict(event.attributes or {})
    assert ("exception", TIME, "ValueError", r"broken\ud800", 1) == (
        event.name,
        event.timestamp,
        attributes["exception.type"],
        attributes["exception.message"],
        attributes["extra"],
    )
    assert "test_exceptions_are_events" in str(attributes["exception.stacktrace"])


class UnspeakableError(Exception):
    """An exception that can't even say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")


def test_an_exception_that_can_not_be_printed_is_recorded(sink: Sink) -> None:
    """
    By its type.
    """
    span = start(sink)
    with pytest.raises(UnspeakableError), span:
        raise UnspeakableError

    (event,) = span.events
    assert (
        "<UnspeakableError whose message raised RuntimeError>"
        == (event.attributes or {})["exception.message"]
    )
    assert (StatusCode.ERROR, 1) == (span.status.status_code, len(sink.spans))


@pytest.mark.parametrize(
    ("calls", "code", "description"),
    [
        ([], StatusCode.UNSET, None),
        ([(StatusCode.OK, None)], StatusCode.OK, None),
        ([(StatusCode.ERROR, "a")], StatusCode.ERROR, "a"),
        ([(Status(StatusCode.ERROR, "a"), None)], StatusCode.ERROR, "a"),
        ([(StatusCode.ERROR, "a"), (StatusCode.ERROR, "b")], StatusCode.ERROR, "b"),
        ([(StatusCode.ERROR, "a"), (StatusCode.OK, None)], StatusCode.OK, None),
        ([(StatusCode.OK, None), (StatusCode.ERROR, "a")], StatusCode.OK, None),
        ([(StatusCode.ERROR, "a"), (StatusCode.UNSET, None)], StatusCode.ERROR, "a"),
        ([(StatusCode.OK, None), (Status(), None)], StatusCode.OK, None),
        ([(StatusCode.ERROR, "a\ud800")], StatusCode.ERROR, r"a\ud800"),
    ],
)
def test_the_status_follows_the_sdks_rules(
    calls: list[Any], code: StatusCode, description: str | None, sink: Sink
) -> None:
    """
    OK is final, UNSET is ignored, an error may be corrected: the same as on a span of the SDK's.
    """
    ours = start(sink)
    theirs = TracerProvider(shutdown_on_exit=False).get_tracer("t").start_span("s")
    for call in calls:
        ours.set_status(*call)
        theirs.set_status(*call)

    assert (code, description) == (ours.status.status_code, ours.status.description)
    assert code is theirs.status.status_code  # type: ignore[attr-defined]


def test_its_block_ends_it_and_records_what_went_wrong(sink: Sink) -> None:
    """
    As the SDK's spans do.
    """
    good, bad = start(sink), start(sink)
    with good:
        pass
    with pytest.raises(ValueError, match="broken"), bad:
        raise ValueError("broken")

    assert [good, bad] == sink.spans
    assert (StatusCode.UNSET, ()) == (good.status.status_code, good.events)
    assert (StatusCode.ERROR, "ValueError: broken", ["exception"]) == (
        bad.status.status_code,
        bad.status.description,
        [event.name for event in bad.events],
    )


# Ending.


def test_ending_hands_it_on_once(sink: Sink) -> None:
    """
    With the time that is given, or now.
    """
    given, now = start(sink), start(sink)
    assert (True, True) == (given.is_recording(), now.is_recording())
    given.end(TIME + 5)
    given.end(TIME + 6)
    now.end()

    assert [given, now] == sink.spans
    assert (False, TIME + 5) == (given.is_recording(), given.end_time)
    assert abs((now.end_time or 0) - time.time_ns()) < 60e9
    assert ["after_end"] == sink.kinds


def test_after_its_end_everything_is_ignored_and_counted(sink: Sink) -> None:
    """
    It may be on its way to a file already.
    """
    span = start(sink, values={"k": 1})
    span.end(TIME + 5)
    before = span.to_json()

    span.set_attribute("late", 1)
    span.set_attributes({"late": 1, "later": 2})
    span.add_event("late")
    span.add_link(context(9))
    span.update_name("late")
    span.set_status(StatusCode.ERROR)
    span.record_exception(ValueError("late"))
    span.end()

    assert before == span.to_json()
    assert ["after_end"] * 8 == sink.kinds


def test_of_threads_that_end_it_together_one_does(sink: Sink) -> None:
    """
    It is recorded once.
    """
    for _ in range(50):
        span = start(sink)
        barrier = threading.Barrier(4)

        def end(span: RecordingSpan = span, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            span.end()

        threads = [threading.Thread(target=end) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert (50, 150) == (len(sink.spans), len(sink.faults))


def test_faults_and_omissions_are_reported_on_the_span(sink: Sink) -> None:
    """
    Each once.
    """
    span = start(sink)
    span.fault("odd", "x")
    span.fault("odd", "x")
    span.note(["other: y", "bare"])
    span.omissions.extend(["left out", "left out"])
    span.fail("ValueError", "broken")
    span.end()

    assert ["odd: x", "other: y", "bare"] == span.values[a.FAULTS]
    assert ["left out"] == span.values[a.OMISSIONS]
    assert ("ValueError", StatusCode.ERROR, "broken") == (
        span.values[a.ERROR_TYPE],
        span.status.status_code,
        span.status.description,
    )
    assert [("odd", "x"), ("odd", "x"), ("other", "y"), ("bare", "")] == sink.faults


def test_what_is_recorded_anew_replaces_the_old(sink: Sink) -> None:
    """
    Under the names that belong together.
    """
    span = start(sink, values={"a": 1, "b": 2, "c": 3})
    span.forget(frozenset({"a", "b", "x"}))

    assert {"c": 3} == span.values


# Among other spans.


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    """Where a tracer provider of the user's own sends its spans."""
    return InMemorySpanExporter()


def test_a_span_of_another_library_has_the_step_as_its_parent(
    session: mttp.Session, exporter: InMemorySpanExporter
) -> None:
    """
    An instrumented client called within a step lands in the episode's trace.
    """
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("http")

    with mttp.episode() as episode:
        with episode.step() as step, tracer.start_as_current_span("inside the step"):
            pass
        with tracer.start_as_current_span("inside the episode"):
            pass
        by_hand = episode.step()
        with trace.use_span(by_hand.span), tracer.start_as_current_span("by hand"):
            pass
        by_hand.end()
    with tracer.start_as_current_span("outside"):
        pass

    parents = {span.name: span.parent for span in exporter.get_finished_spans()}
    assert {
        "inside the step": (episode.trace_id, step.span_id),
        "inside the episode": (episode.trace_id, episode.span_id),
        "by hand": (episode.trace_id, by_hand.span_id),
        "outside": None,
    } == {
        name: parent and (f"{parent.trace_id:032x}", f"{parent.span_id:016x}")
        for name, parent in parents.items()
    }


def test_a_foreign_span_around_an_episode_is_linked_and_nothing_more(
    session: mttp.Session, exporter: InMemorySpanExporter
) -> None:
    """
    An episode is a trace of its own, whatever span is current.
    """
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("job")
    with tracer.start_as_current_span("job") as job, mttp.episode():
        pass

    (root,) = [one for one in session.records() if one.name.split()[0] == "episode"]
    assert ("", [f"{job.get_span_context().span_id:016x}"]) == (
        root.parent_id,
        [link.span_id for link in root.links],
    )


def test_the_current_span_can_be_written_to(session: mttp.Session) -> None:
    """
    As code does that knows nothing of mttp.
    """
    with mttp.episode() as episode, episode.step():
        trace.get_current_span().set_attribute("app.key", "value")
        trace.get_current_span().add_event("app.event")

    (step,) = [one for one in session.records() if one.name == "step"]
    assert ("value", ["app.event"]) == (
        step.attributes["app.key"],
        [event.name for event in step.events],
    )
