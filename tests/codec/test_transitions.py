"""What an environment does step by step is recorded in columns as it would be one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from specimen import arrays, contents

from mttp.codec import blocks, content, steps, transitions
from mttp.codec.rewards import assess
from mttp.model.values import same
from mttp.semconv import attributes as a

numpy_scalars = st.sampled_from(
    [np.float32(0.1), np.float64(2.5), np.int64(-3), np.uint64(7), np.bool_(True), np.longdouble(1.5)]
)
integers = st.integers(-(2**70), 2**70) | st.integers(0, 3)
rewards = st.floats() | st.integers(-3, 3) | st.booleans() | numpy_scalars | st.sampled_from(["x", None])
kinds = st.sampled_from([contents, integers, numpy_scalars, arrays, st.none(), st.floats()])


@st.composite
def alike(draw: st.DrawFn, count: int) -> list[Any]:
    """Entries of one kind, and often of one dtype and shape."""
    if draw(st.booleans()):
        first = draw(arrays)
        return [first + first.dtype.type(number % 2) for number in range(count)]
    kind = draw(kinds)
    return [draw(kind) for _ in range(count)]


@st.composite
def several(draw: st.DrawFn) -> tuple[list[Any], ...]:
    """Observations, actions, rewards and both flags of some steps."""
    count = draw(st.integers(1, 5))
    flags = st.lists(st.booleans() | st.just(np.bool_(False)), min_size=count, max_size=count)
    paid = draw(st.lists(rewards, min_size=count, max_size=count) | st.just([1.0] * count))
    return draw(alike(count)), draw(alike(count)), paid, draw(flags), draw(flags)


def one_by_one(given: tuple[list[Any], ...], max_bytes: int | None) -> list[dict[str, Any]]:
    """The attributes of each step's own span."""
    found = []
    for observation, action, reward, terminated, truncated in zip(*given, strict=True):
        faults: list[str] = []
        omissions: list[str] = []
        row = content.encode(content.OBSERVATION, observation, faults, omissions, max_bytes=max_bytes)
        row |= content.encode(content.ACTION, action, faults, omissions, max_bytes=max_bytes)
        value, status, raw = assess(reward)
        faults += [f"reward_invalid: {raw}"] if status == "error" else []
        row |= steps.reward(value, status, raw)
        row |= steps.facts(faults, terminated=terminated, truncated=truncated)
        notes = {a.FAULTS: [*dict.fromkeys(faults)], a.OMISSIONS: [*dict.fromkeys(omissions)]}
        found.append(row | {key: said for key, said in notes.items() if said})
    return found


def flat(said: dict[str, Any]) -> dict[str, Any]:
    """Arrays as lists, which is what a column of several kinds has of them."""
    return {key: value.ravel().tolist() if hasattr(value, "ravel") else value for key, value in said.items()}


@pytest.mark.parametrize("max_bytes", [None, 8, 4])
@settings(deadline=None)
@given(given=several())
def test_columns_equal_the_attributes_of_each_step(
    max_bytes: int | None, given: tuple[list[Any], ...]
) -> None:
    """
    Of any observation, action and reward, faults and omissions included.
    """
    columns = transitions.encode(*given, max_bytes=max_bytes)

    times = range(len(given[0]))
    found = blocks.rows(blocks.encode(columns, first_index=0, start_times=times, end_times=times))
    assert same([flat(said) for said in one_by_one(given, max_bytes)], [flat(said) for said in found])


class Unhashable(type):
    """Its classes can't be members of a set."""

    def __hash__(cls) -> int:
        raise RuntimeError("no hash")


class Alien(metaclass=Unhashable):
    """An object whose class can't be a member of a set."""


def test_a_row_that_raises_costs_only_its_value() -> None:
    """If columns can't be built at once, the rows are encoded one by one."""
    schema = transitions.RowSchema(None, (), None)
    found = schema.columns(
        [1, 2, 3], [0, Alien(), 0], [1.0, 2.0, None], *[[False] * 3] * 2, *[[None] * 3] * 2
    )

    assert blocks.entries(found, a.OBSERVATION_VALUE, 3) == [1, 2, 3]
    assert blocks.entries(found, a.STEP_REWARD, 3) == [1.0, 2.0]
    assert found[a.FAULTS].at == [1]
