"""The figures of a recording, in one pass and little memory."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reading.traces import (
    START,
    episode,
    foreign,
    lines,
    part,
    run,
    span_id,
    trace_id,
    write,
    write_bytes,
)

import mttp
from mttp.errors import ReadError
from mttp.model.gradings import GraderHealth, label
from mttp.model.spans import SpanRecord
from mttp.pages.summary import document
from mttp.reading.scanning import Scan
from mttp.semconv import attributes as a
from mttp.tables import database
from mttp.tables.figures import read_figures
from mttp.tables.summary import Returns, Summary, Trend

DATA = Path(__file__).parent / "data"


def many(count: int) -> list[SpanRecord]:
    """Episodes of different lengths, with components, some without a root, some lacking a step, and a run."""
    spans = list(run())
    for number in range(count):
        components = {"correct": number / count, **({"format": 0.5} if number % 2 else {})}
        made = episode(number, steps=1 + number % 4, marked=number % 3 == 0, components=components)
        if number % 7 == 6:
            made = made[:-1]
        elif number % 7 == 5:
            made = made[1:]
        spans += made
    return spans


def by_component(summary: Summary) -> dict[str, GraderHealth]:
    """The health of each component of one grader of episodes; the total is ``."""
    return {one.component: one for one in summary.graders}


def figures(summary: Summary) -> dict[str, Any]:
    """What two ways to the same summary must agree on."""
    return {
        "starts": summary.start_times.tolist(),
        "durations": np.nan_to_num(summary.durations, nan=-1).tolist(),
        "returns": np.nan_to_num(summary.returns, nan=-1).tolist(),
        "lengths": summary.lengths.tolist(),
        "statuses": list(summary.statuses),
        "outcomes": list(summary.outcomes),
        "envs": list(summary.envs),
        "tokens": [summary.prompt_tokens, summary.completion_tokens],
        "problems": sorted((problem.kind, problem.trace_id) for problem in summary.problems),
    }


def figures_of_values(recording: mttp.Recording) -> dict[str, Any]:
    """The same, from the episodes."""
    tokens = [step.tokens for one in recording for step in one.steps if step.tokens is not None]
    return {
        "starts": [one.start_time for one in recording],
        "durations": [-1 if one.duration is None else one.duration for one in recording],
        "returns": [-1 if one.return_ is None else one.return_ for one in recording],
        "lengths": [one.length for one in recording],
        "statuses": [one.status for one in recording],
        "outcomes": [one.outcome for one in recording],
        "envs": [one.env for one in recording],
        "tokens": [
            sum(block.prompt_count or 0 for block in tokens),
            sum(block.count or 0 for block in tokens),
        ],
        "problems": sorted((problem.kind, problem.trace_id) for problem in recording.problems),
    }


@pytest.mark.parametrize("order", ["as written", "shuffled", "backwards"])
def test_a_summary_says_what_the_values_say(order: str):
    """
    Whatever the order of the spans, the figures are those of the episodes that `read` returns.
    """
    spans = many(60)
    if order == "shuffled":
        random.Random(3).shuffle(spans)
    elif order == "backwards":
        spans.reverse()
    path = write("a.jsonl", spans, per_line=7)

    assert figures_of_values(mttp.read(path)) == figures(mttp.summarize(path))


@pytest.mark.parametrize("name", ["official.jsonl", "collector.jsonl"])
def test_files_of_others_are_summed_up(name: str):
    """
    So it is with what other programs wrote.
    """
    values, summary = figures_of_values(mttp.read(DATA / name)), figures(mttp.summarize(DATA / name))

    assert values | {"problems": []} == summary | {"problems": []}


def test_components_are_those_of_the_last_scoring():
    """
    Per component: how many valid scores it has, and their mean, lowest and highest.
    """
    spans = many(20)
    path = write("a.jsonl", spans)
    summary = mttp.summarize(path)
    scored = [one.reward.components for one in mttp.read(path)]
    correct = [scores["correct"] for scores in scored if "correct" in scores]

    components = by_component(summary)

    assert ["", "correct", "format"] == list(components)
    found = components["correct"]
    assert (len(correct), min(correct), max(correct)) == (found.count, found.min, found.max)
    assert found.mean == pytest.approx(sum(correct) / len(correct))
    assert components["format"].mean == 0.5


def test_only_the_last_of_several_scorings_counts():
    """
    A scoring that was replaced is not averaged in.
    """
    first, second = (episode(0, components={"correct": score}) for score in (0.0, 1.0))
    again = replace(second[-2], span_id=span_id(0, 801), start_time=second[-2].start_time + 1)
    root = replace(first[-1], attributes={**first[-1].attributes, a.EPISODE_SPAN_COUNT: 5})
    summary = mttp.summarize(write("a.jsonl", [*first[:-2], again, first[-2], root]))

    found = by_component(summary)["correct"]

    assert (1, 1, 1.0, 1.0, 1.0) == (found.gradings, found.count, found.mean, found.min, found.max)


def test_components_beyond_one_span_are_found(session: mttp.Session):
    """
    Of a scoring with very many components the rest are spans of their own.
    """
    components = {f"part_{number:02}": number / 100 for number in range(50)}
    with mttp.episode() as opened:
        opened.reward(1.0, components=components)
    summary = mttp.summarize(session)

    found = {name: one.mean for name, one in by_component(summary).items() if name}

    assert components == found


def test_tokens_are_counted(session: mttp.Session):
    """
    Tokens of the policy, and those that called models account for, are counted apart.
    """
    for _ in range(2):
        with mttp.episode() as opened, opened.step() as step:
            step.tokens([1, 2, 3], prompt_ids=[4, 5])
            with step.model_call("judge") as call:
                call.response(input_tokens=10, output_tokens=7)
    summary = mttp.summarize(session)

    assert (4, 6, 20, 14) == (
        summary.prompt_tokens,
        summary.completion_tokens,
        summary.call_input_tokens,
        summary.call_output_tokens,
    )


def test_specs_are_kept_apart():
    """
    Returns under different versions of a reward spec are different things.
    """
    *steps, scoring, root = episode(1, components={"correct": 1.0})
    scoring = replace(scoring, attributes={**scoring.attributes, a.SPEC_NAME: "math", a.SPEC_VERSION: "1.0"})
    spans = [*episode(0), *steps, scoring, root]
    summary = mttp.summarize(write("a.jsonl", spans))

    assert {"": 1, "math 1.0": 1} == summary.specs.counts()


def test_returns_are_grouped_by_environment():
    """
    Of each word how many episodes have it, the most frequent first, and the mean of their known returns.
    """
    paid = {0: ("b", 1.0), 1: ("a", 2.0), 2: ("a", 4.0), 3: ("a", "nothing"), 4: ("c", "nothing")}
    spans = [
        span
        for number, (env, return_) in paid.items()
        for span in episode(number, **{a.ENV_ID: env, a.EPISODE_RETURN: return_})
    ]
    summary = mttp.summarize(write("a.jsonl", spans))

    assert {
        "a": Returns(3, 2, 3.0),
        "b": Returns(1, 1, 1.0),
        "c": Returns(1, 0, None),
    } == summary.envs.returns()
    assert ["a", "b", "c"] == list(summary.envs.returns())


def test_duplicates_count_once():
    """
    Spans that come again are left out, before the end of an episode and after it.
    """
    spans = episode(0, components={"correct": 1.0})
    summary = mttp.summarize(write("a.jsonl", [spans[0], *spans, *spans, foreign(1), foreign(1)]))

    assert (1, 5, 1) == (len(summary), summary.duplicates, by_component(summary)["correct"].count)


def test_runs_are_named():
    """
    A summary knows the runs.
    """
    assert [("run-1", "first")] == [
        (one.id, one.name) for one in mttp.summarize(write("a.jsonl", run())).runs
    ]


def test_a_recording_of_nothing_has_figures_too():
    """
    No episode, no number, and no error.
    """
    summary = mttp.summarize(write_bytes("a.jsonl", b"{}\n"))

    assert (0, 0, {}) == (len(summary), summary.returns.size, summary.statuses.counts())
    assert "<Summary of 0 episodes, 0 steps, 0 problems>" == repr(summary)


def test_strict_raises_at_the_first_problem():
    """
    As `read` does.
    """
    with pytest.raises(ReadError, match=r"episode .* has no end: 2 steps were found"):
        mttp.summarize(write("a.jsonl", episode(0)[:-1]), strict=True)


def test_an_unfinished_episode_has_no_return():
    """
    Its steps count, and its return is unknown.
    """
    summary = mttp.summarize(write("a.jsonl", episode(0, steps=3)[:-1]))

    assert (["unfinished"], [3], True) == (
        list(summary.statuses),
        summary.lengths.tolist(),
        math.isnan(summary.returns[0]),
    )
    assert [START] == summary.start_times.tolist()


def test_impossible_numbers_do_no_harm():
    """
    What other programs may have written in our attributes is left out.
    """
    odd = {a.EPISODE_LENGTH: 2**70, a.EPISODE_RETURN: "a lot", a.EPISODE_STATUS: 3}
    spans = episode(0, components={"bad": math.inf, "good": 1.0}, **odd)
    summary = mttp.summarize(write_bytes("a.jsonl", b"".join(map(_with_integers, lines(spans)))))

    assert ([0], True, ["completed"], (0, 1)) == (
        summary.lengths.tolist(),
        math.isnan(summary.returns[0]),
        list(summary.statuses),
        tuple(by_component(summary)[name].count for name in ("bad", "good")),
    )


def _with_integers(line: bytes) -> bytes:
    """The encoder writes integers beyond 64 bits as text; others may not."""
    return line.replace(b'"stringValue":"%d"' % 2**70, b'"intValue":"%d"' % 2**70)


def test_trace_ids_are_what_they_seem():
    """
    The problems of a summary name the episode as `read` does.
    """
    summary = mttp.summarize(write("a.jsonl", episode(3)[1:]))

    assert [("incomplete_episode", trace_id(3))] == [(p.kind, p.trace_id) for p in summary.problems]
    assert f"episode {trace_id(3)} lacks spans: 2 of 3 were found" == str(summary.problems[0])


def test_a_filtered_recording_has_the_figures_of_what_it_has(session: mttp.Session):
    """
    Those of its episodes, with the runs that these are of.
    """
    for env, paid in (("a", 1.0), ("b", 5.0), ("a", 3.0)):
        with mttp.episode(env=env) as opened:
            opened.reward(paid, components={"x": paid})
    recording = mttp.read(session)
    summary = recording.filter(env="a").summary()

    assert [1.0, 3.0] == summary.returns.tolist()
    assert (2, 2.0) == (by_component(summary)["x"].count, by_component(summary)["x"].mean)
    assert [1.0, 5.0, 3.0] == recording.summary().returns.tolist()


@pytest.mark.parametrize(
    ("rewards", "score", "paid"),
    [
        ([1.0, 2.0], None, 4.0),
        ([math.nan], None, None),
        ([math.inf], None, math.inf),
        ([math.inf, -math.inf], None, None),
        ([1.7e308, 1.7e308], None, None),
        ([1.0] * 2500, None, 2501.0),
        ([math.inf] * 1500 + [-math.inf], None, None),
        ([1.0], 3.0, 3.0),
        ([], 3.0, 3.0),
    ],
)
@pytest.mark.parametrize("is_late", [True, False])
def test_what_another_process_rewarded_is_added_alike(
    rewards: list[float], score: float | None, paid: float | None, is_late: bool
):
    """
    Whether its spans come after the episode or before it, and whatever its numbers are.
    """
    paths = [write("a.jsonl", episode(0)), write("b.jsonl", part(0, rewards=rewards, score=score))]
    paths = paths if is_late else paths[::-1]
    summary = mttp.summarize(paths)

    assert str([math.nan if paid is None else paid]) == str(summary.returns.tolist())
    assert ["other 2" if score is not None else ""] == list(summary.specs)


@pytest.mark.parametrize("span", ["", span_id(0, 0), span_id(0, 1)])
@pytest.mark.parametrize("trace", [trace_id(0), trace_id(0).lstrip("0"), f"0x{trace_id(0)}", "nonsense", ""])
def test_a_late_outcome_is_that_of_the_episode_it_names(trace: str, span: str):
    """
    By its trace id and no other spelling of it, and by its root's span; one of a step is not the episode's.
    """
    stated = {
        a.RUN_ID: "run-1",
        a.ANNOTATION_KIND: "outcome",
        a.ANNOTATION_KEY: a.EPISODE_OUTCOME,
        a.ANNOTATION_VALUE: "failure",
        a.ANNOTATION_TARGET_TRACE_ID: trace,
        a.ANNOTATION_TARGET_SPAN_ID: span,
    }
    late = SpanRecord(trace_id="7" * 32, span_id="7" * 16, name="annotate", attributes=stated)
    path = write("a.jsonl", [late, *episode(0)])
    is_meant = trace == trace_id(0) and span != span_id(0, 1)

    assert [one.outcome for one in mttp.read(path)] == list(mttp.summarize(path).outcomes)
    assert ["failure" if is_meant else "success"] == list(mttp.summarize(path).outcomes)


def test_of_scorings_at_one_time_the_last_counts():
    """
    Whether it states a total or not.
    """
    spans = episode(0, components={"x": 1.0})
    attributes = {key: spans[-2].attributes[key] for key in (a.RUN_ID, a.EPISODE_ID)}
    abstained = {**attributes, a.REWARD_STATUS: "abstained", a.GRADER_NAME: "judge"}
    other = replace(spans[-2], span_id=span_id(0, 801), attributes=abstained)
    root = replace(spans[-1], attributes={**spans[-1].attributes, a.EPISODE_SPAN_COUNT: 6})
    again = replace(spans[-2], span_id=span_id(0, 802))
    for order in ([other, spans[-2], again], [spans[-2], again, other], [spans[-2], other, again]):
        path = write("a.jsonl", [*spans[:-2], *order, root])

        (value,), summary = mttp.read(path), mttp.summarize(path)
        total = next(grader for grader in summary.graders if not grader.component)

        assert (label(value.reward), value.reward.status == "ok") == (total.grader, total.ok == 1)


def test_two_roots_are_one_episode_of_the_first():
    """
    The other one counts as a span only.
    """
    spans = episode(0, steps=3, components={"x": 1.0})
    other = replace(
        spans[-1], span_id=span_id(0, 950), attributes={**spans[-1].attributes, a.EPISODE_RETURN: 9.0}
    )
    roots = [
        replace(one, attributes={**one.attributes, a.EPISODE_SPAN_COUNT: 6}) for one in (spans[-1], other)
    ]
    for first in (0, 1):
        path = write("a.jsonl", [roots[first], *spans[:-1], roots[1 - first]])
        summary = mttp.summarize(path)

        assert [[3.0], [9.0]][first] == summary.returns.tolist()


def test_failed_gradings_of_all_kinds_are_counted_alike(session: mttp.Session):
    """
    Episodes, steps and agents, late scores and outcomes, faults, updates and cost.
    """
    for number in range(5):
        with mttp.episode(env="toy", task=str(number)) as opened:
            with opened.step() as step:
                step.reward(math.nan if number == 1 else 1.0, components={"a": 1.0, "b": math.nan})
            opened.reward(5.0, components={"x": 1.0, "y": math.nan}, grader="hand")
            opened.end(cost_usd=0.5 if number else None)
    recording = mttp.read(session)
    mttp.score(recording.episodes[0], 0.5, grader="late")
    mttp.annotate(recording.episodes[1], "outcome", "success")
    mttp.update(loss=1.0)
    mttp.update(loss=math.nan, kl=0.5)
    summary = mttp.summarize(session)
    graders = {(one.scope, one.grader, one.component): one for one in summary.graders}

    assert (5, 0) == (graders["episode", "hand", ""].partial, graders["episode", "hand", ""].count)
    assert 5 == graders["episode", "hand", "y"].invalid
    assert (1, 4) == (graders["step", "", ""].invalid, graders["step", "", ""].partial)
    assert (1, 0.5) == (graders["late", "late", ""].count, graders["late", "late", ""].mean)
    assert (2.0, 4) == (summary.cost_usd, summary.cost_count)
    assert {"success": 1, "unknown": 4} == summary.outcomes.counts()
    assert (2, Trend(1, 1.0, 1.0, 1.0)) == (summary.updates, summary.loss)
    assert 10 == summary.faults["component_invalid"]


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_an_invalid_step_reward_is_a_failed_grading(steps: str):
    """
    A step reward that is not finite counts without a grader; a scored step counts in `graders` alone.
    """
    with mttp.configure(transport="file://invalid.jsonl"):
        with mttp.episode(env="toy", steps=steps) as opened:
            carrier = mttp.inject({})
            for reward in (1.0, math.nan, math.inf, 2.0):
                with opened.step() as step:
                    step.reward(reward)
            with opened.step() as step:
                step.reward(math.nan, grader="judge")
            with opened.agent("a") as agent, agent.step() as step:
                step.reward("much")
        with mttp.extract(carrier), mttp.step() as step:
            step.reward(math.nan)
    summary = mttp.summarize("invalid.jsonl")

    assert (4, 5) == (summary.invalid_step_rewards, summary.failed_gradings)
    assert [("step", "judge", 1)] == [(one.scope, one.grader, one.invalid) for one in summary.graders]
    assert 4 == document(summary)["totals"]["invalid_step_rewards"]
    assert [4] == [one.invalid_step_rewards for one in summary.by_run.values()]


def test_two_runs_are_shown_as_two():
    """
    Each has its own figures, and the figures of both together are totals.
    """
    paths = []
    for name, paid in (("first", 1.0), ("second", 3.0)):
        with mttp.configure(transport=f"file://{name}.jsonl", run_id=name):
            for _ in range(2):
                with mttp.episode() as opened:
                    opened.reward(paid)
        paths.append(f"{name}.jsonl")
    facts = document(mttp.summarize(paths))

    assert [("first", 2, 1.0), ("second", 2, 3.0)] == [
        (run["id"], run["episodes"], run["return"]["mean"]) for run in facts["runs"]
    ]
    assert (4, 2.0, None) == (
        facts["totals"]["episodes"],
        facts["totals"]["return"]["mean"],
        facts["totals"]["return"]["interval"],
    )


@pytest.mark.parametrize("read", [mttp.summarize, read_figures])
def test_figures_ask_for_no_arrays(read: Any, monkeypatch: pytest.MonkeyPatch):
    """
    Neither tokens nor observations are decoded for them, nor fetched from a store.
    """
    asked = []

    def scan(source: Any, **options: Any) -> Scan:
        asked.append(options["arrays"])
        return Scan(source, **options)

    monkeypatch.setattr(database, "Scan", scan)
    read(write("a.jsonl", episode(0)))

    assert {False} == {*asked}
