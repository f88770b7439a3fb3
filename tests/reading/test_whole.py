"""Episodes that are whole in a line are summed up without their spans, with equal results."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reading.traces import episode, foreign, lines, of_version, run, span_id, write, write_bytes
from specimen import EVERYTHING

import mttp
from mttp.model.spans import SpanRecord
from mttp.reading import lines as reading_lines
from mttp.reading.episode_summary import EpisodeSummary
from mttp.reading.span_aggregation import SpanAggregator
from mttp.semconv import attributes as a


def span_by_span(path: Path) -> dict[str, Any]:
    """What a recording amounts to by each of its spans."""
    tally = SpanAggregator()
    for record in mttp.scan(path):
        tally.add(record)
    return figures(tally) | {"missing": sorted(tally.finish()), "rows": rows(tally)}


def by_summary(path: Path) -> dict[str, Any]:
    """The figures of a recording by whole episodes, as in a summary."""
    tally = SpanAggregator()
    for line in reading_lines.decode(path, arrays=False, is_open=tally.has_open):
        for one in line.spans or ():
            tally.add(one)
    return figures(tally) | {"missing": sorted(tally.finish()), "rows": rows(tally)}


def figures(tally: SpanAggregator) -> dict[str, Any]:
    """All that is not said of one episode."""
    return {
        "counts": {
            run: (found.counts.tokens, found.counts.call_tokens, found.counts.faults)
            for run, found in tally.aggregate.runs.items()
        },
        "duplicates": tally.duplicates,
        "runs": {trace_id: list(spans) for trace_id, spans in tally.runs.items()},
    }


def rows(tally: SpanAggregator) -> tuple[Any, ...]:
    """What is said of each, in the order in which they ended."""
    found = tally.aggregate
    words = [[list(codes.words)[code] for code in codes.column] for codes in found.labels.values()]
    numbers = [
        column.tolist() for column in (found.start_times, found.durations, found.returns, found.lengths)
    ]
    return repr(numbers), words, {run: counts.graders.health() for run, counts in found.runs.items()}


def whole(path: Path) -> int:
    """How many episodes are one value."""
    found = reading_lines.decode(path, arrays=False, is_open=lambda _: False)
    return sum(isinstance(one, EpisodeSummary) for line in found for one in line.spans or ())


def many(seed: int) -> list[SpanRecord]:
    """Episodes that are cut, repeated, scored, marked or mixed with others, in lines of their own or not."""
    shuffled = random.Random(seed)
    spans = [*run(), foreign(1)]
    for number in range(40):
        components = {"correct": number / 40, "format": 0.1} if number % 2 else None
        made = episode(number, steps=1 + number % 5, marked=number % 3 == 0, components=components)
        made[0] = replace(made[0], attributes={**made[0].attributes, a.TOKEN_COUNT: 3, a.AGENT_ID: "x"})
        spans += made[shuffled.choice([0, 0, 0, 1]) : shuffled.choice([None, None, None, -1])]
        if shuffled.random() < 0.2:
            spans += made[: shuffled.choice([1, 2, None])]
    for _ in range(seed * 3):
        one, other = shuffled.randrange(len(spans)), shuffled.randrange(len(spans))
        spans[one], spans[other] = spans[other], spans[one]
    return [*spans, *of_version(episode(99), "9.0.0"), *spans[20:40]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("per_line", [1, 3, 8, 10_000])
def test_a_summary_is_what_its_spans_amount_to(seed: int, per_line: int):
    """
    Wherever lines end, whatever is missing, comes again, or before its time.
    """
    path = write("a.jsonl", many(seed), per_line=per_line)

    assert span_by_span(path) == by_summary(path)
    assert per_line == 1 or whole(path)


def test_what_a_recorder_wrote_is_summed_up_alike(tmp_path: Path):
    """
    With calls, agents, scorings, groups, packed steps and everything else that there is.
    """
    path = tmp_path / "a.jsonl"
    with mttp.configure(transport=f"file://{path}") as session:
        session.record(EVERYTHING)
        for steps in ("spans", "packed"):
            with mttp.episode(env="walk", steps=steps) as played:
                for number in range(5):
                    with played.step() as step:
                        step.reward(number)
                        step.observation({a.TOKEN_COUNT: 7, "key": a.SEGMENT_ID})
                        step.tokens([1, 2, 3], prompt_ids=[4])
                        with step.model_call("judge") as call:
                            call.response(input_tokens=10, output_tokens=7)
                played.reward(3.0, components={"correct": 1.0})

    assert span_by_span(path) == by_summary(path)
    assert whole(path)


def test_an_episode_that_began_in_another_line_stays_open():
    """
    Its spans count one by one, those that come again included.
    """
    spans = episode(0)
    path = write_bytes("a.jsonl", b"".join([*lines(spans[:1]), *lines(spans), *lines(spans)]))

    assert 2 == whole(path)
    assert span_by_span(path) == by_summary(path)
    assert (1, 4) == (len(mttp.summarize(path)), mttp.summarize(path).duplicates)


def test_an_episode_in_two_blocks_of_a_line_counts_once():
    """
    One that has begun in a block is open for the next.
    """
    spans = episode(0)
    documents = [json.loads(line) for part in (spans[:1], spans, spans) for line in lines(part)]
    blocks = [block for document in documents for block in document["resourceSpans"]]
    path = write_bytes("a.jsonl", json.dumps({"resourceSpans": blocks}).encode())

    assert span_by_span(path) == by_summary(path)
    assert (1, 4) == (len(mttp.summarize(path)), mttp.summarize(path).duplicates)


def test_a_line_with_two_roots_counts_span_by_span():
    """
    Which of them counts is not for a line to say.
    """
    spans = episode(0)
    other = replace(spans[-1], span_id=span_id(0, 700))
    spans[-1] = replace(spans[-1], attributes={**spans[-1].attributes, a.EPISODE_SPAN_COUNT: 4})
    path = write("a.jsonl", [other, *spans])

    assert 0 == whole(path)
    assert span_by_span(path) == by_summary(path)


def test_a_step_with_no_id_is_a_problem_all_the_same():
    """
    It costs itself, not the line.
    """
    document = json.loads(lines(episode(0))[0])
    document["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanId"] = "nonsense"
    summary = mttp.summarize(write_bytes("a.jsonl", json.dumps(document).encode()))

    assert ["broken_span", "incomplete_episode"] == [problem.kind for problem in summary.problems]
