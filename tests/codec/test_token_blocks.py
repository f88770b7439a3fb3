"""Token blocks as they are handed over: what is made of them later is what would have been made at once."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mttp
from mttp.codec import tokens
from mttp.codec.plain import Faults
from mttp.model.values import same

INTEGERS = ("int64", "int32", "int16", "int8", "uint32", "uint16", "uint8")
FLOATS = ("float64", "float32", "float16")


@st.composite
def arrays(draw: st.DrawFn, name: str, length: int) -> Any:
    """Numbers for one array of a block, as any of the kinds that trainers have."""
    if name in mttp.Tokens.INTEGER_ARRAYS:
        dtype = np.dtype(draw(st.sampled_from(INTEGERS)))
        limits = np.iinfo(dtype)
        numbers = st.integers(int(limits.min), int(limits.max))
        values: list[Any] = draw(st.lists(numbers, min_size=length, max_size=length))
    else:
        dtype = np.dtype(draw(st.sampled_from(FLOATS)))
        width = 8 * dtype.itemsize
        values = draw(st.lists(st.floats(width=width), min_size=length, max_size=length))  # type: ignore[arg-type]
    kind = draw(st.sampled_from(("array", "list", "tuple", "every other")))
    if kind == "every other":
        return np.repeat(np.array(values, dtype), 2)[::2]
    if kind == "array":
        return np.array(values, dtype)
    return values if kind == "list" else tuple(values)


@st.composite
def blocks(draw: st.DrawFn) -> dict[str, Any]:
    """Values that a caller may pass."""
    length, prompt = draw(st.integers(0, 6)), draw(st.integers(0, 4))
    names = draw(st.sets(st.sampled_from(mttp.Tokens.ARRAYS))) | {"ids"}
    found = {name: draw(arrays(name, prompt if name == "prompt_ids" else length)) for name in sorted(names)}
    texts = st.sampled_from(("", "qwen", "7"))
    facts = st.fixed_dictionaries({}, optional=dict.fromkeys(("tokenizer", "policy_version"), texts))
    return found | draw(facts)


def copied(block: dict[str, Any]) -> tokens.Block | None:
    """A snapshot, as a step takes it."""
    rest = dict(block)
    return tokens.snapshot(rest.pop("ids", None), rest.pop("logprobs", None), rest)


@given(blocks())
def test_encoding_later_equals_encoding_at_once(given_: dict[str, Any]) -> None:
    """
    Whatever arrays there are, of whatever kind, as lists and packed.
    """
    faults: Faults = []
    at_once = tokens.encode(tokens.make(given_, faults), faults)
    block = copied(given_)

    assert block is not None
    assert [] == faults
    assert same(at_once, tokens.unfold(block))
    folded = tokens.fold(block)
    tokens.pack(at_once)
    assert same(at_once, folded)


def test_a_snapshot_is_a_copy() -> None:
    """
    Buffers are reused.
    """
    ids, logprobs = np.array([1, 2]), [-0.5, -1.0]
    block = copied({"ids": ids, "logprobs": logprobs})
    ids[0], logprobs[0] = 7, 7.0

    assert block is not None
    unfolded = tokens.unfold(block)
    assert ([1, 2], [-0.5, -1.0]) == (
        unfolded["mttp.token.ids"].tolist(),
        unfolded["mttp.token.logprobs"].tolist(),
    )


@pytest.mark.parametrize(
    "given_",
    [
        {},
        {"ids": None},
        {"ids": "12"},
        {"ids": np.array([1.0])},
        {"ids": np.array([[1]])},
        {"ids": np.array([2**63], np.uint64)},
        {"ids": np.array([1, 2], ">i8")},
        {"ids": range(3)},
        {"ids": [1, 2], "logprobs": [-0.5]},
        {"ids": [1, 2], "masks": [1]},
        {"ids": [1, 2], "logprobs": np.array(["x", "y"])},
        {"ids": [1], "tokenizer": "日本"},
        {"ids": [1], "tokenizer": 7},
        {"ids": [1], "parent": (0, 1)},
        {"ids": [1], "unknown": [1]},
    ],
)
def test_an_unusual_block_has_no_snapshot(given_: dict[str, Any]) -> None:
    """
    It is found when it is recorded, not later in a background thread.
    """
    assert copied(given_) is None


@pytest.mark.parametrize(
    ("given_", "fault"),
    [
        ({"ids": [1, "x"]}, "tokens_invalid"),
        ({"ids": [1, 2**63]}, "tokens_invalid"),
        ({"ids": [1.5]}, "tokens_invalid"),
        ({"ids": [1], "logprobs": [None]}, "tokens_invalid"),
        ({"ids": [1], "logprobs": ["x"]}, "tokens_invalid"),
        ({"ids": [np.array([1, 2]), 3]}, "tokens_invalid"),
        ({"ids": [1, 2], "logprobs": [0.5, np.array([1.0, 2.0])]}, "tokens_invalid"),
    ],
)
def test_a_list_that_holds_something_else_is_a_fault(given_: dict[str, Any], fault: str) -> None:
    """
    The span and the counters report it, and only the array is lost.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.tokens(**given_)
        counted = dict(session.stats.faults)
        (read,) = mttp.read(session)

    expected = tokens.make(given_, [])
    (kept,) = read.steps
    assert kept.tokens is not None
    assert expected.arrays().keys() == kept.tokens.arrays().keys()
    assert [fault] == [said.partition(":")[0] for said in kept.faults]
    assert {fault: 1} == counted


def test_whole_floats_are_ids_as_before() -> None:
    """
    Some tokenizers' outputs went through a float tensor.
    """
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.tokens(ids=[1.0, 2.0])
        (read,) = mttp.read(session)

    assert mttp.Tokens(ids=np.array([1, 2])) == read.steps[0].tokens
    assert {} == session.stats.faults


@pytest.mark.parametrize("given", [np.arange(5), list(range(5)), [2**31, 1, 2, 3, 4]])
def test_arrays_from_another_process_are_copied_equal(given: Any) -> None:
    """
    An unpickled array has a dtype object of its own; integers beyond 32 bits take another path.
    """
    logprobs = np.linspace(-1, 0, 5, dtype=np.float32) if isinstance(given, np.ndarray) else [-0.5] * 5
    arrived = pickle.loads(pickle.dumps((given, logprobs)))
    with mttp.configure("memory://") as session:
        with mttp.episode() as episode, episode.step() as step:
            step.tokens(ids=arrived[0], logprobs=arrived[1])
        (read,) = mttp.read(session)

    found = read.steps[0].tokens
    assert found is not None
    assert tokens.snapshot(given, logprobs) == tokens.snapshot(*arrived)
    assert (list(given), list(logprobs)) == (found.ids.tolist(), found.logprobs.tolist())
