"""The searches of the page on Tempo and of the dashboards, by an evaluator of the TraceQL that they use."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import traceql

import mttp
from mttp.model.calls import Call
from mttp.model.episodes import Step
from mttp.model.scorings import Reward, Spec
from mttp.model.spans import SpanRecord
from mttp.semconv.registry import wanted
from mttp.testing import OtlpReceiver

ROOT = Path(__file__).parents[2]
RUN = "bbf99b8bf65ff505"
"""The run of the page."""
SECOND = 10**9
TYPES = {str: "string", int: "int", float: "double", bool: "boolean"}

PAGE = re.findall(
    r"^(\w[^\n]*\?)\n\n```traceql\n([^\n]*)\n```$", (ROOT / "docs/backends.md").read_text(), re.MULTILINE
)
DASHBOARDS = [
    target["query"].replace("$run", RUN)
    for path in sorted((ROOT / "collector-config/dev/grafana/dashboards").glob("*.json"))
    for panel in json.loads(path.read_text())["panels"]
    for target in panel["targets"]
    if target.get("queryType") == "traceql"
]


def play(session: mttp.Session) -> None:
    """Episodes, groups and updates of every kind that is asked for, and of those that are not."""
    for number in range(4):
        with mttp.group(f"g{number}", task="train/17") as group:
            for member in range(2):
                facts = {"task": "train/17", "group": group, "policy_version": f"{number}"}
                with mttp.episode(env="maths", **facts) as episode:
                    episode.reward(1.0 if number < 2 else float(member))
                    episode.end(outcome="success" if member else "failure", terminated=True)
                group.add(episode)
        mttp.update(number, loss=0.5, kl=number / 8, entropy=1.0, grad_norm=1.0, clip_fraction=0.1)
    for task, reward in (("train/18", 0.25), ("train/19", float("nan"))):
        with mttp.episode(env="maths", task=task) as episode:
            episode.reward(reward)
            episode.end(outcome="failure", terminated=True)
    for error in (ValueError("broke"), KeyboardInterrupt()):
        with pytest.raises(type(error)), mttp.episode(env="maths"):
            raise error
    for broken in (True, False):
        with mttp.episode(env="tools") as episode, episode.step() as step:
            try:
                with step.tool_call("search"):
                    if broken:
                        raise ValueError("no such page")
            except ValueError:
                pass
    spec = Spec(name="math", version="1.2.0")
    for reward in (Reward(value=0.5, spec=spec), Reward(status="error", error="no answer", spec=spec)):
        session.record(mttp.Episode(env="graded", rewards=(reward,)))
    call = Call(operation="chat", name="m", output_tokens=3, start_time=0, end_time=2 * SECOND)
    slow = Step(index=0, start_time=0, end_time=2 * SECOND, calls=(call,))
    quick = Step(index=1, start_time=2 * SECOND, end_time=3 * SECOND)
    session.record(mttp.Episode(env="slow", steps=(slow, quick)), start_time=0, end_time=3 * SECOND)


@pytest.fixture(scope="module")
def played() -> tuple[list[SpanRecord], mttp.Recording]:
    """The spans that Tempo would have, and what is read of them; another run's episode is among them."""
    with OtlpReceiver() as receiver:
        for run in (RUN, "other"):
            route = mttp.Route(receiver.http_address, profile="tempo", content=True)
            with mttp.configure(route, run_id=run) as session:
                if run == RUN:
                    play(session)
                else:
                    with mttp.episode(env="other"):
                        pass
        return [*receiver.records()], mttp.read(receiver)


def traces(values: Iterable[Any], holds: Callable[[Any], object]) -> set[str]:
    """The trace ids of the values for which it holds."""
    return {value.trace_id for value in values if holds(value)}


def test_each_search_of_the_page_finds_what_it_asks_for(
    played: tuple[list[SpanRecord], mttp.Recording],
) -> None:
    """
    And nothing else: what the recording says, by its values.
    """
    spans, read = played
    failed = [each for each in read if any(call.error_type for step in each.steps for call in step.calls)]
    expected = {
        "Which episodes does a run have?": traces(read, lambda each: each.run_id == RUN),
        "Which episodes failed despite a high return?": traces(
            read, lambda each: each.outcome == "failure" and (each.return_ or 0) > 0.8
        ),
        "Which were aborted, or ended in an error?": traces(
            read, lambda each: each.status in ("aborted", "error")
        ),
        "Which rewards are errors, and why?": traces(read, lambda each: each.reward.status == "error"),
        "Which episodes has a task, by which version of the policy?": traces(
            read, lambda each: each.task == "train/17"
        ),
        "Which episodes have a tool call that failed?": {each.trace_id for each in failed},
        "Which steps took longer than a second?": traces(
            read, lambda each: any((each.step_duration(step) or 0) > 1 for step in each.steps)
        ),
        "Which groups have no learning signal because all rewards are equal?": traces(
            read.groups, lambda each: each.reward_std == 0
        ),
    }
    searches = {question: traceql.parse(query) for question, query in PAGE}
    found = {
        question: traces(query.spans(spans), bool) for question, query in searches.items() if not query.fold
    }

    assert 10 == len(searches)
    assert expected == found
    assert all(0 < len(each) < len({span.trace_id for span in spans}) for each in found.values())


def test_each_course_of_the_page_has_the_values_of_the_recording(
    played: tuple[list[SpanRecord], mttp.Recording],
) -> None:
    """
    The mean return by the version of the policy, and the largest KL divergence.
    """
    spans, read = played
    returns: dict[tuple[Any, ...], list[float]] = {}
    for episode in read:
        if episode.return_ is not None:
            returns.setdefault((episode.policy_version_start,), []).append(episode.return_)
    expected = {
        "Does the return rise with the version of the policy?": {
            version: sum(values) / len(values) for version, values in returns.items()
        },
        "How far does each update move the policy?": {(): max(update.kl or 0 for update in read.updates)},
    }
    courses = {question: traceql.parse(query) for question, query in PAGE}

    assert expected == {name: query.metrics(spans) for name, query in courses.items() if query.fold}
    assert 5 == len(expected["Does the return rise with the version of the policy?"])


@pytest.mark.parametrize("text", [*(query for _, query in PAGE), *DASHBOARDS])
def test_a_query_compares_and_shows_what_spans_have(
    played: tuple[list[SpanRecord], mttp.Recording], text: str
) -> None:
    """
    Literals have the types of the registry, something is found, and it has each field that is shown.
    """
    spans, _ = played
    query = traceql.parse(text)
    found = query.spans(spans)

    for name, literal in query.compared:
        if name.startswith("span.") and literal is not None:
            assert TYPES[type(literal)] == wanted(name.removeprefix("span."))
    for name in (*query.selected, *query.by, *filter(None, [query.folded])):
        assert any(traceql.value_of(span, name) is not None for span in found), name
    assert found


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("{ span.a = 1 }", 1),
        ("{ span.a = 1.0 }", 0),
        ("{ span.d > 0.5 }", 1),
        ("{ span.d > 0 }", 0),
        ('{ span.many = "y" }', 1),
        ("{ span.none = nil }", 1),
        ('{ (span.a = 2 || duration > 1ms) && name = "n" && status = error }', 1),
        ("{ duration > 1s }", 0),
    ],
)
def test_the_evaluator_does_what_the_page_says_of_tempo(query: str, count: int) -> None:
    """
    An integer never equals a double, and a search matches any element of an array.
    """
    attributes = {"a": 1, "d": 1.0, "many": ["x", "y"]}
    span = SpanRecord(
        trace_id="1" * 32, span_id="1" * 16, name="n", status_code=2, end_time=10**7, attributes=attributes
    )

    assert count == len(traceql.parse(query).spans([span]))


@pytest.mark.parametrize("query", ["{ span.a > > 1 }", "{ span.a = 1", "{ span.a = 1 } | top(3)", "{ } ~"])
def test_the_evaluator_refuses_what_it_does_not_know(query: str) -> None:
    """
    Rather than to find something else.
    """
    with pytest.raises((ValueError, KeyError, IndexError)):
        traceql.parse(query)
