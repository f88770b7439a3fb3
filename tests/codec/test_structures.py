"""Mappings, tuples and lists with arrays in them, as one flat array and a structure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import mttp
from mttp.codec import content
from mttp.codec.structures import Flattened, flatten, rebuild
from mttp.model.values import same
from mttp.testing import OtlpReceiver

DTYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32", "float64"]
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3))
)
LEAVES = ARRAYS | st.booleans() | st.integers(-(2**53), 2**53) | st.floats() | st.none() | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda members: (
        st.lists(members, max_size=3)
        | st.lists(members, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3), members, max_size=3)
    ),
    max_leaves=6,
)


def is_exact(left: Any, right: Any) -> bool:
    """Whether types, too, are the same, wherever they are."""
    if isinstance(left, dict):
        return list(left) == list(right) and all(is_exact(left[name], right[name]) for name in left)
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(is_exact, left, right))
    if isinstance(left, np.ndarray):
        return left.shape == right.shape and same(left, right)
    return type(left) is type(right) and same(left, right)


@settings(deadline=None)
@given(VALUES, ARRAYS)
def test_a_flattened_value_is_rebuilt_equal(member: Any, array: Any) -> None:
    """
    Nested, with dtypes and shapes, whatever else is beside the array.
    """
    value = {"member": member, "array": array}
    faults: list[str] = []
    flat = flatten(value, faults)

    assert ([], True) == (faults, flat is not None)
    assert is_exact(value, rebuild(flat.numbers, flat.structure))


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.0],
        {"n": 1},
        {"n": [1, 2], "text": "go"},
        ("search", 3),
        (),
        {},
        "text",
        np.zeros(3),
        None,
        [{"role": "user", "content": "hi"}],
    ],
    ids=repr,
)
def test_plain_data_has_no_structure(value: Any) -> None:
    """
    It is recorded as before, and reads as JSON does.
    """
    assert flatten(value, []) is None


def test_numbers_in_tuples_have_a_structure() -> None:
    """
    Otherwise they would be read as lists; numbers of numpy become Python's.
    """
    flat = flatten((14, np.int64(10), (True, 0.5)), [])

    assert flat is not None
    assert is_exact((14, 10, (True, 0.5)), rebuild(flat.numbers, flat.structure))


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ({1, 2}, "it has a set"),
        (b"x", "it has a bytes"),
        (1j, "it has a complex"),
        (2**70, "it has the integer"),
        (np.zeros(2, complex), "it has an array of type complex128"),
        (np.array(["a"]), "it has an array of type <U1"),
        (np.array([None]), "it has an array of type object"),
        ({1: 0, "1": 1}, "two of its names are the same as text"),
        (2**53 + 1, "it has an integer beyond 2**53 next to floats"),
        (np.array([2**63 - 1]), "it has an integer beyond 2**53 next to floats"),
        (np.array([2**64 - 1], np.uint64), "it has an integer beyond 2**53 next to floats"),
    ],
    ids=str,
)
def test_a_value_that_can_not_be_flattened_is_a_fault(member: Any, reason: str) -> None:
    """
    Nothing is rounded silently: such a value is kept as lists, and reported.
    """
    faults: list[str] = []

    assert flatten([np.array([0.5]), member], faults) is None
    (fault,) = faults
    assert fault.startswith(f"structure_not_kept: {reason}")


def test_a_value_nested_too_deep_is_a_fault() -> None:
    """
    A value that holds itself ends, too.
    """
    deep: list[Any] = [np.zeros(1)]
    for _ in range(31):
        deep = [np.zeros(1), deep]
    cyclic: list[Any] = [np.zeros(1)]
    cyclic.append(cyclic)

    for value, reason in ((deep, "it is nested more than 30 deep"), (cyclic, "it holds itself")):
        faults: list[str] = []
        assert flatten(value, faults) is None
        assert [f"structure_not_kept: {reason}; arrays are kept as lists"] == faults


@pytest.mark.parametrize(
    "structure",
    [
        "",
        "{",
        "3",
        "{}",
        '"int"',
        '"complex"',
        '["object",[3]]',
        '["float32",[4]]',
        '["float32",[-1]]',
        '["float32",3]',
        '["float32",[2]]',
        '{"dict":["int"]}',
        '{"set":["int"]}',
        '{"tuple":["int","int","int","int"]}',
        "[" * 100_000,
    ],
    ids=lambda structure: structure[:30],
)
def test_a_structure_that_does_not_fit_leaves_the_flat_array(structure: str) -> None:
    """
    Readers take what others wrote, or a store has cut.
    """
    numbers = np.array([0.5, 1.5, math.nan], np.float32)

    assert numbers is rebuild(numbers, structure)


def test_a_flattened_value_is_a_copy() -> None:
    """
    A loop may reuse its arrays.
    """
    buffer = np.zeros(3, np.float32)
    flat = flatten({"only": buffer}, [])
    buffer += 1

    assert flat is not None
    assert [0, 0, 0] == flat.numbers.tolist()


def test_numbers_beyond_the_limit_are_not_read() -> None:
    """
    Only their type and count are; the structure, which may have text in it, is left out.
    """
    value = {"image": np.zeros((100, 100), np.uint8), "text": "secret"}
    flat, omissions = flatten(value, [], max_bytes=9_999), list[str]()
    said = content.encode(content.OBSERVATION, value, [], omissions, max_bytes=9_999)

    assert isinstance(flat, Flattened)
    assert (10_000, 0) == (flat.numbers.size, flat.nbytes)
    assert {"mttp.observation.dtype": "uint8", "mttp.observation.shape": [10_000]} == said
    assert ["mttp.observation.value: 10000 bytes, the limit is 9999"] == omissions


def record(session: mttp.Session) -> None:
    """An episode of one step with structured content."""
    with mttp.episode() as episode:
        with episode.step() as step:
            step.observation({"image": np.ones(3, np.uint8), "mission": "secret"})
            step.action((1, np.array([0.5], np.float32)))
        episode.final_observation({"image": np.ones(3, np.uint8), "mission": "secret"})


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_where_content_is_off_there_is_no_structure(steps: str) -> None:
    """
    Text in a structure is content, too.
    """
    with OtlpReceiver() as receiver:
        with mttp.configure(mttp.Route(receiver.http_address, content=False), steps=steps) as session:
            record(session)
        (found,) = mttp.read(receiver)
        bodies = str([span.attributes for span in mttp.scan(receiver, arrays=True)])

    assert (None, None, None) == (
        found.steps[0].observation,
        found.steps[0].action,
        found.final_observation,
    )
    assert "secret" not in bodies


@pytest.mark.parametrize("steps", ["spans", "packed"])
def test_a_hook_that_redacts_is_given_the_value_as_it_was(steps: str) -> None:
    """
    It may change a part of it; the others stay what they are.
    """

    def redact(key: str, value: Any) -> Any:
        return {**value, "mission": "***"} if key == "mttp.observation.value" else value

    with OtlpReceiver() as receiver:
        route = mttp.Route(receiver.http_address, content=True, redact=redact)
        with mttp.configure(route, steps=steps) as session:
            record(session)
        (found,) = mttp.read(receiver)

    assert is_exact({"image": np.ones(3, np.uint8), "mission": "***"}, found.steps[0].observation)
    assert is_exact((1, np.array([0.5], np.float32)), found.steps[0].action)
    assert ("mttp.observation.value: redacted",) == found.steps[0].omissions
    assert () == found.omissions
