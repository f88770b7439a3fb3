"""How one value of any type becomes recorded data, wherever it is, and what is kept of values without end."""

from __future__ import annotations

import json
import signal
from typing import Any

import numpy as np
import pytest
from awkward import AWKWARD, NUMBERS, raising, shared

import mttp
from mttp.codec.content import ACTION, encode, size
from mttp.codec.documents import sealed
from mttp.codec.plain import (
    count,
    flag,
    listed,
    mapped,
    nanoseconds,
    number,
    plain,
    scalar_text,
    text,
    to_json,
)
from mttp.codec.sharing import MAX_COPIED_BYTES
from mttp.model.nesting import is_deep
from mttp.model.reprs import bounded_repr

NAMES = list(AWKWARD)
EXACT = {
    "None", "not a number", "infinity", "numpy text", "numpy bytes", "text with a null character", "bytes",
    "bytearray", "memoryview", "set", "frozenset", "range", "deque", "named tuple", "dict of other keys",
    "ordered dict", "dict view", "enum of text", "text that raises", "nested containers", "array",
    "set of shared tuples",
    "empty array", "array of objects", "array of texts", "masked element", "masked array", "pandas Series",
    "pandas Series of objects", "pandas DataFrame", "pandas Index", "pandas Categorical", *NUMBERS,
}  # fmt: skip
"""What is converted without a fault."""


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_value_costs_nothing_but_itself(name: str) -> None:
    """
    Its neighbours in lists, tuples and mappings are as they were, and a fault says that it is not exact.
    """
    for place in (lambda value: [1, value, "two"], lambda value: {"a": 1, "odd": value, "b": "two"}):
        faults: list[str] = []
        copy = plain(place(AWKWARD[name]()), faults)
        kept = list(copy.values()) if isinstance(copy, dict) else copy

        assert (1, "two", 3) == (kept[0], kept[2], len(kept))
        assert (name in EXACT) == (not faults), faults
        assert not is_deep(copy, 33)
        json.dumps(copy, default=bytes.hex)


@pytest.mark.parametrize("name", NAMES)
def test_every_conversion_takes_every_value(name: str) -> None:
    """
    None of them raises.
    """
    made = AWKWARD[name]
    for convert in (plain, text, nanoseconds, to_json):
        convert(made(), [])
    for convert in (listed, mapped, flag):
        convert("what", made(), [])
    for convert in (number, count, scalar_text):
        convert(made())
    json.loads(to_json({"a": made(), "b": 2}, []))
    for value in (made(), [made()], {"a": np.zeros(2), "odd": made()}, (made(), 1)):
        attributes = encode(ACTION, value, [], [], max_bytes=1000)
        assert attributes is not None


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_other_libraries_are_numbers(name: str) -> None:
    """
    Alone, in containers and in JSON.
    """
    made, expected = NUMBERS[name]

    for kept in (plain(made(), []), plain([made()], [])[0], plain({"a": (made(),)}, [])["a"][0]):
        assert (type(expected), expected) == (type(kept), kept)
    assert expected == number(made()) == json.loads(to_json(made(), []))


def test_keys_become_text() -> None:
    """
    Of two with the same text the first is kept.
    """
    faults: list[str] = []
    copy = plain({np.int64(1): "a", "1": "b", raising("__str__", "__repr__"): "c"}, faults)

    assert {"1": "a", "<Odd whose repr raised AskedError>": "c"} == copy
    assert ["name_collision: 1", "kept_as_text: Odd"] == faults


def test_times_and_complex_numbers_are_text() -> None:
    """
    As they print themselves, alone and in arrays.
    """
    assert "2026-01-02" == plain(np.datetime64("2026-01-02"), [])
    assert ["3 seconds", "NaT"] == plain(np.array([3, "NaT"], "timedelta64[s]"), [])
    assert [["(1+2j)"]] == plain(np.array([[1 + 2j]]), [])


def test_what_holds_itself_is_a_marker() -> None:
    """
    The rest is kept.
    """
    root: dict[str, Any] = {"name": "root"}
    root["children"] = [{"name": place, "parent": root} for place in range(8)]
    faults: list[str] = []

    assert [{"name": place, "parent": "<cycle>"} for place in range(8)] == plain(root, faults)["children"]
    assert ["cycle: a dict holds itself"] == faults
    assert "<cycle>" == json.loads(to_json(root, []))["children"][7]["parent"]


def test_what_is_shared_is_copied_up_to_a_limit() -> None:
    """
    Sixty lists that hold the next one twice would never end.
    """
    faults: list[str] = []
    for value in (shared(), {"a": shared(20)}, (shared(), 1), [np.zeros(2), shared()]):
        copy = encode(ACTION, value, faults, [])[ACTION.value]
        assert size(copy) < 2 * MAX_COPIED_BYTES
    assert len(to_json(shared(25), faults)) < 2 * MAX_COPIED_BYTES
    assert sealed([[[[0] * 1000] * 1000] * 1000]) is None
    assert is_deep(shared())
    assert any(fault.startswith("too_large: a list is left out") for fault in faults)


def test_shared_texts_are_copied_up_to_a_limit() -> None:
    """
    Each once, and more often as long as all copies are small.
    """
    faults: list[str] = []
    copy = plain(["x" * 2**20] * 100, faults)

    assert (17, 83) == (copy.count("x" * 2**20), copy.count("<too large>"))
    assert [f"too_large: a str is left out: beyond {MAX_COPIED_BYTES:,} bytes of copies"] == faults


@pytest.mark.parametrize(
    "value",
    [
        [float(place) for place in range(300_000)],
        [[0] * 1000] * 1000,
        ["x" * 2**25, "y" * 2**25],
        [{"role": "user", "content": "x" * 100}] * 10_000,
    ],
    ids=["many numbers", "rows of one list", "long texts", "one message many times"],
)
def test_large_values_are_kept_whole(value: Any) -> None:
    """
    What is not shared has no limit here, and what is shared has a generous one.
    """
    faults: list[str] = []

    assert value == plain(value, faults)
    assert [] == faults


def test_what_has_no_end_is_cut() -> None:
    """
    A range or a view of one number can be longer than all memory.
    """
    faults: list[str] = []

    assert MAX_COPIED_BYTES // 8 == len(plain(range(10**12), faults))
    assert "<too large>" == plain(np.broadcast_to(np.float64(0), (10**6, 10**6)), faults)
    assert listed("ids", iter(int, 1), faults) is not None
    assert 2 == len(faults)


def test_a_repr_is_bounded_before_it_is_made() -> None:
    """
    Of containers, and of objects that print what they share.
    """

    class Node:
        def __init__(self, inner: Any) -> None:
            self.inner = [inner, inner]

        def __repr__(self) -> str:
            return f"Node({self.inner!r})"

    node: Any = 1
    for _ in range(60):
        node = Node(node)

    assert "<Node that holds too many objects more than once>" == bounded_repr(node)
    assert "Node([Node([1, 1]), Node([1, 1])])" == bounded_repr(Node(Node(1))).replace(
        "Node([1, 1])", "Node([1, 1])"
    )
    assert 4096 >= len(bounded_repr([shared(), "x" * 10**7]))
    for value in ([1, "a", (2,), {3}, frozenset({4}), {"a": b"c"}, (), {}, set()], {"a": [None]}):
        assert repr(value) == bounded_repr(value)


def test_bounded_repr_nested_arrays_of_objects_prints_each_level_once() -> None:
    class Counted:
        times = 0

        def __repr__(self) -> str:
            Counted.times += 1
            return "counted"

    nested: Any = Counted()
    for _ in range(12):
        array = np.empty(2, object)
        array[:] = [nested, 1.5]
        nested = array
    itself = np.empty(2, object)
    itself[:] = [1.5, itself]

    assert text(nested, []).startswith("array([array([")  # numpy's own asks the innermost 4,096 times
    assert bounded_repr(nested).count("counted") == 1
    assert Counted.times == 2
    assert bounded_repr(np.array([1, "two", None], object)) == "array([1, 'two', None], dtype=object)"
    assert bounded_repr(np.array([[1], ["b"]], object)) == "array([1, 'b'], dtype=object).reshape((2, 1))"
    assert bounded_repr(itself) == "array([1.5, array(...)], dtype=object)"


class _OutOfTimeError(Exception):
    pass


class _Slow:
    def __array__(self, *_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGUSR1)
        return np.zeros(3)

    def __repr__(self) -> str:
        signal.raise_signal(signal.SIGUSR1)
        return "slow"


def test_an_exception_of_a_signal_handler_passes() -> None:
    """
    A time limit ends the program's call, whatever is being converted.
    """

    def out_of_time(*_: object) -> None:
        raise _OutOfTimeError

    before = signal.signal(signal.SIGUSR1, out_of_time)
    try:
        for convert in (lambda: plain([_Slow()], []), lambda: number(_Slow()), lambda: scalar_text(_Slow())):
            with pytest.raises(_OutOfTimeError):
                convert()
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_observation_costs_nothing_but_itself(name: str) -> None:
    """
    The episode is read with all its steps.
    """
    with mttp.configure("memory://") as session, mttp.episode() as episode, episode.step() as step:
        step.observation({"odd": AWKWARD[name](), "text": "kept"})
        step.action([AWKWARD[name](), 7])
        step.set_metadata("odd", [AWKWARD[name](), 7])
        step.reward(1.0)
    (read,) = mttp.read(session).episodes
    (recorded,) = read.steps

    assert ("kept", 7, 7, 1.0) == (
        recorded.observation["text"], recorded.action[1], recorded.metadata["odd"][1], read.return_
    )  # fmt: skip
    assert "internal_error" not in session.stats.faults
