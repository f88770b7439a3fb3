"""Copies of one span that are not equally full."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reading.traces import episode, write
from typer.testing import CliRunner

import mttp
from mttp.cli.app import app
from mttp.codec.duplicates import fuller
from mttp.model.spans import SpanRecord
from mttp.semconv import attributes as a
from mttp.testing import OtlpReceiver, assert_same


def record(address: Any, **options: Any) -> None:
    """An episode with content on its root, its step and its scoring."""
    with mttp.configure(address, **options), mttp.episode(inputs={"answer": "72"}) as made:
        with made.step() as step:
            step.observation("hello")
            step.action([1.0, 2.0])
            step.reward(1.0)
        made.reward(1.0, explanation="because")


@pytest.mark.parametrize("first", [False, True], ids=["content last", "content first"])
@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_a_push_without_content_and_one_with_it_read_as_the_one_with_it(first: bool, steps: str) -> None:
    """
    The copy with more attributes is kept, in either order of the copies.
    """
    record("file://a.jsonl", steps=steps)
    with OtlpReceiver() as receiver:
        for content in (first, not first):
            more = ["--content"] if content else []
            result = CliRunner().invoke(app, ["push", "a.jsonl", "--to", receiver.http_address, *more])
            assert 0 == result.exit_code, result.output
        found = mttp.read(receiver)

    (expected,) = mttp.read("a.jsonl")
    (actual,) = found
    assert_same(expected, actual, ignore=["span_count", "omissions"])
    assert ("hello", [1.0, 2.0], ()) == (
        actual.steps[0].observation,
        actual.steps[0].action,
        actual.steps[0].omissions,
    )
    assert ("because", {"answer": "72"}) == (actual.reward.explanation, actual.inputs)
    assert (True, []) == (found.duplicates > 0, found.problems)


def test_two_files_of_one_session_read_as_the_one_with_content() -> None:
    """
    One of the two routes has no content.
    """
    record([mttp.Route("file://runs/a.jsonl", content=False), "file://runs/b.jsonl"])

    (found,) = mttp.read("runs/")
    assert ("hello", ()) == (found.steps[0].observation, found.steps[0].omissions)


@pytest.mark.parametrize("is_read", [False, True], ids=["same blocks", "other blocks"])
@pytest.mark.parametrize("content", [False, True], ids=["content last", "content first"])
def test_packed_steps_in_two_files_of_one_session_count_once(is_read: bool, content: bool) -> None:
    """
    Each file has spans of its own for them, which begin and end elsewhere if one file is flushed earlier.
    """
    routes = [mttp.Route(f"file://{content}.jsonl", content=content) for content in (content, not content)]
    with mttp.configure(routes, steps="packed") as session, mttp.episode() as episode:
        for index in range(3):
            with episode.step() as step:
                step.observation([float(index), 1.0])
                step.reward(0.5)
            if is_read:
                mttp.read(session)  # flushes the first file
    sources = [f"{content}.jsonl" for content in (content, not content)]
    found, summary = mttp.read(sources), mttp.summarize(sources)

    (actual,) = found
    assert [[0.0, 1.0], [1.0, 1.0], [2.0, 1.0]] == [step.observation for step in actual.steps]
    assert (True, 3, 1.5) == (actual.complete, actual.length, actual.return_)
    assert ([], []) == (found.problems, summary.problems)
    assert ([3], [1.5]) == ([*summary.lengths], [*summary.returns])


def test_packed_steps_with_one_index_are_different_steps() -> None:
    """
    A program may give an index twice; these steps have times of their own.
    """
    with mttp.configure("file://a.jsonl", steps="packed"), mttp.episode() as episode:
        for action in "ab":
            with episode.step(index=7) as step:
                step.action(action)

    assert ["a", "b"] == [step.action for step in mttp.read("a.jsonl")[0].steps]


def test_the_copy_with_less_left_out_counts_before_the_one_with_more_attributes() -> None:
    """
    What is left out may be described by several attributes, such as a data type and a shape.
    """
    whole = SpanRecord(trace_id="1", span_id="2", name="step", attributes={a.OBSERVATION_VALUE: "[1.0]"})
    described = {a.OBSERVATION_DTYPE: "float64", a.OBSERVATION_SHAPE: [1], a.OMISSIONS: ["content"]}
    lean = replace(whole, attributes=described)

    assert whole is fuller(lean, whole) is fuller(whole, lean)


def test_equal_copies_are_no_problem() -> None:
    """
    A retried export causes equal copies.
    """
    spans = episode(0)
    found = mttp.read(write("a.jsonl", [*spans, *spans]))

    assert (1, len(spans), []) == (len(found), found.duplicates, found.problems)


def test_copies_that_each_lack_something_are_a_problem() -> None:
    """
    The copy with more attributes is kept; copies are not merged.
    """
    spans = episode(0)
    step = next(span for span in spans if span.name == "step")
    one = replace(step, attributes={**step.attributes, a.OBSERVATION_VALUE: "seen"})
    other = replace(step, attributes={**step.attributes, a.ACTION_VALUE: "done", a.STEP_LOGPROB: -1.0})
    found = mttp.read(write("a.jsonl", [span for span in spans if span is not step] + [one, other]))

    kept = next(
        found_step for found_step in found[0].steps if found_step.index == step.attributes[a.STEP_INDEX]
    )
    assert (None, "done") == (kept.observation, kept.action)
    assert ["conflicting_spans"] == [problem.kind for problem in found.problems]
    assert "each has attributes that the other lacks" in str(found.problems[0])


def test_of_copies_with_the_same_attributes_the_one_with_less_left_out_counts() -> None:
    """
    A string that a store truncated is listed in the omissions of its copy.
    """
    whole = SpanRecord(trace_id="1", span_id="2", name="step", attributes={a.OBSERVATION_VALUE: "hello"})
    cut = replace(whole, attributes={a.OBSERVATION_VALUE: "he", a.OMISSIONS: ["cut"]})

    assert whole is fuller(cut, whole) is fuller(whole, cut)
