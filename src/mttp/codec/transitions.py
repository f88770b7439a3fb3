"""What environments do step by step, as the columns of a block: observation, action, reward and end."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mttp.codec import blocks, content, steps
from mttp.codec.blocks import SAME, Column, columns
from mttp.codec.plain import Faults, Plain
from mttp.codec.rewards import assess
from mttp.codec.structures import Flattened
from mttp.semconv import attributes as a

__all__ = ["RowSchema", "Row", "Thought", "encode", "paid", "said", "scalars"]

_Notes = defaultdict[int, dict[str, Plain]]
"""What is wrong with a step and what was left out of it, by its position."""


Row: TypeAlias = tuple[Any, ...]
"""
An environment's step: observation, action, reward, terminated, truncated, `Thought` and end.

The end is in nanoseconds since the Unix epoch.
"""
Thought: TypeAlias = tuple[float, float] | None
"""The value that a policy expected, and the action's log probability; None where it says neither."""


class RowSchema(NamedTuple):
    """What the rows of one environment's steps hold, the same for all of them."""

    dtype: Any
    """Of the arrays that observations are, each as bytes; None where they are as they came."""
    shape: tuple[int, ...]
    """Likewise."""
    max_bytes: int | None
    """Of an observation or action beyond this only dtype and shape are kept."""

    @property
    def parts(self) -> tuple[str | None, tuple[int, ...], int | None]:
        """The same as it travels."""
        return self.dtype and self.dtype.str, self.shape, self.max_bytes

    def columns(self, *facts: Sequence[Any]) -> dict[str, Column]:
        """The columns of rows that hold these."""
        observations, *others, thoughts = facts
        if self.dtype is not None:
            joined: Any = np.frombuffer(b"".join(observations), self.dtype)
            observations = joined.reshape(len(observations), *self.shape)
        found = encode(observations, *others, max_bytes=self.max_bytes)
        if thoughts[0] is not None:
            values, logprobs = np.array(thoughts, np.float64).T
            found |= {a.STEP_VALUE_ESTIMATE: Column(values), a.STEP_LOGPROB: Column(logprobs)}
        return found

    def travelling(self, rows: Sequence[Row], paid: Sequence[float]) -> tuple[Any, ...] | None:
        """This and the rows, which were paid that, for `said`; None where anything has to be looked at."""
        if self.dtype is None:
            return None
        observations, actions, _, terminated, truncated, thoughts, ends = zip(*rows, strict=True)
        taken = scalars(actions)
        if taken is None:
            return None
        facts = (observations, taken, paid, terminated, truncated, thoughts)
        return self.parts, facts, ends


def scalars(values: Sequence[Any]) -> Sequence[Any] | None:
    """Observations or actions as Python's numbers of one kind, or all not stated; None for anything else."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and kinds <= _LIKE_PYTHON:
        return list(np.array(values).tolist())
    if len(kinds) > 1 or (kinds == {int} and max(map(abs, values)) > _MOST):
        return None
    return values if kinds <= _PYTHONS else None


def paid(rewards: Sequence[Any]) -> list[float] | None:
    """Rewards of one kind that are finite numbers, as floats; None where they are anything else."""
    kinds = set(map(type, rewards))
    if len(kinds) != 1 or not kinds <= _PAYING:
        return None
    try:
        found = list(map(float, rewards))
    except OverflowError:  # an integer beyond them
        return None
    is_finite = math.isfinite(sum(found)) or all(map(math.isfinite, found))  # whose sum may not be
    return found if is_finite else None


def said(
    first_index: int,
    start_time: int,
    form: tuple[str | None, tuple[int, ...], int | None],
    facts: Sequence[Sequence[Any]],
    end_times: Sequence[int],
) -> dict[str, Plain]:
    """Attributes of steps that travelled; the first began at `start_time`, others as the one before ended."""
    dtype, shape, max_bytes = form
    columns = RowSchema(dtype and np.dtype(dtype), shape, max_bytes).columns(*facts)
    starts = (start_time, *end_times[:-1])
    return blocks.encode(columns, first_index=first_index, start_times=starts, end_times=end_times)


_PAYING = frozenset({float, int, np.float64, np.float32})
_LIKE_PYTHON = frozenset({np.int64, np.float64, np.bool_})
"""Numbers that are recorded as Python's are."""
_PYTHONS = frozenset({int, float, bool, type(None)})
_MOST = 2**63 - 1


def encode(
    observations: Sequence[object] | np.ndarray[Any, Any],
    actions: Sequence[object] | np.ndarray[Any, Any],
    rewards: Sequence[object],
    terminated: Sequence[object],
    truncated: Sequence[object],
    *,
    max_bytes: int | None = None,
) -> dict[str, Column]:
    """
    The columns of these steps, one entry each or an array of them all; None is not stated.

    Of an observation or action beyond `max_bytes` only dtype and shape are kept.
    What is wrong with an entry is in its step's faults.
    """
    found: dict[str, Column] = {}
    notes: _Notes = defaultdict(dict)
    for keys, values in ((content.OBSERVATION, observations), (content.ACTION, actions)):
        found |= _contents(keys, values, notes, max_bytes)
    found |= _rewards(rewards, notes)
    for key, flags in ((a.STEP_TERMINATED, terminated), (a.STEP_TRUNCATED, truncated)):
        found[key] = Column(np.fromiter(map(bool, flags), np.bool_, len(flags)))
    return found | columns([notes[position] for position in range(len(rewards))]) if notes else found


def _contents(
    keys: content.ContentKeys, values: Any, notes: _Notes, max_bytes: int | None
) -> dict[str, Column]:
    flat = _flat(values)
    array = _array(values if flat is None else [each.numbers for each in flat])
    if array is not None and (max_bytes is None or max(array[0].nbytes, content.NUMBER_BYTES) <= max_bytes):
        structure = {} if flat is None else {keys.structure: Column([flat[0].structure], SAME)}
        return {keys.value: Column(array), **structure}

    found: list[dict[str, Plain]] = []
    for position, value in enumerate(values):
        faults: Faults = []
        omissions: list[str] = []
        found.append(content.encode(keys, value, faults, omissions, max_bytes=max_bytes))
        _note(notes, position, a.FAULTS, faults)
        _note(notes, position, a.OMISSIONS, omissions)
    return columns(found)


def _flat(values: Sequence[Any]) -> Sequence[Flattened] | None:
    """The values, where they are flat arrays of one structure."""
    if type(values[0]) is not Flattened:
        return None
    structure = values[0].structure
    are_alike = all(type(value) is Flattened and value.structure == structure for value in values)
    return values if are_alike else None


def _rewards(values: Sequence[object], notes: _Notes) -> dict[str, Column]:
    array = _array(values)
    if array is not None and array.ndim == 1 and np.isfinite(array).all():
        return {
            a.STEP_REWARD: Column(array.astype(np.float64)),
            a.STEP_REWARD_STATUS: Column(["ok"], SAME),
        }
    found: list[dict[str, Plain]] = []
    for position, value in enumerate(values):
        number, status, raw = assess(value)
        found.append(steps.reward(number, status, raw))
        _note(notes, position, a.FAULTS, [f"reward_invalid: {raw}"] if status == "error" else [])
    return columns(found)


def _note(notes: _Notes, position: int, key: str, said: list[str]) -> None:
    if said:
        notes[position][key] = list(dict.fromkeys([*notes[position].get(key, ()), *said]))


def _array(values: Sequence[Any]) -> Any:
    """Numbers, or arrays of one dtype and shape, as one array; None where they are anything else."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    kind = kinds.pop() if len(kinds) == 1 else object
    if kind is np.ndarray:
        found = _stacked(values)
    elif kind in (int, float, bool) or issubclass(kind, (np.bool_, np.integer, np.floating)):
        found = np.array(values)  # of integers beyond int64 one of objects, or of floats
        found = found if kind is not int or found.dtype.kind == "i" else None
    else:
        return None
    return found if found is not None and _is_plain(found) else None


def _stacked(values: Sequence[Any]) -> Any:
    first = values[0]
    kinds, shapes = {value.dtype for value in values}, {value.shape for value in values}
    if len(kinds) > 1 or len(shapes) > 1 or not first.ndim:
        return None
    return np.concatenate(values).reshape(len(values), *first.shape)


def _is_plain(array: Any) -> bool:
    """Whether an attribute can hold its elements as they are."""
    fits = array.dtype.kind in "bif" or (array.dtype.kind == "u" and (array.ndim > 1 or array.itemsize < 8))
    return bool(fits and array.itemsize <= 8 and array.dtype.isnative)
