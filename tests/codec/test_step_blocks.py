"""Steps in columns: each comes back as a span of its own would bring it back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specimen import contents, finite, names, optional, plain, texts

from mttp import Step
from mttp.codec import blocks, content, profiles, steps, templates
from mttp.codec.rewards import assess
from mttp.codec.withholding import Withholding
from mttp.model.spans import SpanRecord
from mttp.model.values import same
from mttp.otlp.json import encode_records
from mttp.otlp.json_decode import decode_line
from mttp.semconv import attributes as a

TIME = 1_750_000_000_000_000_000
PROFILES = (profiles.full, profiles.arrays, profiles.packed)

Row = dict[str, Any]


def row(**said: Any) -> Row:
    """What a step's span says of the step."""
    found: Row = {}
    omissions: list[str] = []
    for keys, name in ((content.OBSERVATION, "observation"), (content.ACTION, "action")):
        found |= content.encode(keys, said.get(name), [], omissions, max_bytes=said.get("max_bytes"))
    if "reward" in said:
        value, status, raw = assess(said["reward"])
        found |= steps.reward(value, status, raw)
    found |= steps.facts([], **{name: said.get(name) for name in ("terminated", "logprob", "value_estimate")})
    found |= templates.encode(a.METRIC, said.get("metrics", {}))
    found |= templates.encode(a.METADATA, said.get("metadata", {}))
    for key, listed in ((a.FAULTS, said.get("faults")), (a.OMISSIONS, omissions)):
        found |= {key: listed} if listed else {}
    return found


rows = st.builds(
    row,
    observation=contents,
    action=contents,
    reward=st.none() | st.floats(),
    terminated=optional(st.booleans()),
    logprob=optional(finite),
    metrics=st.dictionaries(names, st.floats(), max_size=2),
    metadata=st.dictionaries(names, plain.filter(lambda fact: fact is not None), max_size=2),
    faults=st.lists(texts, max_size=2),
    max_bytes=st.sampled_from([None, None, 8]),
)


def alike(draw: st.DrawFn) -> list[Row]:
    """Steps of one kind, as most episodes have them."""
    dtype, shape = draw(st.sampled_from([("f4", (4,)), ("u1", (2, 3)), ("f2", (1,)), ("f8", (0, 2))]))
    count = draw(st.integers(1, 6))
    return [
        row(observation=np.full(shape, index, dtype), action=index, reward=index / 2, terminated=False)
        for index in range(count)
    ]


several = st.lists(rows, min_size=1, max_size=6) | st.composite(alike)()


def block(given: Sequence[Mapping[str, Any]], first_index: int = 0) -> dict[str, Any]:
    """These steps as a block's attributes, one nanosecond each."""
    return blocks.encode(
        blocks.columns(given),
        first_index=first_index,
        start_times=range(TIME, TIME + len(given)),
        end_times=range(TIME + 1, TIME + len(given) + 1),
    )


def record(attributes: Mapping[str, Any], **facts: Any) -> SpanRecord:
    """A span with these attributes."""
    named = {"name": "steps", "trace_id": "1" * 32, "span_id": "2" * 16, "start_time": TIME, "end_time": TIME}
    return SpanRecord(**named | facts, attributes=attributes)


def through_json(given: SpanRecord) -> SpanRecord:
    """The span after it was a line of a file."""
    (line,) = encode_records([given])
    return decode_line(line)[0]


def apart(given: Sequence[Mapping[str, Any]], profile: Callable[..., dict[str, Any]]) -> list[Step]:
    """The same steps, read from a span each."""
    spans = [record(profile({a.STEP_INDEX: index, **said}), name="step") for index, said in enumerate(given)]
    return [steps.decode(through_json(span) if profile is not profiles.full else span) for span in spans]


@pytest.mark.parametrize("profile", PROFILES)
@settings(deadline=None)
@given(several)
def test_steps_in_a_block_read_as_spans_of_their_own(profile: Any, given: list[Row]) -> None:
    """
    Whatever steps say is read alike from a block and from spans, in every form that a transport writes.
    """
    span = record(profile(block(given)))

    found = list(blocks.decode(through_json(span) if profile is not profiles.full else span))

    assert apart(given, profile) == found


@settings(deadline=None)
@given(several)
def test_a_block_returns_the_attributes_of_its_steps(given: list[Row]) -> None:
    """
    The attributes of each step come back as they were, absent ones absent, also of packed bytes.
    """
    for profile in (profiles.full, profiles.packed):
        found = blocks.rows(profile(block(given)))

        assert same([flat(said) for said in given], [flat(said) for said in found])


def flat(said: Row) -> Row:
    """Arrays of content as the flat lists that a column of several kinds has of them."""
    return {key: value.ravel().tolist() if hasattr(value, "ravel") else value for key, value in said.items()}


@pytest.mark.parametrize(
    "withholding",
    [
        Withholding(content=False),
        Withholding(max_elements=3),
        Withholding(redact=lambda key, value: None if key == a.ACTION_VALUE else value),
        Withholding(redact=lambda key, value: "gone"),
    ],
    ids=["content off", "no long arrays", "no actions", "redacted"],
)
@settings(deadline=None)
@given(given=several)
def test_withholding_from_a_block_equals_withholding_from_its_steps(
    withholding: Withholding, given: list[Row]
) -> None:
    """
    A transport that withholds content reports it for each step in a block as for a step with a span.
    """
    kept = [withholding.keep(said).values for said in given]

    found = list(blocks.decode(record(withholding.keep(block(given)).values)))

    assert apart(kept, profiles.full) == found


def test_times_and_indices_are_each_step_s_own() -> None:
    """
    Start, end and index survive to the nanosecond; there is no span to name.
    """
    given = [row(action=number) for number in range(3)]

    found = list(blocks.decode(through_json(record(profiles.packed(block(given, first_index=40))))))

    assert [(40, TIME, TIME + 1), (41, TIME + 1, TIME + 2), (42, TIME + 2, TIME + 3)] == [
        (step.index, step.start_time, step.end_time) for step in found
    ]
    assert [""] * 3 == [step.span_id for step in found]


def test_arrays_of_one_kind_are_one_array() -> None:
    """
    Observations of one dtype and shape are stacked, and the layout alone says which.
    """
    given = [row(observation=np.full((2, 2), number, np.float32), action=number) for number in range(3)]

    found = block(given)

    column = found[f"{a.STEPS_COLUMN}.{a.OBSERVATION_VALUE}"]
    assert ("float32", (3, 2, 2)) == (column.dtype.name, column.shape)
    assert np.int8 == found[f"{a.STEPS_COLUMN}.{a.ACTION_VALUE}"].dtype
    assert [] == [key for key in found if key.endswith((a.OBSERVATION_DTYPE, a.OBSERVATION_SHAPE))]


def test_a_column_may_be_an_array_already() -> None:
    """
    What was collected in one array is recorded as it is.
    """
    observations = np.arange(8, dtype=np.float32).reshape(2, 4)

    found = blocks.rows(
        blocks.encode(
            {a.OBSERVATION_VALUE: blocks.Column(observations)},
            first_index=0,
            start_times=[1, 2],
            end_times=[2, 3],
        )
    )

    assert same([*observations], [said[a.OBSERVATION_VALUE] for said in found])


def test_an_omitted_column_is_an_omission_of_each_step() -> None:
    """
    Where a transport had to make the span smaller, every step says what is missing.
    """
    values = block([row(observation=np.zeros(2), action=1)] * 2)
    key = f"{a.STEPS_COLUMN}.{a.OBSERVATION_VALUE}"
    smaller = {name: value for name, value in values.items() if name != key}

    found = list(blocks.decode(record(smaller | {a.OMISSIONS: [f"{key}: too large"]})))

    assert [(None, 1, (f"{a.OBSERVATION_VALUE}: too large",))] * 2 == [
        (step.observation, step.action, step.omissions) for step in found
    ]


def test_the_rewards_of_a_block_are_known_without_its_columns() -> None:
    """
    The sum of its rewards and the number of those that are none stand beside the columns.
    """
    found = block([row(reward=1.5), row(reward=float("nan")), row(reward=2.0), row()])

    assert (3.5, 1) == (found[a.STEPS_REWARD_SUM], found[a.STEPS_REWARD_ERRORS])
