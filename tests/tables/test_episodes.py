"""The table of episodes: each row equals the episode's value and its figures."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reading.recorded import Walk, record_environment, record_everything, record_training
from reading.recorded_kinds import every_kind, every_way
from reading.traces import START, episode, part, scattered, span_id, trace_id, write
from released import FOLDER, Held
from specimen import episodes as any_episodes
from tables.converted import assert_converted
from tables.oracle import expected_figures, known
from training_runs import record as record_training_run

import mttp
from mttp.mist import span_messages
from mttp.model.nesting import from_json
from mttp.model.spans import SpanRecord
from mttp.otlp.protobuf_decode import decode_message
from mttp.reading.counted import reasons_of, training_of
from mttp.semconv import attributes as a
from mttp.semconv import spans as names
from mttp.tables import Database, statement

NAMED_OTHERWISE = {
    "policy_version": "policy_version_start",
    "steps": "step_count",
}
"""Columns that a field of the value has another name for."""
FIELDS = (
    *(
        "trace_id",
        "id",
        "run_id",
        "start_time",
        "end_time",
        "index",
        "attempt",
        "env",
        "env_version",
        "task",
        "split",
        "group",
    ),
    *(
        "policy",
        "policy_version",
        "status",
        "outcome",
        "stop_reason",
        "error_type",
        "terminated",
        "truncated",
    ),
    *("length", "steps", "duration", "complete"),
    *("span_id", "env_index", "policy_version_end", "policy_update_index", "timing"),
    "error_message",
)
"""Columns that are fields of the value."""


def expected(recording: mttp.Recording) -> list[dict[str, Any]]:
    """The rows as the values and the figures of studies say."""
    figures = [*map(expected_figures, recording.episodes)]
    training = training_of(recording.runs, figures, {update.run_id for update in recording.updates})
    rows = []
    for value, known_figures, reason in zip(
        recording.episodes, figures, reasons_of(figures, training), strict=True
    ):
        counted = known_figures.as_counted()
        counts = reason == "counted"
        row = {name: getattr(value, NAMED_OTHERWISE.get(name, name)) for name in FIELDS}
        row |= {
            "env_kwargs": known_figures.env_kwargs,
            "env_spaces": known_figures.env_spaces,
            "env_wrappers": list(value.env_wrappers),
            "inputs": None if value.inputs is None else from_json(str(known_figures.inputs_json)),
            "seed": known_figures.seed,
            "slices": list(value.slices),
            "success": known_figures.success,
            "counts": counts,
            "counts_reason": reason,
            "return": known_figures.return_,
            "reward": known_figures.reward,
            "reward_status": known_figures.reward_status,
            "verdict": known_figures.verdict,
            "spec_name": known_figures.spec[0] or None,
            "spec_version": known_figures.spec[1] or None,
            "spec_sha256": known_figures.spec[2] or None,
            "graders": [
                {"name": name or None, "version": version or None} for name, version in known_figures.graders
            ],
            "failed_checks": list(known_figures.failed_checks),
            "advantage": known(value.advantage),
            "sampling_share": value.sampling_share,
            "discount": known(value.discount),
            "final_value": known(value.final_value),
            "omissions": list(value.omissions),
            "prompt_tokens": known_figures.prompt_tokens,
            "completion_tokens": known_figures.completion_tokens,
            "mean_logprob": mean_logprob(value),
            "calls": known_figures.call_count,
            "call_seconds": known_figures.call_seconds,
            "time_to_first_token": known_figures.time_to_first_token,
            "cost_usd": known_figures.cost,
            "components": dict(known_figures.components),
            "component_statuses": dict(known_figures.component_statuses),
            "metrics": dict(known_figures.metrics),
            "metadata": dict(known_figures.metadata),
            "faults": list(value.faults),
            **reward_span(value),
            "counted_return": counted.return_ if counts else None,
            "counted_reward": counted.reward if counts else None,
        }
        rows.append(row)
    return rows


def reward_span(value: mttp.Episode) -> dict[str, str | None]:
    """The ids of the scoring with the reward: one of the episode, else of an annotation."""
    if not (span_id := value.reward.span_id):
        return {"reward_trace_id": None, "reward_span_id": None}
    late = {each.span_id: each.trace_id for each in value.annotations}
    trace_id = value.trace_id if value.rewards else late[span_id]
    return {"reward_trace_id": trace_id, "reward_span_id": span_id}


def mean_logprob(value: mttp.Episode) -> float | None:
    """The mean over the tokens of the steps whose mean is finite."""
    blocks = [step.tokens for step in value.steps if step.tokens is not None]
    stated = [
        (tokens.count, float(np.mean(tokens.logprobs, dtype=float)))
        for tokens in blocks
        if tokens.count and tokens.logprobs is not None and len(tokens.logprobs)
    ]
    finite = [(count, mean) for count, mean in stated if math.isfinite(mean)]
    total = sum(count for count, _ in finite)
    return sum(count * mean for count, mean in finite) / total if total else None


def computed(source: Any) -> list[dict[str, Any]]:
    """The rows of the table, with the numbers that count, and without the texts."""
    with Database(source) as database:
        columns = ", ".join(f'"{name}"' for name, _ in database.columns("episodes") if name not in TEXTS)
        rows = database.sql(f"SELECT {columns} FROM episodes").rows()
    for row in rows:
        row |= {name: dict(row[name]) for name in MAPS}
        row["inputs"] = from_json(row["inputs"]) if row["inputs"] is not None else None
        row["counted_return"] = row["return"] if row.pop("return_counts") else None
        row["counted_reward"] = row["reward"] if row.pop("reward_counts") else None
    return rows


MAPS = ("components", "component_statuses", "metrics", "metadata")
TEXTS = ("prompt", "completion", "exchange")


def assert_equal(source: Any) -> list[dict[str, Any]]:
    """Check each row of a source's episodes, field by field, and those of its Parquet file; return them."""
    assert_converted(source)
    recording = mttp.read(source)
    wanted, found = expected(recording), computed(source)
    assert [row["trace_id"] for row in wanted] == [row["trace_id"] for row in found]
    for value, want, row in zip(recording.episodes, wanted, found, strict=True):
        scales = scales_of(value)
        assert want.keys() == row.keys()
        different = {
            name: (want[name], row[name])
            for name in want
            if not is_near(want[name], row[name], scales.get(name, 0.0))
        }
        assert {} == different, row["trace_id"]
    return found


def scales_of(value: mttp.Episode) -> dict[str, float]:
    """The sums of magnitudes, which bound the errors of the columns that are sums."""
    rewards = [*(step.reward for step in value.steps), value.return_]
    scores = [
        score for step in value.steps for reward in step.rewards for score in reward.components.values()
    ]
    of_rewards, of_scores = (
        sum(abs(number) for number in numbers if number is not None and math.isfinite(number))
        for numbers in (rewards, scores)
    )
    return {"return": of_rewards, "counted_return": of_rewards, "components": of_scores}


def is_near(want: Any, found: Any, scale: float) -> bool:
    """Whether two cells are equal; numbers to 12 digits, since sums associate differently."""
    if isinstance(want, Mapping) and isinstance(found, Mapping):
        return want.keys() == found.keys() and all(is_near(want[key], found[key], scale) for key in want)
    if isinstance(want, float) and isinstance(found, float):
        if math.isnan(want) or math.isnan(found):
            return math.isnan(want) and math.isnan(found)
        return math.isclose(want, found, rel_tol=1e-12, abs_tol=min(1e-12 * scale, 1e300))
    return type(want) is type(found) and want == found


@pytest.mark.parametrize("seed", range(24))
def test_episodes_that_were_recorded_in_every_way(session: mttp.Session, seed: int):
    """
    In any order, in several files, with repeated spans, and without ends or markers.
    """
    assert_equal(scattered(every_way(session), random.Random(seed), seed))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_episodes(), min_size=1, max_size=2))
def test_any_episode(values: list[mttp.Episode]):
    """
    Whatever its values: NaN, infinities, any text, agents, scorings, tokens.
    """
    with TemporaryDirectory() as directory:
        path = f"{directory}/a.jsonl"
        with mttp.configure(transport=f"file://{path}") as session:
            for value in values:
                session.record(value)

        assert_equal(path)


def test_a_span_of_every_kind(tmp_path: Path):
    """
    Evaluations, groups, annotations and updates included, as OTLP JSON and as messages.
    """
    spans = every_kind(tmp_path)
    path = write("a.jsonl", spans)
    messages = [message.to_bytes() for span in spans for message in span_messages.envelop(span)]
    Path("a.mttp.jsonl").write_bytes(b"\n".join(messages) + b"\n")

    assert_equal(path)
    assert_equal("a.mttp.jsonl")


@pytest.mark.parametrize("record", [record_everything, record_training, record_environment])
def test_recordings_with_a_little_of_everything(record: Any):
    """
    Each part of the vocabulary, a training, and an environment with steps in columns.
    """
    record()

    assert_equal([*Path().glob("*.jsonl")])


RELEASED = [path for path in FOLDER.rglob("*") if ".jsonl" in path.name or path.suffix == ".parquet"]
CASES = [*(Path(__file__).parents[1] / "reading").glob("*/**/*.jsonl")]


@pytest.mark.parametrize("path", [*RELEASED, *CASES], ids=lambda path: f"{path.parent.name}/{path.name}")
def test_files_that_are_kept(path: Path):
    """
    Those that released versions wrote, those of other programs, and those with problems.
    """
    assert_equal(path)


@pytest.mark.parametrize("path", [*FOLDER.rglob("*.binpb")], ids=lambda path: path.parent.name)
def test_spans_that_a_collector_received(path: Path):
    """
    Spans instead of columns.
    """
    assert_equal(Held(decode_message(path.read_bytes())))


def test_a_training_run(tmp_path: Path):
    """
    Groups with advantages, updates, late scores.
    """
    rows = assert_equal(record_training_run(tmp_path / "a.jsonl", 1, updates=3))

    assert any(row["advantage"] for row in rows)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("score", [None, 3.0])
@pytest.mark.parametrize("basis", ["episode", "steps", None])
@pytest.mark.parametrize(
    "rewards",
    [[1.0, 2.0], [math.nan], [math.inf], [math.inf, -math.inf], [1.5e308, 1.5e308], []],
)
def test_parts_of_other_processes(
    rewards: list[float], basis: str | None, score: float | None, is_late: bool
):
    """
    Their steps, rewards and scorings, before the episode and after it.
    """
    ours = episode(0, **{a.EPISODE_RETURN_BASIS: basis} if basis else {})
    if basis is None:
        del ours[-1].attributes[a.EPISODE_RETURN_BASIS]  # type: ignore[attr-defined]  # it is a dict
    paths = [write("a.jsonl", ours), write("b.jsonl", part(0, rewards=rewards, score=score))]

    assert_equal(paths if is_late else paths[::-1])
    assert_equal([write("a.jsonl", ours[:-1]), *paths[1:]])


@pytest.mark.parametrize("rewards", [[1.0, 2.0], [1.0, math.nan], []])
@pytest.mark.parametrize("lacks_end", [True, False])
def test_a_part_with_steps_in_columns(rewards: list[float], lacks_end: bool):
    """
    Its block has the number of its steps and the sum of their rewards.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode(steps="packed") as opened:
        for reward in (*rewards, None):
            with opened.step() as step:
                step.reward(reward) if reward is not None else None
    (block,) = [span for span in mttp.scan("a.jsonl", arrays=True) if span.name == names.STEPS]
    *_, end = part(0, rewards=[])
    ours = {
        **block.attributes,
        **{key: end.attributes[key] for key in (a.RUN_ID, a.EPISODE_ID, a.SEGMENT_ID)},
    }
    theirs = replace(block, trace_id=trace_id(0), parent_id=span_id(0, 0), attributes=ours)
    spans = [*(episode(0)[:-1] if lacks_end else episode(0)), theirs, end]
    (row,) = assert_equal(write("b.jsonl", spans))

    assert row["steps"] == 2 + len(rewards) + 1


def test_calls_tokens_metrics_and_metadata_of_other_processes():
    """
    Those of the episode win over those of another process.
    """
    with mttp.configure("file://a.jsonl"):
        with mttp.episode(env="e", metadata={"a": 1}) as opened:
            carrier = mttp.inject({})
            opened.metric("kl", 0.5)
            with opened.step() as step, step.model_call("m"):
                step.tokens([1, 2], prompt_ids=[3])
        for number in range(2):
            with mttp.extract(carrier) as other:
                other.metric("kl", 9.0)
                other.metric("own", float(number))
                with other.step(index=5) as step:
                    step.tokens([1, 2, 3])
                    with step.model_call("m"), step.tool_call("t"):
                        pass
    (row,) = assert_equal("a.jsonl")

    assert {"kl": 0.5, "own": 0.0} == row["metrics"]
    assert (1, 8, 3) == (row["prompt_tokens"], row["completion_tokens"], row["calls"])


def test_metadata_and_faults_of_other_processes():
    """
    The values of the episode win, then those of the part that ended first.
    """
    one, other = (part(0, rewards=[1.0])[-1] for _ in range(2))
    first = {f"{a.METADATA}.b": "first", f"{a.METADATA}.c": True, a.FAULTS: ["b: first"]}
    second = {f"{a.METADATA}.b": "second", f"{a.METADATA}.d": "x" * 101, a.FAULTS: ["c: second"]}
    spans = [
        *episode(0, **{f"{a.METADATA}.a": 1.5, f"{a.METADATA}.c": "own", a.FAULTS: ["a: own"]}),
        replace(other, span_id="e" * 16, end_time=START + 9000, attributes={**other.attributes, **second}),
        replace(one, attributes={**one.attributes, **first}),
    ]
    (row,) = assert_equal(write("a.jsonl", spans))

    assert {"a": "1.5", "b": "first", "c": "own"} == row["metadata"]
    assert ["a: own", "b: first", "c: second"] == row["faults"]


def foreign(parent: str, place: int, *, seconds: int = 1, **attributes: Any) -> SpanRecord:
    """A span that another library recorded."""
    return SpanRecord(
        trace_id=trace_id(0),
        span_id=f"{place + 1:016x}",
        parent_id=parent,
        name="chat m",
        start_time=START + place,
        end_time=START + place + seconds * 10**9,
        attributes={key.replace("__", "."): value for key, value in attributes.items()},
    )


@pytest.mark.parametrize("is_reversed", [True, False])
def test_model_calls_of_other_libraries(is_reversed: bool):
    """
    Right below a step or below spans of other libraries; a response that two of them recorded is one call.
    """
    chat = {a.GEN_AI_OPERATION_NAME: "chat"}
    between = foreign(span_id(0, 1), 0)
    response = {a.GEN_AI_RESPONSE_ID: "r", a.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: 0.5}
    spans = [
        *episode(0),
        between,
        foreign(between.span_id, 1, seconds=2, **chat | response),
        foreign(span_id(0, 1), 2, seconds=4, **chat | response),
        foreign(span_id(0, 2), 3, seconds=8, **chat | response),
        foreign(span_id(0, 2), 4, seconds=16, **{a.GEN_AI_OPERATION_NAME: "execute_tool"}),
        foreign(span_id(0, 2), 5, seconds=32, **{a.GEN_AI_OPERATION_NAME: "invoke_agent"}),
        foreign(f"{6:016x}", 6, seconds=64, **chat),
        foreign(f"{7:016x}", 7, seconds=128, **chat),
        foreign(span_id(0, 0), 8, seconds=256, **chat),
    ]
    (row,) = assert_equal(write("a.jsonl", spans[::-1] if is_reversed else spans))

    assert (3, 74.0, 0.5) == (row["calls"], row["call_seconds"], row["time_to_first_token"])


def test_late_facts(session: mttp.Session):
    """
    The last annotation wins; a late score is the reward and the return where there is none.
    """
    opened = []
    for number in range(5):
        with mttp.episode(env="e", group="own" if number == 3 else None, metadata={"x": 1, "y": 2}) as one:
            if number == 1:
                one.reward(1.0)
            if number == 4:
                one.step().reward(1.0)
        opened.append(one)
    for place, value in enumerate((0.25, 0.5)):
        mttp.score(opened[0], value, grader=f"late {place}", components={"Q 1": value, "bad": math.nan})
    mttp.score(opened[1], 0.5, grader="late")
    mttp.score(opened[2], math.nan, grader="late", components={f"part {place}": 0.5 for place in range(40)})
    mttp.score(opened[4], 0.5, grader="late")
    mttp.annotate(opened[2], "outcome", "failure")
    mttp.annotate(opened[2], "outcome", "success")
    mttp.annotate(opened[2], "advantage", 0.5)
    mttp.annotate(opened[2], "x", [1, 2])
    mttp.annotate(opened[2], "z", "new")
    mttp.group("first", opened, rewards=[0.0] * 5, advantages=[1.0, 2.0, 3.0, 4.0, math.nan]).end()
    mttp.group("second", opened[:2], rewards=[0.0] * 2).end()
    found = assert_equal(write("a.jsonl", list(session.records())))

    assert [0.5, 1.0, None, None, None] == [row["reward"] for row in found]
    assert ["second", "second", "first", "own", "first"] == [row["group"] for row in found]
    assert [1.0, 2.0, 0.5, 4.0, None] == [row["advantage"] for row in found]
    assert {"y": "2", "z": "new"} == found[2]["metadata"]
    assert 40 == len(found[2]["components"])


@pytest.mark.parametrize("kind", ["train", "eval"])
@pytest.mark.parametrize("has_task", [True, False])
@pytest.mark.parametrize("has_update", [True, False])
def test_which_episodes_count(kind: str, has_task: bool, has_update: bool):
    """
    It depends on the kind of the run, its updates, and whether any of its episodes names a task.
    """
    with mttp.configure("file://a.jsonl", run_id="r", kind=kind):
        for split in (None, "train", "Eval"):
            for status, reason in (
                ("completed", None),
                ("error", None),
                ("aborted", "x"),
                ("aborted", "a.closed"),
            ):
                with mttp.episode(split=split) as opened:
                    opened.reward(0.5, status="error" if split else "ok")
                    opened.end(status=status, stop_reason=reason)
        with mttp.episode(task="t" if has_task else None):
            pass
        mttp.update(1, loss=0.5) if has_update else None
    with mttp.configure("file://b.jsonl", run_id="evaluating"), mttp.episode(split="test"):
        pass
    rows = assert_equal(["a.jsonl", "b.jsonl"])
    reasons = {row["counts_reason"] for row in rows}

    assert ({"evaluation", "cut_off"} <= reasons) == (has_update or (kind == "train" and not has_task))


class Paid(Walk):
    """A walk that returns reward components, one of them now and then."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One further."""
        observation, reward, terminated, truncated, _ = super().step(action)
        rewards = {"Right Way": self.at / 7, **({"b": 1.0} if self.at % 2 else {})}
        return observation, reward, terminated, truncated, {"rewards": rewards}


def test_components_of_steps_in_columns():
    """
    They are summed by exact name.
    """
    with mttp.configure("file://a.jsonl"):
        env = mttp.wrap(Paid())
        env.reset()
        while not env.step(1)[2]:
            pass
        env.close()
    (row,) = assert_equal("a.jsonl")

    assert names.STEPS in {span.name for span in mttp.scan("a.jsonl")}
    assert {"Right Way": pytest.approx(3.0), "b": 3.0} == row["components"]


def test_scorings_of_steps():
    """
    The last one of each step counts, with the grades below it; the spec is that of the last scored step.
    """
    many = {f"part {place}": place / 7 for place in range(40)}
    with mttp.configure("file://a.jsonl"), mttp.episode() as opened:
        for index, components in enumerate(({"a": 0.5}, {"a": math.nan, "b": 1.0}, many, {"a": 0.25})):
            with opened.step() as step:
                step.reward(1.0, components=components, failed_checks=[f"check {index}"], grader="first")
                step.reward(0.5, components=components, grader="last") if index % 2 else None
    spans = list(mttp.scan("a.jsonl", arrays=True))

    for order in (spans, spans[::-1]):
        assert_equal(write("b.jsonl", order))


def test_episodes_without_an_end():
    """
    Identity is that of the marker or of the earliest span; length and rewards are those of the steps.
    """
    with (
        mttp.configure("file://a.jsonl"),
        mttp.episode(env="e", task="t", seed=3, metadata={"x": 1}) as opened,
    ):
        for index in range(3):
            with opened.agent(f"{index % 2}") as agent, agent.step() as step:
                step.reward(0.5)
            with opened.step() as step:
                step.reward(1.5 if index else math.nan)
    spans = list(mttp.scan("a.jsonl", arrays=True))
    ends = (names.EPISODE, names.EPISODE_START, names.SEGMENT)
    for without in (ends[:1], ends):
        kept = [span for span in spans if span.name.partition(" ")[0] not in without]

        for order in (kept, kept[::-1]):
            (row,) = assert_equal(write("b.jsonl", order))
            assert ("unfinished", 3, False) == (row["status"], row["length"], row["complete"])


def test_a_score_of_an_episode_without_an_end():
    """
    It is the reward where no scoring and no step reward is recorded.
    """
    with mttp.configure("file://a.jsonl"):
        with mttp.episode() as opened:
            opened.step().end()
        mttp.score(opened, 0.5, grader="late", components={"a": 1.0})
    spans = [span for span in mttp.scan("a.jsonl", arrays=True) if span.name != names.EPISODE]
    (row,) = assert_equal(write("b.jsonl", spans))

    assert (0.5, 0.5, {"a": 1.0}) == (row["reward"], row["return"], row["components"])


def test_copies_of_spans():
    """
    The fullest copy counts; a span with the same id and another name or time is no copy.
    """
    spans = episode(0, components={"a": 1.0})
    root = spans[-1]
    poor = replace(root, attributes={**root.attributes, a.OMISSIONS: [f"{a.TASK_ID}: too long"]})
    rich = replace(root, attributes={**root.attributes, a.TASK_ID: "t"})
    other = replace(rich, start_time=START + 5, attributes={**rich.attributes, a.ENV_ID: "other"})
    for copies in ([poor, root, rich], [rich, poor], [root, other], [other, rich, poor]):
        assert_equal(write("a.jsonl", [*spans[:-1], *copies, *spans[:1]]))


def test_steps_that_are_in_columns_and_have_spans():
    """
    Each counts once, where a file and a collector have them.
    """
    record_environment()
    value = mttp.read("environment.jsonl").episodes[0]
    spans = [span for span in mttp.scan("environment.jsonl", arrays=True) if span.trace_id == value.trace_id]
    (block,) = [span for span in spans if span.name == names.STEPS]
    singles = [
        replace(
            block,
            span_id=f"{index + 100:016x}",
            name=names.STEP,
            attributes={
                **{key: block.attributes[key] for key in (a.RUN_ID, a.EPISODE_ID)},
                a.STEP_INDEX: index,
                a.STEP_REWARD: value.steps[index].reward,
                a.STEP_REWARD_STATUS: "ok",
            },
        )
        for index in range(4)
    ]
    unfinished = [span for span in spans if span.name.partition(" ")[0] != names.EPISODE]

    for some in (singles, singles[:2]):
        assert_equal(write("b.jsonl", [*unfinished, *some]))
    (row,) = assert_equal(write("c.jsonl", [*unfinished, replace(block, span_id="f" * 16)]))
    assert row["length"] == len(value.steps)


def texts(source: Any, query: str = "SELECT prompt, completion FROM episodes") -> list[tuple[Any, Any]]:
    """Prompt and completion of each episode."""
    with Database(source) as database:
        return [(row["prompt"], row["completion"]) for row in database.sql(query).rows()]


def test_prompt_and_completion_are_the_text_of_content(session: mttp.Session):
    """
    Of messages their lines, of arrays JSON; of a step that states none that of its calls of models.
    """
    chat = [{"role": "system", "content": "be short"}, {"role": "user", "content": [{"text": "2+2?"}]}]
    with mttp.episode() as opened:
        for number in range(2):
            with opened.step() as step:
                step.observation(chat if not number else "and 3+3?")
                step.action({"role": "assistant", "content": f"{4 + 2 * number}"})
    with mttp.episode() as opened, opened.step() as step:
        for number in range(2):
            with step.model_call("m", messages=[{"role": "user", "content": f"question {number}"}]) as call:
                call.result([{"role": "assistant", "content": f"answer {number}"}])
    for way in ("packed", "spans"):
        with mttp.episode(steps=way) as opened:
            for number in range(3):
                with opened.step() as step:
                    step.observation(np.full(2, number, np.float32))
                    step.action(number)
    with mttp.episode():
        pass
    path = write("a.jsonl", list(session.records()))

    array = ("[0.0, 0.0]", "0\n\n1\n\n2")
    assert [
        ("be short\n\n2+2?", "4\n\n6"),
        ("question 0", "answer 1"),
        array,
        array,
        (None, None),
    ] == texts(path)
    assert texts(path) == texts(path, "FROM episodes") == texts(path, "SELECT e.* FROM episodes AS e")


def test_the_exchange_is_what_is_neither_prompt_nor_completion():
    """
    New messages once, calls of tools and of models with what they returned, and errors; in order of start.
    """
    chat = [{"role": "user", "content": "question"}, {"role": "assistant", "content": "answer"}]
    with mttp.configure("file://a.jsonl"), mttp.episode() as opened:
        for number in range(4):
            with opened.step() as step:
                step.observation(
                    [*chat, {"role": "user", "content": f"again {number % 2}"}][: 3 * number + 1]
                )
                step.action(chat[1])
        with opened.tool_call("add", arguments={"sum": "2+4=\n", "in": [1]}) as call:
            call.result("6")
        with suppress(ValueError), opened.step() as step, step.model_call("m", messages=chat) as call:
            call.result([{"role": "assistant", "content": "answer"}])
            raise ValueError("no power")

    with Database("a.jsonl") as database:
        (row,) = database.sql("SELECT exchange FROM episodes").rows()
    exchange = row["exchange"].split("\n")
    assert ["again 1", "again 0", "sum: 2+4=", "", "in: [1]", "6", "ValueError: no power"] == exchange


def test_texts_are_loaded_when_they_are_asked_for():
    """
    Other queries don't decode content, and one that asks later gets it.
    """
    with mttp.configure("file://a.jsonl"), mttp.episode() as opened, opened.step() as step:
        step.observation("question")
    with Database("a.jsonl") as database:
        assert [{"episodes": 1}] == database.sql("SELECT count(*) AS episodes FROM episodes").rows()
        assert [{"prompt": "question"}] == database.sql("SELECT prompt FROM episodes").rows()


@pytest.mark.parametrize("lacks", [None, names.EPISODE, names.REWARD])
def test_rows_of_steps_in_columns_change_nothing(lacks: str | None):
    """
    Other tables need them; steps, rewards and missing spans are counted by their blocks.
    """
    with mttp.configure("file://a.jsonl"):
        for number in range(3):
            with mttp.episode(steps="packed") as opened:
                for _ in range(number + 2):
                    with opened.step() as step:
                        step.reward(0.5)
                opened.reward(1.0)
    spans = [span for span in mttp.scan("a.jsonl", arrays=True) if span.name != lacks]
    source = write("b.jsonl", spans)
    with Database(source) as database:
        steps = len(database.sql("SELECT * FROM steps"))
        beside = database.sql("SELECT * FROM episodes").rows()
    with Database(source) as database:
        alone = database.sql("SELECT * FROM episodes").rows()

    assert (9, alone) == (steps, beside)
    assert {lacks is None} == {row["complete"] for row in assert_equal(source)}


def test_each_column_has_a_comment():
    """
    A line before it says what it is, of which the reference of columns is made.
    """
    lines = statement("episodes").rpartition("\nSELECT\n")[2].partition("\nFROM ")[0].splitlines()
    commented = [after for line, after in pairwise(lines) if line.startswith("    -- ")]
    with mttp.configure("file://a.jsonl"), mttp.episode():
        pass
    with Database("a.jsonl") as database:
        assert len(list(database.columns("episodes"))) == len(commented)
