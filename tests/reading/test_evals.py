"""Evaluations in recordings: values, tables, summaries and what may be wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry import trace
from reading.traces import write

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading.call_times import StreamedCalls
from mttp.reading.evals import evaluations


@pytest.fixture
def path() -> str:
    """A file with two evaluations, of which one was taken up again in another process."""
    with mttp.configure("file://a.jsonl", run="nightly", run_id="r"):
        first = mttp.evaluate("gsm", "1", tasks=[{"id": "a", "slices": ["easy"]}, "b"], tags={"k": "v"})
        first.result("a", 0.5, passed=True)
        first.result("b", error="no")
        first.end(status="aborted")
    spec = mttp.model.Spec(name="exact", version="2", sha256="ab" * 32)
    with mttp.configure("file://a.jsonl", run="nightly", run_id="r"):
        tasks = [{"id": "a", "slices": ["easy"]}, "b"]
        with mttp.evaluate("gsm", "1", tasks=tasks, tags={"k": "v"}, resume=True) as second:
            second.result("b", 0.25)
        with mttp.evaluate("other", tasks=["c"], spec=spec, policy="tiny", baseline={"c": 1.0}) as other:
            other.result("c", 0.5, passed=False, duration=2.0, episode="ab" * 16)
    return "a.jsonl"


def cut(path: str, *gone: str) -> Path:
    """A file without the spans of these names."""
    return write("cut.jsonl", [span for span in mttp.scan(path, arrays=True) if span.name not in gone])


def test_a_row_is_a_result(path: str):
    """
    The row has the fields of its evaluation, and `is_latest` is false for a replaced result.
    """
    pytest.importorskip("duckdb")
    recording = mttp.read(path)
    rows = recording.tables.evaluations.rows()
    shown = ("suite", "task", "outcome", "score", "is_latest", "status", "run_name")

    assert [
        ("gsm", "a", "scored", 0.5, True, "completed", "nightly"),
        ("gsm", "b", "errored", None, False, "completed", "nightly"),
        ("gsm", "b", "scored", 0.25, True, "completed", "nightly"),
        ("other", "c", "scored", 0.5, True, "completed", "nightly"),
    ] == [tuple(row[name] for name in shown) for row in rows]
    expected = {"eval_id": recording.evals[1].id, "run_id": "r", "policy": "tiny", "spec_name": "exact"}
    expected |= {"spec_version": "2", "spec_sha256": "ab" * 32, "passed": False, "episode": "ab" * 16}
    expected |= {"baseline_score": 1.0, "delta": -0.5, "duration": 2.0}
    assert expected == {name: rows[3][name] for name in expected}
    assert (["easy"], {"k": "v"}) == (rows[0]["slices"], rows[0]["tags"])


def test_parts_are_one_evaluation(path: str):
    """
    Each process that continues the evaluation has its own trace.
    """
    found, other = mttp.read(path).evals

    assert (2, 1) == (len(found.trace_ids), len(other.trace_ids))
    assert ("completed", 2, 0.375) == (found.status, found.summary().scored, found.summary().mean)


def test_a_summary_counts_them(path: str):
    """
    A continued evaluation counts once.
    """
    summary = mttp.summarize(path)

    assert (2, 0, 0) == (summary.evals, len(summary), summary.duplicates)
    assert 2 == mttp.summarize([path, cut(path)]).evals


def test_evaluations_are_read_without_the_rest(path: str):
    """
    The evaluations equal those of `mttp.read`.
    """
    assert mttp.read(path).evals == evaluations(path).evals


def test_spans_that_come_twice_count_once(path: str):
    """
    A retried export causes equal copies.
    """
    recording = mttp.read([path, cut(path)])

    assert mttp.read(path).evals == recording.evals
    assert recording.duplicates > 0


def test_an_evaluation_without_an_end_is_unfinished(path: str):
    """
    The results are read, and the missing end is a problem.
    """
    recording = mttp.read(cut(path, "eval.run other"))
    (problem,) = [problem for problem in recording.problems if problem.kind == "unfinished_evaluation"]

    assert ("unfinished", 1) == (recording.evals[1].status, len(recording.evals[1].results))
    assert f"evaluation {recording.evals[1].id} of other has no end: 1 of 1 tasks have a result" == str(
        problem
    )


def test_results_that_are_missing_are_reported(path: str):
    """
    The root states the number of results.
    """
    problems = mttp.read(cut(path, "eval.result")).problems
    problem = next(problem for problem in problems if problem.kind == "incomplete_evaluation")

    assert "of gsm lacks results: 0 of 2 were found" in str(problem)


def test_samples_are_rows():
    """
    Each sample has its own latest result.
    """
    pytest.importorskip("duckdb")
    with mttp.configure("memory://") as session, mttp.evaluate("gsm", tasks=["a"], samples=2) as run:
        run.result("a", 0.5)
        run.result("a", 0.25)
        run.result("a", 0.75, sample=0)
    rows = mttp.read(session).tables.evaluations.rows()

    assert [(0, 0.5, False), (1, 0.25, True), (0, 0.75, True)] == [
        (row["sample"], row["score"], row["is_latest"]) for row in rows
    ]


@pytest.fixture
def streamed(session: mttp.Session) -> mttp.Session:
    """A session with an evaluation whose policy answers in pieces."""
    tracer = trace.get_tracer("another.library")

    def answer(task: str) -> float:
        with mttp.step() as step:
            with step.model_call("policy") as call:
                call.response(output_tokens=3, time_to_first_chunk=0.25)
            with tracer.start_as_current_span("proxy"), tracer.start_as_current_span("chat") as span:
                span.set_attribute("gen_ai.operation.name", "chat")
                span.set_attribute("gen_ai.response.time_to_first_chunk", 0.75)
                with tracer.start_as_current_span("nested") as nested:
                    nested.set_attribute("gen_ai.operation.name", "chat")
                    nested.set_attribute("gen_ai.response.time_to_first_chunk", 9.0)
            with step.model_call("policy") as call:
                call.response(output_tokens=3)
        return 1.0

    with mttp.evaluate("gsm", tasks=["a", "b"], concurrency=1) as run:
        run.map(answer)
    return session


def test_calls_say_how_fast_the_policy_answers(streamed: mttp.Session):
    """
    Calls with a time to the first chunk count, also below foreign spans, but not below foreign calls.
    """
    (found,) = mttp.read(streamed).evals
    summary = found.summary()

    assert [(0.25, 0.75)] * 2 == [result.first_token_times for result in found.results]
    assert [1, 1] == [len(result.output_token_times) for result in found.results]
    assert summary.first_token_time is not None
    assert (4, 0.5, 0.75) == (
        summary.first_token_time.calls,
        summary.first_token_time.median,
        summary.first_token_time.p95,
    )


def test_times_are_read_without_the_episodes(streamed: mttp.Session):
    """
    The times equal those of `mttp.read`.
    """
    (whole,), (alone,) = mttp.read(streamed).evals, evaluations(streamed).evals

    assert [(one.first_token_times, one.output_token_times) for one in whole.results] == [
        (one.first_token_times, one.output_token_times) for one in alone.results
    ]


def test_a_circle_of_parents_ends():
    """
    A cycle of foreign parents does not hang; a call below it is not the policy's.
    """
    trace_id = "ab" * 16
    streamed = {"gen_ai.operation.name": "chat", "gen_ai.response.time_to_first_chunk": 0.5}
    calls = StreamedCalls()
    for span_id, parent_id, attributes in (("1", "2", {}), ("2", "1", {}), ("3", "1", streamed)):
        ids = {"trace_id": trace_id, "span_id": span_id, "parent_id": parent_id}
        calls.add(SpanRecord(**ids, name="x", attributes=attributes))

    assert [] == calls.of(trace_id)


def test_parquet_holds_them(path: str):
    """
    A converted recording has equal evaluations.
    """
    pytest.importorskip("pyarrow")
    from mttp.reading.parquet import write as write_parquet

    write_parquet(Path("a.parquet"), mttp.scan(path, arrays=True))

    assert mttp.read(path).evals == mttp.read("a.parquet").evals
