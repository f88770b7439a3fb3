"""The figures of episodes: the same from rows of any source as from values."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.recorded_kinds import every_kind, every_way
from reading.traces import START, episode, part, scattered, span_id, trace_id, write
from specimen import episodes as any_episodes
from tables.oracle import expected_figures

import mttp
from mttp.mist import span_messages
from mttp.model.figures import EpisodeFigures
from mttp.model.spans import SpanRecord
from mttp.reading import decoder_pool, scanning
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.tables.figures import figures_of_values, read_figures


def plain(figures: Sequence[EpisodeFigures]) -> list[dict[str, Any]]:
    """Figures by trace id, as values that are equal if they are; sums over processes to 12 digits."""

    def of(value: Any) -> Any:
        if isinstance(value, float):
            return f"{value + 0.0:.12g}"  # -0.0 is 0.0
        if isinstance(value, Mapping):
            return {key: of(item) for key, item in value.items()}
        return value

    return [
        {
            **{name: of(value) for name, value in one._asdict().items() if name != "inputs_json"},
            "inputs": repr(one.inputs),
            "latency": one.latency,
            "success": one.success,
        }
        for one in sorted(figures, key=lambda one: (one.start_time, one.trace_id))
    ]


def of_spans(source: Any) -> list[dict[str, Any]]:
    """The figures that are read without building episodes."""
    return plain(read_figures(source))


def of_values(source: Any) -> list[dict[str, Any]]:
    """The figures of the episodes that `mttp.read` returns, which rows of these values have, too."""
    episodes = mttp.read(source).episodes
    expected = plain([*map(expected_figures, episodes)])
    assert expected == plain(figures_of_values(episodes))
    return expected


@pytest.fixture
def of_everything(session: mttp.Session) -> list[SpanRecord]:
    """Episodes that were recorded in every way."""
    return every_way(session)


@pytest.mark.parametrize("seed", range(24))
def test_figures_from_spans_equal_those_from_values(of_everything: list[SpanRecord], seed: int):
    """
    In any order, in several files, with repeated spans, and without ends or markers.
    """
    paths = scattered(of_everything, random.Random(seed), seed)

    assert of_values(paths) == of_spans(paths)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_episodes(), min_size=1, max_size=2))
def test_figures_of_any_episode_are_equal(values: list[mttp.Episode]):
    """
    Whatever its values: NaN, infinities, any text, agents, scorings, tokens.
    """
    with TemporaryDirectory() as directory:
        path = f"{directory}/a.jsonl"
        with mttp.configure(transport=f"file://{path}") as session:
            for value in values:
                session.record(value)

        assert of_values(path) == of_spans(path)


def test_a_span_of_every_kind(tmp_path: Path):
    """
    Evaluations, groups, annotations and updates included, as OTLP JSON, as messages and as Parquet.
    """
    spans = every_kind(tmp_path)
    path = write("a.jsonl", spans)
    messages = [message.to_bytes() for span in spans for message in span_messages.envelop(span)]
    Path("a.mttp.jsonl").write_bytes(b"\n".join(messages) + b"\n")

    assert of_values(path) == of_spans(path)
    assert of_values(path) == of_spans("a.mttp.jsonl")


def test_several_processes_read_figures_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """
    A large file is decoded in parts by other processes.
    """
    path = tmp_path / "a.jsonl"
    for number in range(6):
        with mttp.configure(transport=f"file://{path}", run_id="r", run=f"{number}"):
            for place in range(4):
                with mttp.episode(
                    env="e", task=f"t{place}", slices=["a", "ü"], inputs={"level": 1}
                ) as played:
                    for index in range(4):
                        with played.step() as step, step.model_call("m") as call:
                            call.response(input_tokens=1)
                        step.reward(0.5, components={"correct": index / 7}) if place % 2 else None
                    played.reward(1.0, components={"x": 0.1}, grader="g") if place == 3 else None
    alone = of_spans(path)
    monkeypatch.setattr(scanning, "_LARGE", 1)
    monkeypatch.setattr(decoder_pool, "_PART_BYTES", 5_000)
    monkeypatch.setattr(decoder_pool, "_cores", lambda: 2)

    assert of_values(path) == alone == of_spans(path)
    assert 24 == len(alone)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("score", [None, 3.0])
@pytest.mark.parametrize("rewards", [[1.0, 2.0], [math.nan], [math.inf, -math.inf], []])
def test_parts_of_other_processes_are_merged(rewards: list[float], score: float | None, is_late: bool):
    """
    Their steps, rewards and scorings, before the episode and after it.
    """
    paths = [write("a.jsonl", episode(0)), write("b.jsonl", part(0, rewards=rewards, score=score))]
    paths = paths if is_late else paths[::-1]

    assert of_values(paths) == of_spans(paths)


def test_calls_tokens_and_metrics_of_other_processes_are_merged():
    """
    The metrics of the episode win over those of another process.
    """
    with mttp.configure("file://a.jsonl"):
        with mttp.episode(env="e") as opened:
            carrier = mttp.inject({})
            opened.metric("kl", 0.5)
            with opened.step() as step, step.model_call("m"):
                step.tokens([1, 2], prompt_ids=[3])
        with mttp.extract(carrier) as other:
            other.metric("kl", 9.0)
            other.metric("own", 1.0)
            with other.step(index=5) as step:
                step.tokens([1, 2, 3])
                with step.model_call("m"), step.tool_call("t"):
                    pass
    (found,) = of_spans("a.jsonl")

    assert of_values("a.jsonl") == [found]
    assert (1, 5, 2) == (found["prompt_tokens"], found["completion_tokens"], found["call_count"])
    assert {"kl": "0.5", "own": "1"} == found["metrics"]


def foreign_call(number: int, parent: str, *, seconds: int = 1, ends: str = "0" * 15) -> SpanRecord:
    """A model call that another library recorded."""
    return SpanRecord(
        trace_id=trace_id(number),
        span_id=f"{ends}{number + 1:x}",
        parent_id=parent,
        name="chat m",
        start_time=START,
        end_time=START + seconds * 10**9,
        attributes={a.GEN_AI_OPERATION_NAME: "chat"},
    )


@pytest.mark.parametrize("is_split", [True, False])
def test_model_calls_of_other_libraries_count(is_split: bool):
    """
    Right below a step or below spans of other libraries; not below a scoring.
    """
    between = replace(foreign_call(0, span_id(0, 1), ends="a" * 15), name="POST", attributes={})
    calls = [
        foreign_call(0, span_id(0, 2), seconds=2),
        foreign_call(0, between.span_id, seconds=4, ends="b" * 15),
        foreign_call(1, span_id(1, 0)),
        foreign_call(7, span_id(7, 1)),
    ]
    others = [between, *calls]
    spans = [*episode(0), *episode(1), *episode(2)]
    paths = [write("a.jsonl", spans), write("b.jsonl", others)]
    path = paths if is_split else [write("c.jsonl", [*others, *spans])]
    found = of_spans(path)

    assert of_values(path) == found
    assert [3.0, None, None] == [one["latency"] for one in found]


def test_late_facts_are_part_of_the_figures(session: mttp.Session):
    """
    A late score replaces a missing reward only; a group has the members that name none themselves.
    """
    opened = []
    for number in range(4):
        with mttp.episode(env="e", group="own" if number == 3 else None) as one:
            if number == 1:
                one.reward(1.0)
        opened.append(one)
    for place, value in enumerate((0.25, 0.5)):
        mttp.score(opened[0], value, grader=f"late {place}", components={"q": value})
    mttp.score(opened[1], 0.5, grader="late")
    mttp.annotate(opened[2], "outcome", "success")
    mttp.group("first", opened, rewards=[0.0] * 4).end()
    mttp.group("second", opened[:2], rewards=[0.0] * 2).end()
    path = write("a.jsonl", list(session.records()))
    found = of_spans(path)

    assert of_values(path) == found
    assert ["0.5", "1", None, None] == [one["reward"] for one in found]
    assert ["second", "second", "first", "own"] == [one["group"] for one in found]
    assert [None, None, True, None] == [one["success"] for one in found]


def test_step_scores_are_in_order_of_steps():
    """
    The spec is that of the last scored step, whichever scoring was written last.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as opened:
        for index, kind in enumerate(("ok", "broken", "ok")):
            with opened.step() as step:
                components = {"a": 0.1 * index, **({"b": math.nan} if kind == "broken" else {})}
                step.reward(1.0, components=components, failed_checks=[f"check {index}"])
    spans = list(mttp.scan("a.jsonl", arrays=True))
    for order in (spans, spans[::-1]):
        path = write("b.jsonl", order)

        assert of_values(path) == of_spans(path)
    (found,) = read_figures("a.jsonl")
    assert ({"a": math.fsum([0.0, 0.1, 0.2])}, {"b": "error"}) == (found.components, found.component_statuses)
    assert ("check 0", "check 1", "check 2") == found.failed_checks


def test_tokens_count_without_their_ids():
    """
    Ids that were left out are counted by the block's own count.
    """
    with mttp.configure("file://a.jsonl", content=False), mttp.episode() as opened, opened.step() as step:
        step.tokens(np.arange(5), prompt_ids=[1, 2])
    (found,) = of_spans("a.jsonl")

    assert of_values("a.jsonl") == [found]
    assert (2, 5) == (found["prompt_tokens"], found["completion_tokens"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_episodes(), max_size=3))
def test_figures_of_values_that_were_not_recorded(values: list[mttp.Episode]):
    """
    Also of equal values, without times and without trace ids; in the given order.
    """
    values = [*values, *values[:1], mttp.Episode(env="e", return_=1.0), mttp.Episode()]
    found = figures_of_values(values)

    assert [value.trace_id for value in values] == [row.trace_id for row in found]
    assert plain([*map(expected_figures, values)]) == plain(found)
    assert [None, None] == [row.duration for row in found[-2:]]


def test_a_hundred_components_of_a_value():
    """
    All of them, whose names keep their capitals, count.
    """
    reward = mttp.Reward(
        value=1.0, status="ok", components={f"Part {place}": place / 7 for place in range(100)}
    )
    (found,) = figures_of_values([mttp.Episode(reward=reward)])

    assert reward.components == found.components


def test_an_episode_without_its_root_has_the_facts_of_its_marker():
    """
    Environment, task and inputs of an unfinished episode are known.
    """
    stated = {a.TASK_ID: "t", a.TASK_SLICES: ["s"], a.INPUTS_JSON: '{"level":2}', a.ENV_SEED: "3"}
    spans = [
        replace(one, attributes={**one.attributes, **stated}) if one.name == names.EPISODE_START else one
        for one in episode(0, steps=3, marked=True)[:-1]
    ]
    (found,) = of_spans(path := write("b.jsonl", spans))

    assert of_values(path) == [found]
    assert ("unfinished", "t", ("s",), None) == (
        found["status"],
        found["task"],
        found["slices"],
        found["duration"],
    )
